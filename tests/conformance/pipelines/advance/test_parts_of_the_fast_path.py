"""database/dialect, runtime/pump/pump: each part of the fast path can be left out, and what comes of jobs and runs
is the same.
"""

import asyncio
from typing import Any

import pytest

from penstock import Penstock
from penstock.database.dialect import GENERAL_WAY, FastPath
from penstock.runtime.pump.job_source import JobSource
from penstock.runtime.pump.pump import Pump
from penstock.runtime.worker import Worker
from tests.conformance.embedded import beside_a_worker
from tests.conformance.rows import count

WITHOUT: dict[str, Any] = {part: {part: False} for part in FastPath._fields} | {"all": GENERAL_WAY._asdict()}
RUNS = 4


@pytest.mark.parametrize("left_out", WITHOUT)
def test_a_part_is_left_out(app: Penstock, monkeypatch: pytest.MonkeyPatch, left_out: str) -> None:
    """Runs of three steps, one after the other: a second one takes what the first has taught."""
    app.database.dialect.fast_path = app.database.dialect.fast_path._replace(**WITHOUT[left_out])
    taken = _spy(monkeypatch)

    @app.task
    async def more(number: int) -> int:
        return number + 1

    made = app.flow("made").start(more).chain(more).chain(more)

    async def live(_worker: Worker) -> None:
        for number in range(RUNS):
            run = await made.trigger_async(number)
            assert await run.result_async(timeout=30) == number + 3
            job = await more.enqueue_async(number)
            assert await asyncio.wait_for(job.result_async(timeout=30), 30) == number + 1

    beside_a_worker(app, live)
    assert count(app, "executions") == RUNS * 4
    assert count(app, "claims") == 0
    switch = app.database.dialect.fast_path
    assert ("claim" in taken) is switch.claim
    assert ("presume" in taken) is (switch.settle and switch.presume)
    assert bool(app.engine.engine_state.plans) is (switch.settle and switch.plan)
    assert ("offer" in taken) is switch.offer


def _spy(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The parts that were really taken."""
    taken: set[str] = set()
    claim_alone, transact, offer = Pump._claim_alone, Pump._transact, JobSource._offer

    def claiming(self: Any, limit: int) -> Any:
        taken.add("claim")
        return claim_alone(self, limit)

    def transacting(self: Any, work: Any, *args: Any, **options: Any) -> Any:
        if options.get("presuming") and self._presumes:
            taken.add("presume")
        return transact(self, work, *args, **options)

    def offering(self: Any, room: int) -> Any:
        taken.add("offer")
        return offer(self, room)

    monkeypatch.setattr(Pump, "_claim_alone", claiming)
    monkeypatch.setattr(Pump, "_transact", transacting)
    monkeypatch.setattr(JobSource, "_offer", offering)
    return taken
