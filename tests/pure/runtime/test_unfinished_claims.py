"""runtime/executors/dispatcher: claims that the dispatcher will never finish, or cannot begin, are reported."""

import asyncio
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from penstock import Penstock
from penstock.queue.jobs import Attempt, Claim
from penstock.runtime.executors import start_pause
from penstock.runtime.executors.dispatcher import Dispatcher
from penstock.runtime.executors.executor_set import ExecutorSet
from penstock.runtime.executors.job_work import work_maker
from penstock.runtime.executors.prefetch import JobPrefetch
from penstock.runtime.executors.work import Work
from penstock.telemetry.events import PlaceFreed, Stream
from penstock.values.outcome import REJECTED_DELAY, Returned
from penstock.values.retry import Retry
from tests.refused import no_threads
from tests.waiting import until


def crew_of(
    task: Any,
    limit: int,
    finished: Callable[[Attempt], None] = lambda _: None,
    lost: Callable[[Any], None] = lambda _: None,
    stream: Stream | None = None,
) -> Dispatcher[Claim, Attempt]:
    around: Any = SimpleNamespace()
    executors = ExecutorSet(around, stream or Stream(), Penstock, 1)
    make = work_maker(lambda _: task, finished)
    return Dispatcher(executors, make, finished, lost, stream or Stream(), JobPrefetch(limit, 5))


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
    task = SimpleNamespace(settings=settings, middleware=(), executor="async", function=hang, codec=None)

    async def look() -> None:
        crew = crew_of(task, 1, lost=lambda work: forgotten.append(work.claim))
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
    monkeypatch.setattr(start_pause, "time", SimpleNamespace(monotonic=lambda: now))
    settings = SimpleNamespace(timeout=None, retries=Retry())
    task = SimpleNamespace(settings=settings, middleware=(), executor="thread")

    async def look() -> None:
        nonlocal now
        crew = crew_of(task, 2, given_back.append)
        room = crew.room()
        with no_threads("penstock-handler", times=3):
            crew.hand_over([claim(1), claim(2), claim(3)])
            await asyncio.sleep(0)
        assert [attempt.outcome.delay for attempt in given_back] == [REJECTED_DELAY] * 3
        assert (crew.busy, crew.paused_executors) == (0, {"thread"})
        assert crew.room() == room, "for tasks of other executors"
        now += REJECTED_DELAY
        assert (crew.paused_executors, crew.room()) == (set(), room)
        for pause in (2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0):
            with no_threads("penstock-handler", times=1):
                crew.hand_over([claim(1)])
                await asyncio.sleep(0)
            assert given_back[-1].outcome.delay == pause, "as long as that goes on, each waits longer"
            now += pause

    asyncio.run(look())


@pytest.mark.parametrize("stop", [Dispatcher.give_back_running, Dispatcher.abandon_all])
def test_none_of_those_that_are_stopped_together_begins_where_another_has_ended(
    stop: Callable[[Dispatcher[Any, Any]], None],
) -> None:
    settings = SimpleNamespace(timeout=None, retries=Retry())
    task = SimpleNamespace(settings=settings, middleware=(), executor="thread")
    works: list[Work] = []
    began: list[bool] = []

    def interrupt(*_: object) -> None:
        began.extend(work.begin_once() for work in works)  # as a thread does that has become free

    async def look() -> None:
        crew = crew_of(task, 2)
        threads: Any = SimpleNamespace(start=works.append, interrupt=interrupt)
        crew.executors["thread"] = threads
        crew.hand_over([claim(1), claim(2)])
        await asyncio.sleep(0)
        stop(crew)

    asyncio.run(look())
    assert began == [False] * 4


@pytest.mark.parametrize("told", [False, True])
def test_a_place_that_is_taken_by_nothing_is_freed_and_named(told: bool) -> None:
    """However that came about: an executor that has lost a work, before or after it has said what came of it."""
    finished: list[Attempt] = []
    stream, freed = Stream(), list[PlaceFreed]()
    stream.on(PlaceFreed, freed.append)
    settings = SimpleNamespace(timeout=None, retries=Retry(max=0))
    task = SimpleNamespace(settings=settings, middleware=(), executor="thread")
    lost: list[Work] = []

    async def look() -> None:
        crew = crew_of(task, 1, finished.append, stream=stream)
        threads: Any = SimpleNamespace(start=lost.append, has=lambda _: False)
        crew.executors["thread"] = threads
        crew.hand_over([claim(1), claim(2)])
        await asyncio.sleep(0)
        if told:
            crew.done_elsewhere(lost[0], Returned("1"))
            await asyncio.sleep(0)
        crew.free_lost()
        assert not freed, "it may only be on its way"
        assert len(lost) == 1
        crew.free_lost()
        assert [event.job_id for event in freed] == ["job-1"]
        assert len(lost) == 2, "the next has its place"
        assert (len(crew.active), crew.overdue) == (1, 0)

    asyncio.run(look())
    assert [str(attempt.outcome.status) for attempt in finished] == ["succeeded" if told else "failed"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_dies_with_its_work_leaves_no_place_taken() -> None:
    finished: list[Attempt] = []
    stream, freed = Stream(), list[PlaceFreed]()
    stream.on(PlaceFreed, freed.append)
    settings = SimpleNamespace(timeout=None, retries=Retry(max=0))
    task = SimpleNamespace(
        settings=settings, middleware=(), executor="thread", function=None, codec=None, host=None
    )

    def end_the_thread(_: Work) -> None:
        sys.exit()

    async def look() -> None:
        crew = crew_of(task, 1, finished.append, stream=stream)
        threads: Any = crew.executors["thread"]
        threads._work_on = lambda _: None
        crew.vacate = end_the_thread  # type: ignore[method-assign, assignment]
        crew.hand_over([claim(1)])
        await until(lambda: crew.active and not any(map(threads.has, crew.active.values())))
        crew.free_lost()
        crew.free_lost()
        assert (crew.busy, crew.overdue, len(freed)) == (0, 0, 1)

    asyncio.run(look())
    assert [str(attempt.outcome.status) for attempt in finished] == ["failed"]
