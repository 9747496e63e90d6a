"""Two workers want the same job. Invariants 1 and 2: a row is held by at most one claim."""

import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
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
from tests.process.forks import started
from tests.process.history import check, rows, settled
from tests.process.scenes import Part, make_app
from tests.waiting import eventually

pytestmark = pytest.mark.process

ROUNDS = 1_000


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


def test_four_processes_share_the_work_and_nobody_starves(database_url: str, tmp_path: Path) -> None:
    app = make_app(database_url)
    diary = str(tmp_path / "diary")
    logs = [tmp_path / f"log-{number}" for number in range(4)]
    parts = [Part(database_url, "serve", diary=diary, log=str(log)) for log in logs]
    with started(parts[0]) as a, started(parts[1]) as b, started(parts[2]) as c, started(parts[3]) as d:
        eventually(lambda: len(rows(app, "SELECT id FROM {processes}")) == 4)
        app.tasks["double_async"].enqueue_many([(number,) for number in range(4_000)])
        settled(app)
        Path(f"{diary}.end").touch()
        for process in (a, b, c, d):
            process.join(30)
            assert process.exitcode == 0
    jobs = check(app, Path(diary))
    assert {job["status"] for job in jobs.values()} == {"succeeded"}
    assert {job["crash_count"] for job in jobs.values()} == {0}
    share = Counter(line.split()[2] for line in Path(diary).read_text().splitlines())
    assert len(share) == 4, share
    assert min(share.values()) > 100, share
    for log in logs:
        assert "locked" not in log.read_text()
        assert "trouble" not in log.read_text()
