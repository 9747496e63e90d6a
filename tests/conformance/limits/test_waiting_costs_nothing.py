"""queue/limits/waiting_line: a job that waits for a limit is claimed once, and then not before there is room."""

import asyncio
from typing import Any

from penstock import Concurrency, Penstock, Rate
from tests.conformance.concurrent_workers import Turnstile, all_ended, held_slots, together
from tests.conformance.rows import count
from tests.waiting import until

JOBS = 800


class Counted:
    """How many statements there were, and how many places in the queue were taken by claims."""

    def __init__(self, app: Penstock) -> None:
        self.statements = self.taken = 0
        self._execute = app.database.dialect.execute
        self._take = app.database.dialect.take_ready
        app.database.dialect.execute = self.execute  # type: ignore[method-assign, assignment]
        app.database.dialect.take_ready = self.take  # type: ignore[method-assign, assignment]

    def execute(self, *args: Any) -> Any:
        self.statements += 1
        return self._execute(*args)

    def take(self, *args: Any) -> Any:
        found = self._take(*args)
        self.taken += len(found())
        return found


def test_36_a_long_line_behind_a_small_limit_does_not_churn(app: Penstock) -> None:
    counted, gate, open_now = Counted(app), Turnstile(), asyncio.Event()

    @app.task(limits=[Concurrency(5, key="tenant")])
    async def work(tenant: str) -> None:
        with gate.passing(tenant):
            await open_now.wait()

    async def main() -> None:
        await work.enqueue_many_async([("a",)] * JOBS)
        await until(lambda: count(app, "parked") == JOBS - 5)
        assert counted.taken == JOBS
        before = counted.statements
        await asyncio.sleep(1.0)
        assert counted.taken == JOBS  # no job is claimed while nothing has changed
        assert counted.statements - before < 100  # looks of an idle worker, whatever the length of the line
        open_now.set()
        await all_ended(app)

    together([app], main)
    assert gate.most["a"] == 5
    assert counted.taken <= 2 * JOBS + 10
    assert counted.statements < 30 * JOBS  # on a slow machine every job may have a turn of its own
    assert (held_slots(app), count(app, "parked")) == (0, 0)


def test_36_lines_behind_two_limits_do_not_pass_each_other_for_ever(app: Penstock) -> None:
    """All wait for their tenant and for the task: those who cannot go over there leave no slot unused here."""
    counted, gate = Counted(app), Turnstile()
    jobs = 120

    @app.task(limits=[Concurrency(2, key="tenant"), Rate(10, per=0.2)])
    async def work(tenant: str) -> None:
        with gate.passing(tenant):
            await asyncio.sleep(0.001)

    async def main() -> None:
        await work.enqueue_many_async([("ab"[number % 2],) for number in range(jobs)])
        await all_ended(app)

    together([app], main)
    assert len(gate.passed) == jobs
    assert max(gate.most.values()) == 2
    assert counted.taken <= 4 * jobs
