"""queue/claim: Two workers want the same job. Invariants 1 and 2: a row is held by at most one claim."""

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import accumulate, groupby
from pathlib import Path

import pytest

from penstock import Penstock
from penstock.database.dialect import Lane
from penstock.database.transaction import Transaction
from penstock.queue import claim, processes, settle
from penstock.queue.jobs import Attempt, Claim
from penstock.values.ids import new_id, new_token
from penstock.values.outcome import Outcome
from penstock.values.status import OutcomeKind
from tests.process.forks import LONGEST, started
from tests.process.history import check, rows, settled
from tests.process.scenes import Part, make_app, unfinished
from tests.waiting import eventually

pytestmark = pytest.mark.process

ROUNDS = 1_000
BATCH = 2_000
FAIR = 350
"""Rows are of about 130 jobs with the gate, and of 600 to 4,000 without."""


def test_one_of_two_wins_a_thousand_times(make_app_here: Callable[[], Penstock]) -> None:
    apps = [make_app_here(), make_app_here()]
    apps[0].tasks["double"].enqueue_many([(number,) for number in range(ROUNDS)])
    racers = [Racer(app) for app in apps]
    with ThreadPoolExecutor(2) as pool:
        won = list(pool.map(lambda racer: racer.race(ROUNDS), racers))
    claimed = Counter(claim.job_id for claims in won for claim in claims)
    assert len(claimed) == ROUNDS, "every job was won"
    assert set(claimed.values()) == {1}, "and by one only"
    assert all(won), "both had a chance"
    for racer, claims in zip(racers, won, strict=True):
        assert racer.settle(claims) == len(claims)
        assert racer.settle(claims, as_another=True) == 0, "what is settled is settled"
        racer.leave()
    jobs = check(apps[0])
    assert {job["generation"] for job in jobs.values()} == {1}


class Racer:
    """A worker reduced to its claims: it takes one job at a time, as fast as it can, until all are gone."""

    start = threading.Barrier(2)

    def __init__(self, app: Penstock) -> None:
        self.app = app
        self.database = app.database
        self.process = new_id()
        self.database.in_transaction(processes.register, self.process, "here", os.getpid(), "all", None, "{}")

    def race(self, jobs: int) -> list[Claim]:
        won: list[Claim] = []
        lane = Lane("default", 0, 0, 1)
        self.start.wait()
        while self._left(jobs):
            won += self.database.in_transaction(self._claim, lane)
        return won

    def _claim(self, tx: Transaction, lane: Lane) -> Sequence[Claim]:
        return claim.claim(tx, [lane], ["double"], 1, new_token(), self.process)[0]

    def _left(self, _jobs: int) -> bool:
        return bool(rows(self.app, "SELECT seq FROM {availabilities} LIMIT 1"))

    def settle(self, claims: Sequence[Claim], as_another: bool = False) -> int:
        attempts = [Attempt(claim, Outcome(OutcomeKind.SUCCEEDED, "1")) for claim in claims]
        tokens = sorted({claim.token for claim in claims})
        process = new_id() if as_another else self.process
        done = self.database.in_transaction(settle.settle, attempts, process, tokens)
        return len(done.accepted)

    def leave(self) -> None:
        self.database.in_transaction(
            lambda tx: tx.run("DELETE FROM {processes} WHERE id = :id", id=self.process)
        )


@pytest.fixture
def make_app_here(database_url: str) -> Callable[[], Penstock]:
    return lambda: make_app(database_url)


def test_four_processes_share_the_work_and_none_starves(database_url: str, tmp_path: Path) -> None:
    app, diary = make_app(database_url), tmp_path / "diary"
    logs = [tmp_path / f"log-{number}" for number in range(4)]
    with _four(app, database_url, diary, [str(log) for log in logs]):
        _keep_busy(app, diary)
    jobs = check(app, diary)
    assert {job["status"] for job in jobs.values()} == {"succeeded"}
    assert {job["crash_count"] for job in jobs.values()} == {0}
    for log in logs:
        assert "locked" not in log.read_text()
        assert "trouble" not in log.read_text()


def test_four_processes_take_turns_at_a_file(tmp_path: Path) -> None:
    """Without the gate the one that has just written writes again, hundreds of times: the others are too late.

    On a disk, where a commit takes its time: that is what they would wait for, each time longer.
    """
    usual: list[int] = []
    while (
        len(usual) < 3 and min(usual, default=FAIR) >= FAIR
    ):  # now and then a machine has too much else to do
        folder = tmp_path / str(len(usual))
        folder.mkdir()
        usual.append(_usual_row(folder))
    assert min(usual) < FAIR, usual


def _usual_row(folder: Path) -> int:
    """Half of all jobs are in rows of one process's that are no longer."""
    url, diary = f"sqlite:///{folder}/penstock.db", folder / "diary"
    app = make_app(url)
    app.prepare()
    with _four(app, url, diary, [None] * 4, batch=10, concurrency=10):
        app.tasks["double_async"].enqueue_many([(number,) for number in range(3 * BATCH)])
    app.close()
    in_a_row = sorted(len(list(jobs)) for _, jobs in groupby(_workers(diary)))
    reached = accumulate(in_a_row)
    return next(size for size, upto in zip(in_a_row, reached, strict=True) if upto > 3 * BATCH / 2)


@contextmanager
def _four(
    app: Penstock, url: str, diary: Path, logs: Sequence[str | None], **settings: object
) -> Iterator[None]:
    """Four workers beside the block, that leave when everything is done."""
    with ExitStack() as stack:
        parts = [Part(url, "serve", diary=str(diary), log=log, settings=settings) for log in logs]
        processes = [stack.enter_context(started(part)) for part in parts]
        eventually(lambda: len(rows(app, "SELECT id FROM {processes}")) == 4)
        yield
        settled(app)
        Path(f"{diary}.end").touch()
        for process in processes:
            process.join(LONGEST)
            assert process.exitcode == 0


def _keep_busy(app: Penstock, diary: Path) -> None:
    """There is always something to do until each of four has had a share: how soon, the machine decides as well."""
    for _ in range(20):
        app.tasks["double_async"].enqueue_many([(number,) for number in range(BATCH)])
        eventually(lambda: _shared(diary) or unfinished(app) < BATCH / 2, 120)
        if _shared(diary):
            return
    raise AssertionError(Counter(_workers(diary)))


def _shared(diary: Path) -> bool:
    shares = Counter(_workers(diary))
    return len(shares) == 4 and min(shares.values()) > 100


def _workers(diary: Path) -> list[str]:
    """Who did each of the jobs, in the order in which they were done. The last line may be half there."""
    text = diary.read_text() if diary.exists() else ""
    return [line.split()[2] for line in text[: text.rfind("\n") + 1].splitlines()]
