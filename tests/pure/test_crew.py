"""What the crew tells of claims that it will never finish, or cannot even begin."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.queue.jobs import Attempt, Claim
from penstock.runtime import crew as crews
from penstock.runtime.crew import Crew
from penstock.runtime.work import Work
from penstock.telemetry.events import Stream
from penstock.values.outcome import HINDERED_FOR
from penstock.values.retry import Retry
from tests.refused import no_threads


def claim(number: int) -> Any:
    return SimpleNamespace(
        job_id=f"job-{number}", generation=1, token=number, task="note", options=None, retry_count=0
    )


def test_claims_that_are_lost_are_forgotten_whether_they_run_or_wait() -> None:
    """Or the process would believe for ever to hold them, and have that much less room in their queues."""
    forgotten: list[Claim] = []

    async def hang() -> None:
        await asyncio.Event().wait()

    settings = SimpleNamespace(timeout=None, retries=Retry())
    task = SimpleNamespace(settings=settings, executor="async", function=hang, codec=None)

    async def look() -> None:
        around: Any = SimpleNamespace()
        crew = Crew(around, lambda _: task, lambda _: None, forgotten.extend, Stream(), 1, 5, 1)
        crew.hand_over([claim(1), claim(2)])
        await asyncio.sleep(0)
        assert (len(crew.active), len(crew.waiting)) == (1, 1)
        crew.abandon_all()
        await asyncio.sleep(0.01)
        assert crew.busy == 0

    asyncio.run(look())
    assert sorted(claim.token for claim in forgotten) == [1, 2]


def test_who_has_no_thread_does_not_go_through_the_whole_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would give back one job after the other, and begin again when the first is due."""
    given_back: list[Attempt] = []
    now = 100.0
    monkeypatch.setattr(crews, "time", SimpleNamespace(monotonic=lambda: now))
    settings = SimpleNamespace(timeout=None, retries=Retry())
    task = SimpleNamespace(settings=settings, executor="thread")

    async def look() -> None:
        nonlocal now
        around: Any = SimpleNamespace()
        crew = Crew(around, lambda _: task, given_back.append, lambda _: None, Stream(), 2, 5, 1)
        room = crew.room()
        with no_threads("penstock-handler", times=3):
            crew.hand_over([claim(1), claim(2), claim(3)])
            await asyncio.sleep(0)
        assert [attempt.outcome.delay for attempt in given_back] == [HINDERED_FOR] * 3
        assert (crew.busy, crew.room()) == (0, 0)
        now += HINDERED_FOR
        assert crew.room() == room

    asyncio.run(look())


@pytest.mark.parametrize("stop", [Crew.give_back_running, Crew.abandon_all])
def test_none_of_those_that_are_stopped_together_begins_where_another_has_ended(
    stop: Callable[[Crew], None],
) -> None:
    settings = SimpleNamespace(timeout=None, retries=Retry())
    task = SimpleNamespace(settings=settings, executor="thread")
    works: list[Work] = []
    began: list[bool] = []

    def interrupt(*_: object) -> None:
        began.extend(work.begin_once() for work in works)  # as a thread does that has become free

    async def look() -> None:
        around: Any = SimpleNamespace()
        crew = Crew(around, lambda _: task, lambda _: None, lambda _: None, Stream(), 2, 5, 1)
        threads: Any = SimpleNamespace(start=works.append, interrupt=interrupt)
        crew.executors["thread"] = threads
        crew.hand_over([claim(1), claim(2)])
        await asyncio.sleep(0)
        stop(crew)

    asyncio.run(look())
    assert began == [False] * 4
