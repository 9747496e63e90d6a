"""runtime/executors/async_executor: Handlers on the event loop always come to an end, also those that never began
and those that will not.
"""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.handler_environment import HandlerFlags
from penstock.runtime.executors import async_executor, call
from penstock.runtime.executors.async_executor import LoopExecutor
from penstock.runtime.executors.job_work import JobWork
from penstock.runtime.executors.work import Interruption, Work
from penstock.telemetry.events import Event, HandlerOverdue, Stream
from penstock.values.outcome import Released, Stopped, TimedOut
from penstock.values.retry import Retry

Told = list[tuple[str, object]]


@pytest.fixture
def told() -> Told:
    return []


def executor(events: list[Event]) -> LoopExecutor:
    stream = Stream()
    stream.on(Event, events.append)
    return LoopExecutor(SimpleNamespace(), stream)  # type: ignore[arg-type]


class Owner:
    """Writes down what it is told."""

    def __init__(self, told: Told) -> None:
        self.told = told

    def done(self, work: Work, event: object) -> None:
        self.told.append(("done", event))

    def done_elsewhere(self, work: Work, event: object) -> None:
        self.told.append(("late", event))

    def vacate(self, work: Work) -> None:
        self.told.append(("vacated", None))


def work(told: Told, timeout: float | None = None) -> Work:
    claim: Any = SimpleNamespace(job_id="j", generation=1, task="t", token=7)
    made = JobWork(("a", 1), timeout, "async", HandlerFlags(), claim, None, Retry())
    made.owner = Owner(told)
    return made


@pytest.fixture(autouse=True)
def handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stubborn(*given: object) -> TimedOut:
        for _ in range(2):
            try:
                await asyncio.sleep(0.03)
            except asyncio.CancelledError:
                continue
        return TimedOut(0.0)

    monkeypatch.setattr(call, "call_async", stubborn)
    monkeypatch.setattr(async_executor, "CLEANING_UP", 0.005)


@pytest.mark.parametrize(
    ("why", "event"),
    [
        (Interruption.CANCELLED, Stopped()),
        (Interruption.RELEASED, Released()),
        (Interruption.LOST, None),
    ],
)
def test_interrupted_before_its_first_step(told: Told, why: Interruption, event: object) -> None:
    async def look() -> None:
        one, runs = work(told), executor([])
        runs.start(one)
        runs.interrupt(one, why)
        await asyncio.sleep(0.01)

    asyncio.run(look())
    assert told == [("done", event)]


def test_one_that_goes_on_after_its_time_is_settled_without_it(told: Told) -> None:
    events: list[Event] = []

    async def look() -> None:
        one, runs = work(told, timeout=0.001), executor(events)
        runs.start(one)
        await asyncio.sleep(0.02)
        assert told == [("late", TimedOut(0.001))]
        await asyncio.sleep(0.06)

    asyncio.run(look())
    assert told == [("late", TimedOut(0.001)), ("vacated", None)], (
        "its place is free when it has really ended"
    )
    assert [type(event) for event in events] == [HandlerOverdue]
