"""Whatever a person does to a row, all other work comes through: tasks, delayed ones, limits, runs, reconcilers,
crashes.

A few fresh cases a run, on every database, beside a worker that goes on through all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest
from sqlalchemy import func, select

from penstock import Penstock
from penstock.operate.diagnosis import damage
from penstock.operate.doctor import CheckContext, examine
from penstock.runtime.worker import Worker
from tests.conformance.embedded import beside_a_worker
from tests.fuzz.drawing import drawn
from tests.fuzz.filling import fill
from tests.fuzz.innocents import Crowd
from tests.fuzz.tampering import LEFT_ALONE, Tampering, clear, tamper, tamperings
from tests.waiting import until

CASES = 6
ROUNDS = 6
GREATEST = 2**63 - 1
KNOWN = [
    Tampering("jobs", "remove"),
    Tampering("claims", "change", "job_ids", "nope"),
    Tampering("claims", "remove"),
    Tampering("job_states", "change", "crash_count", 2**31 - 1),
    Tampering("job_states", "change", "generation", GREATEST),
    Tampering("job_states", "change", "status", "zzz"),
    Tampering("runs", "change", "mode", "zzz"),
    Tampering("scheduled", "change", "due_at", -GREATEST - 1),
    Tampering("timers", "change", "kind", "zzz"),
    Tampering("processes", "change", "reap_after", GREATEST),
    Tampering("processes", "change", "details", "nope"),
    Tampering("leases", "change", "expires_at", GREATEST),
    Tampering("definitions", "change", "text", "nope"),
    Tampering("executions", "change", "outcome", "zzz"),
    Tampering("schedules", "change", "every", 0),
    Tampering("schedules", "change", "every", -1),
    Tampering("schedules", "change", "missed_limit", 0),
    Tampering("queue_controls", "change", "value", "mail:x"),
    Tampering("queue_controls", "change", "revision", GREATEST),
    Tampering("tallies", "change", "attempts", GREATEST),
]

pytestmark = pytest.mark.process


@pytest.fixture
def crowd(make_app: Callable[..., Penstock]) -> Crowd:
    return Crowd(make_app(reap_after=2, heartbeat_interval=0.4, housekeeping_interval=0.2, lock_timeout=5))


def survived(crowd: Crowd, cases: Callable[[Callable[[Tampering], None]], None]) -> None:
    """Play cases one after the other beside one worker."""
    numbers = iter(range(10_000))

    async def main(_: Worker) -> None:
        loop = asyncio.get_running_loop()

        def play(case: Tampering) -> None:
            clear(crowd.app)
            fill(crowd)
            tamper(crowd.app, case)
            try:
                asyncio.run_coroutine_threadsafe(crowd.come_through(next(numbers)), loop).result()
                look_at_everything(crowd.app)
            except Exception as error:
                raise AssertionError(f"after this tampering: {case}; {crowd.told()}") from error

        await asyncio.to_thread(cases, play)

    beside_a_worker(crowd.app, main, concurrency=8)


def look_at_everything(app: Penstock) -> None:
    """What people look with fails on no row; nor does the repair, after which nothing is left that it could mend."""
    patient = CheckContext(app.database, app.metadata, frozenset(app.tasks))
    wrong = [one for one in examine(patient) if "Error" in one.message and one.check != "rows"]
    named = ("cannot go on", "cannot be fired")
    assert not [one for one in wrong if not any(words in one.message for words in named)], wrong
    damage.repair(app.database)


def test_every_table_has_rows_to_tamper_with(crowd: Crowd) -> None:
    """Beside a worker, which takes some of them away again, perhaps before anyone has looked: then they come anew."""
    empty = {
        name: table
        for name, table in crowd.app.metadata.tables.items()
        if table.name.removeprefix(crowd.app.database.prefix) not in LEFT_ALONE
    }

    def look() -> bool:
        with crowd.app.database.engine.connect() as connection:
            for name, table in [*empty.items()]:
                if connection.execute(select(func.count()).select_from(table)).scalar_one():
                    del empty[name]
        return not empty

    def fill_anew() -> None:
        clear(crowd.app)
        fill(crowd)

    async def seen_anew() -> bool:
        filling = asyncio.create_task(asyncio.to_thread(fill_anew))
        try:
            await until(lambda: look() or filling.done())
        finally:
            await filling
        with suppress(TimeoutError):
            await until(look, 5)
        return not empty

    async def main(_: Worker) -> None:
        for _round in range(ROUNDS):
            if await seen_anew():
                return
        raise AssertionError(f"fill() makes no row in {sorted(empty)}")

    beside_a_worker(crowd.app, main, concurrency=8)


def test_what_has_stopped_a_worker_before_stops_none(crowd: Crowd) -> None:
    def known(play: Callable[[Tampering], None]) -> None:
        for case in KNOWN:
            play(case)

    survived(crowd, known)


def test_whatever_is_done_to_rows_others_come_through(crowd: Crowd) -> None:
    cases = drawn(tamperings(crowd.app), CASES)

    def play_all(play: Callable[[Tampering], None]) -> None:
        for case in cases:
            play(case)

    survived(crowd, play_all)
