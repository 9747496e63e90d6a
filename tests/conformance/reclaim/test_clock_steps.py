"""database/clock_watch, queue/reclaim: the database's clock is set, by seconds or minutes: no living process is
taken for dead, and the dead are found.
"""

import asyncio
from collections.abc import Callable

import pytest

from penstock import Penstock
from penstock.database.database import Database
from penstock.queue import processes
from penstock.queue.processes import children
from penstock.runtime.supervisor.child_reaper import ChildInfo, ChildReaper
from penstock.runtime.worker import Worker
from penstock.telemetry.events import ClockStepped, ProcessReaped
from penstock.testing.drain_rows import ManualReconciler
from penstock.values.ids import new_id
from tests.conformance.embedded import beside_a_worker
from tests.conformance.reconcile.cloud import Cloud, Volume, declare
from tests.waiting import eventually, until

SILENCE = 2.0


def set_clock(database: Database, seconds: float) -> None:
    """As an administrator does. That is not `travel()`, which stands for time that has passed."""
    database.set_clock(f"({database.dialect.now} + {int(seconds * 1_000_000)})")


@pytest.fixture
def app(make_app: Callable[..., Penstock]) -> Penstock:
    return make_app(reap_after=SILENCE, heartbeat_interval=0.2, housekeeping_interval=0.1)


@pytest.mark.parametrize("step", [20.0, -20.0])
def test_a_step_of_the_clock_costs_no_living_process_its_work(app: Penstock, step: float) -> None:
    steps: list[ClockStepped] = []
    reaped: list[ProcessReaped] = []
    app.events.on(ClockStepped, steps.append)
    app.events.on(ProcessReaped, reaped.append)

    @app.task(retries=0, max_crashes=0)
    async def slow() -> str:
        await asyncio.sleep(2 * SILENCE)
        return "done"

    async def main(first: Worker) -> None:
        async with app.worker():
            jobs = await slow.enqueue_many_async([()] * 6)
            await until(lambda: all(job.status == "running" for job in jobs))
            await until(lambda: len(first.housekeeping.reaper.outage_guard.clock._readings) > 0)
            await asyncio.sleep(SILENCE / 2)  # a new process judges no other: only now it can go wrong
            set_clock(app.database, step)
            assert [await job.result_async(timeout=60) for job in jobs] == ["done"] * 6
            assert [str(attempt.outcome) for job in jobs for attempt in job.attempts()] == ["succeeded"] * 6

    beside_a_worker(app, main)
    assert not reaped
    assert steps
    assert all(abs(event.seconds - step) < 1 for event in steps)


def test_a_clock_that_was_set_back_does_not_keep_the_work_of_the_dead(app: Penstock) -> None:
    """Its last heartbeat lies ten minutes in the future."""
    dead = new_id()
    reaped: list[str] = []
    app.events.on(ProcessReaped, lambda event: reaped.append(event.process))

    async def main(_: Worker) -> None:
        app.database.in_transaction(processes.register, dead, "elsewhere", 1, "worker", None, "{}")
        set_clock(app.database, -600)
        await until(lambda: dead in reaped, timeout=4 * SILENCE)

    beside_a_worker(app, main)


def test_a_supervisor_does_not_kill_its_children_because_the_clock_was_set(app: Penstock) -> None:
    app.prepare()
    keeper = ChildReaper(app, {}, lambda: None)
    keeper.register()
    child = new_id()
    app.database.in_transaction(processes.register, child, "here", 1, "worker", keeper.id, '{"birth": "b"}')
    keeper.living = [ChildInfo("b", 1, 0.0)]
    keeper.turn()

    def may_declare_dead() -> bool:
        keeper._look_at = 0.0
        keeper.turn()
        return keeper.outage_guard.may_declare_dead

    eventually(may_declare_dead)  # a new process judges no other: only now it can go wrong
    set_clock(app.database, 20)
    set_clock(keeper.database, 20)
    keeper._look_at = 0.0
    keeper.turn()
    assert not keeper.silent
    assert [row.id for row in app.database.read(children, keeper.id)] == [child], "nor is its row removed"
    keeper.rest()


def test_a_row_of_a_living_process_is_not_taken_over_because_the_clock_was_set(
    app: Penstock, make_app: Callable[..., Penstock]
) -> None:
    """Its lease seems to be over; by the time that it could be, it was renewed by the new clock."""
    cloud, other = Cloud(app), make_app()
    cloud.volumes(1)
    reconciler = declare(app, Volume, lease=2)
    with ManualReconciler(app, reconciler) as mine, ManualReconciler(other, reconciler) as theirs:
        (item,) = mine.take()
        assert theirs.take() == []
        for database in (app.database, other.database):
            set_clock(database, 100)
        assert theirs.take() == [], "nothing tells that its holder is dead"
        assert mine.renew(item) == []
        eventually(theirs.take, timeout=10)  # now it is dead, as far as can be told
