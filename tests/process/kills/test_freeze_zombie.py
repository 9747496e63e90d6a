"""queue/settle: SIGSTOP for longer than others wait, then SIGCONT. Invariant 3: a stale holder changes nothing.

The zombie's write is refused, its successor's result stands, and the zombie goes on under a new name.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock import Penstock
from penstock.job import Job
from penstock.pipelines.pipeline import Pipeline
from penstock.pipelines.run import Run
from tests.process import run_plays
from tests.process.forks import started
from tests.process.freezing import is_stopped
from tests.process.history import check, declare_dead, recover, rows
from tests.process.scenes import Part, make_app
from tests.waiting import eventually

pytestmark = pytest.mark.process

IMPATIENT: dict[str, object] = {"statement_timeout": 1, "lock_timeout": 0.5}


@pytest.fixture
def part(database_url: str, tmp_path: Path) -> Part:
    folder = {"diary": str(tmp_path / "diary"), "log": str(tmp_path / "log")}
    return Part(database_url, "serve", "default", settings=IMPATIENT | {"heartbeat_interval": 0.2}, **folder)


@pytest.fixture
def shop(part: Part) -> Iterator[Penstock]:
    app = make_app(part.url, part.diary, None, **IMPATIENT)
    yield app
    app.close()


@contextmanager
def frozen_at(point: str, part: Part) -> Iterator[int]:
    """A process that has stopped at a point; the end of the block thaws it and lets it finish in order."""
    with started(Part(**{**vars(part), "strike_at": f"{point}:1:stop"})) as process:
        assert process.pid is not None
        pid = process.pid
        eventually(lambda: is_stopped(pid))
        yield pid
        Path(f"{part.diary}.end").touch()
        process.join(30)
        assert process.exitcode == 0, Path(str(part.log)).read_text()


def test_a_zombie_is_refused_and_its_successor_stands(shop: Penstock, part: Part, database_kind: str) -> None:
    # A process that freezes inside a transaction on SQLite holds the whole file; no other can write until it thaws.
    inside = [] if database_kind == "sqlite" else ["settle.1", "settle.commit"]
    for number, point in enumerate(["hand_over", "execute.before", "execute.after", *inside]):
        job = shop.tasks["who"].enqueue()
        here = Part(**{**vars(part), "diary": f"{part.diary}-{number}", "log": f"{part.log}-{number}"})
        with frozen_at(point, here) as zombie:
            declare_dead(shop)
            recover(shop)
            assert job.result(timeout=0) == os.getpid()
            os.kill(zombie, signal.SIGCONT)
            goes_on_working(shop, zombie)
            tells(here, "was taken for dead", "CommitFailed", job.id)
        assert job.result(timeout=0) == os.getpid(), "the successor's result stands"
        assert [attempt.outcome for attempt in job.attempts()] == ["crashed", "succeeded"], point
    jobs = check(shop)
    assert {job["crash_count"] for job in jobs.values()} == {0, 1}


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("play", "point"),
    [
        (run_plays.sequence, "presume.1"),
        (run_plays.sequence, "advance.commit"),
        (run_plays.joined, "advance.3"),
    ],
)
def test_who_freezes_in_the_middle_of_a_presumed_settle_changes_nothing(
    shop: Penstock, part: Part, database_kind: str, play: Callable[..., Pipeline], point: str
) -> None:
    """What it presumed was true when it fell asleep, and is not when it wakes up.

    The last one has got an answer about a join, so the server holds locks for it: only for as long as a statement may
    take.
    """
    if database_kind != "postgres":
        pytest.skip("nothing is presumed here")
    run = play(shop, part.queue).trigger(1)
    with frozen_at(point, part) as zombie:
        declare_dead(shop)
        recover(shop)
        assert run.result(timeout=0) == 4
        before = everything_about(shop, run)
        os.kill(zombie, signal.SIGCONT)
        goes_on_working(shop, zombie)
        tells(part, "was taken for dead")
        assert everything_about(shop, run) == before
    jobs = check(shop)
    crashed = [job["attempts"] for job in jobs.values() if job["crash_count"]]
    assert crashed
    assert all(attempts == ["crashed", "succeeded"] for attempts in crashed)
    assert sum(job["task"] == "hear" for job in jobs.values()) == 2


def everything_about(shop: Penstock, run: Run) -> dict[str, list[tuple[object, ...]]]:
    steps = "job_id IN (SELECT id FROM {jobs} WHERE run_id = :run)"
    where = {"runs": "id = :run", "jobs": "run_id = :run", "job_states": steps, "executions": steps}
    where["joins"] = "run_id = :run"
    return {
        table: sorted(rows(shop, f"SELECT * FROM {{{table}}} WHERE {which}", run=run.id), key=repr)
        for table, which in where.items()
    }


def goes_on_working(shop: Penstock, zombie: int) -> None:
    job: Job[int] = shop.tasks["who"].enqueue()
    assert job.result(timeout=30) == zombie
    assert [attempt.outcome for attempt in job.attempts()] == ["succeeded"]


def tells(part: Part, *words: str) -> None:
    eventually(lambda: all(word in Path(str(part.log)).read_text() for word in words))


def test_a_short_freeze_costs_nothing(shop: Penstock, part: Part) -> None:
    job = shop.tasks["who"].enqueue()
    with frozen_at("execute.after", part) as pid:
        shop.tasks["double"].options(queue="elsewhere").enqueue(1)
        os.kill(pid, signal.SIGCONT)
        assert job.result(timeout=30) == pid
    recover(shop)
    jobs = check(shop)
    assert {job["crash_count"] for job in jobs.values()} == {0}
