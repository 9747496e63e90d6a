"""runtime/executors/prefetch: how many rows a process takes ahead: low and high marks, by how long handlers take."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, Table

from penstock import Penstock
from penstock.reconcile.columns import EPOCH, reconcilable_columns
from penstock.reconcile.item import Claimed, Item
from penstock.reconcile.outcome import VisitKind, VisitOutcome
from penstock.reconcile.reconciler import Reconciler
from penstock.runtime.executors.dispatcher import Dispatcher
from penstock.runtime.executors.executor_set import ExecutorSet
from penstock.runtime.executors.work import Interruption
from penstock.runtime.reconcilers.runner import row_dispatcher
from penstock.telemetry.events import PlaceFreed, Stream
from tests.refused import no_threads
from tests.waiting import until

table = Table("things", MetaData(), Column("id", Integer, primary_key=True), *reconcilable_columns())


async def hang(item: Any) -> None:
    await asyncio.Event().wait()


def item(number: int) -> Item:
    claim = Claimed((number,), 1, EPOCH, EPOCH, 0)
    return Item("hang", RECONCILER.target, object(), claim, (), 0.0)


RECONCILER = Reconciler(hang, table, workers=4, prefetch=8, name="hang")


@pytest.fixture
def ended() -> list[VisitOutcome]:
    return []


Crew = Dispatcher[Item, VisitOutcome]


def crew_of(reconciler: Reconciler, ended: list[VisitOutcome], stream: Stream | None = None) -> Crew:
    around: Any = SimpleNamespace()
    executors = ExecutorSet(around, stream or Stream(), Penstock, 1)
    return row_dispatcher(reconciler, executors, ended.append, lambda _: None, stream or Stream())


async def crew_with(count: int, average: float, ended: list[VisitOutcome]) -> Crew:
    crew = crew_of(RECONCILER, ended)
    crew.average = average
    crew.hand_over([item(number) for number in range(count)])
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return crew


@pytest.mark.parametrize(
    ("held", "average", "room"),
    [
        (0, 0.001, 12),  # short handlers: the workers and as many again as are done in a turn
        (0, 1.0, 4),  # long ones: no row waits here that could be worked on elsewhere
        (4, 1.0, 0),
        (3, 1.0, 1),
    ],
)
def test_room(held: int, average: float, room: int, ended: list[VisitOutcome]) -> None:
    async def look() -> int:
        return (await crew_with(held, average, ended)).room()

    assert asyncio.run(look()) == room


def test_refilled_only_when_half_of_what_waits_is_gone(ended: list[VisitOutcome]) -> None:
    async def look() -> list[int]:
        crew = await crew_with(12, 0.001, ended)
        for one in crew.active.values():
            one.began += 3600  # they have only just begun
        rooms = []
        while crew.waiting:
            rooms.append(crew.room())
            crew.waiting.popleft()
        return rooms

    assert asyncio.run(look()) == [0, 0, 0, 0, 4, 5, 6, 7]


def test_rows_that_would_wait_long_are_given_back(ended: list[VisitOutcome]) -> None:
    async def look() -> None:
        crew = await crew_with(8, 0.001, ended)
        for one in crew.active.values():
            one.began -= 10
        crew.give_back_surplus()
        assert len(crew.waiting) == 0
        assert [end.kind for end in ended] == [VisitKind.RELEASED] * 4

    asyncio.run(look())


def test_what_has_not_begun_can_be_given_back(ended: list[VisitOutcome]) -> None:
    async def look() -> None:
        crew = await crew_with(6, 0.001, ended)
        crew.give_back_waiting()
        assert (len(crew.active), len(crew.waiting)) == (4, 0)
        assert [end.kind for end in ended] == [VisitKind.RELEASED] * 2

    asyncio.run(look())
    assert {end.kind for end in ended} == {VisitKind.RELEASED}, (
        "a handler that ends with its loop is no error of the row"
    )


def test_what_a_turn_under_way_still_brings_goes_back_too(ended: list[VisitOutcome]) -> None:
    async def look() -> None:
        crew = await crew_with(0, 0.001, ended)
        crew.give_back_waiting()
        crew.hand_over([item(7)])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (len(crew.active), len(crew.waiting), crew.busy) == (0, 0, 0)

    asyncio.run(look())
    assert [end.kind for end in ended] == [VisitKind.RELEASED]


def test_a_handler_that_is_stopped_before_its_first_step_gives_its_row_back(
    ended: list[VisitOutcome],
) -> None:
    async def look() -> None:
        crew = crew_of(RECONCILER, ended)
        crew.coming.extend([item(1), item(2)])
        crew._accept()  # tasks are made, and have not run yet
        crew.interrupt({next(iter(crew.active))}, Interruption.LOST)
        crew.give_back_running()
        await asyncio.sleep(0.01)
        assert crew.busy == 0

    asyncio.run(look())
    assert [end.kind for end in ended] == [VisitKind.RELEASED]


def test_a_handler_that_will_not_end_does_not_keep_its_row(ended: list[VisitOutcome]) -> None:
    async def stubborn(item: Any) -> None:
        while True:
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                continue
            return

    async def look() -> None:
        crew = crew_of(Reconciler(stubborn, table, name="stubborn"), ended)
        crew.coming.extend([item(1)])
        crew._accept()
        await asyncio.sleep(0)
        crew.give_back_running()
        await asyncio.sleep(0)
        assert ended == []
        crew.give_up_running()
        await asyncio.sleep(0.1)

    asyncio.run(look())
    assert [end.kind for end in ended] == [VisitKind.RELEASED], "and is not heard any more when it ends"


def test_a_row_that_is_lost_while_it_waits_never_begins(ended: list[VisitOutcome]) -> None:
    async def look() -> None:
        crew = await crew_with(6, 0.001, ended)
        first, second = crew.waiting
        first.key.lose()  # type: ignore[attr-defined]  # known to the row itself only
        crew.interrupt({second.key}, Interruption.LOST)
        crew.interrupt({next(iter(crew.active))}, Interruption.RELEASED)
        await until(lambda: len(crew.active) == 3)
        assert not crew.waiting
        assert (first.started, second.started) == (False, False)

    asyncio.run(look())


def test_a_row_whose_holders_keep_dying_is_not_begun(ended: list[VisitOutcome]) -> None:
    async def look() -> None:
        crew = await crew_with(0, 0.001, ended)
        often, once = item(1), item(2)
        often.claim = replace(often.claim, crashes=11, taken_over=True)
        once.claim = replace(once.claim, crashes=1, taken_over=True)
        crew.hand_over([often, once])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert list(crew.active) == [once]
        assert [(end.item, end.kind, end.crashes) for end in ended] == [(often, VisitKind.CRASHED, 11)]

    asyncio.run(look())


@pytest.mark.parametrize(
    ("why", "kinds"),
    [("released", [VisitKind.RELEASED]), ("lost", []), ("timed out", [VisitKind.TIMED_OUT])],
)
def test_what_a_handler_raises_while_it_is_stopped_is_no_error_of_the_row(
    ended: list[VisitOutcome], why: str, kinds: list[VisitKind]
) -> None:
    async def clumsy(item: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ConnectionError("the tidying up failed")

    timeout = 0.01 if why == "timed out" else None
    reconciler = Reconciler(clumsy, table, name="clumsy", timeout=timeout)

    async def look() -> None:
        crew = crew_of(reconciler, ended)
        crew.coming.extend([item(1)])
        crew._accept()
        await asyncio.sleep(0)
        if why == "released":
            crew.give_back_running()
        elif why == "lost":
            crew.interrupt({next(iter(crew.active))}, Interruption.LOST)
        await until(lambda: crew.busy == 0)

    asyncio.run(look())
    assert [end.kind for end in ended] == kinds


def test_a_place_of_a_row_that_is_taken_by_nothing_is_freed_and_named(ended: list[VisitOutcome]) -> None:
    stream, freed = Stream(), list[PlaceFreed]()
    stream.on(PlaceFreed, freed.append)

    def nothing(item: Any) -> None: ...

    async def look() -> None:
        crew = crew_of(Reconciler(nothing, table, name="nothing", workers=1), ended, stream)
        lost: list[object] = []
        threads: Any = SimpleNamespace(
            start=lost.append, has=lambda _: False
        )  # begins nothing, and says nothing
        crew.executors["thread"] = threads
        crew.coming.extend([item(1)])
        crew._accept()
        crew.free_lost()
        assert not freed
        crew.free_lost()
        assert (len(lost), len(freed), crew.busy) == (1, 1, 0)

    asyncio.run(look())
    assert [end.kind for end in ended] == [VisitKind.ERRORED]


@pytest.mark.parametrize("kind", ["async", "thread"])
def test_a_row_whose_every_way_out_raises_gets_an_end(ended: list[VisitOutcome], kind: str) -> None:
    def give_up(_: Any) -> None:
        raise SystemExit(3)

    def in_thread(item: Any) -> None:
        raise ValueError("no")

    async def on_loop(item: Any) -> None:
        raise ValueError("no")

    handler = on_loop if kind == "async" else in_thread

    async def look() -> None:
        made = Reconciler(handler, table, name="hopeless", max_attempts=1, on_exhausted=give_up)
        crew = crew_of(made, ended)
        crew.coming.extend([item(1)])
        crew._accept()
        # A thread frees its place before it tells the end.
        await until(lambda: crew.busy == 0 and bool(ended))

    asyncio.run(look())
    assert [(end.kind, end.failure.type if end.failure else None) for end in ended] == [
        (VisitKind.ERRORED, "SystemExit")
    ]


def test_a_row_for_which_there_is_no_thread_is_given_back_and_no_other_is_fetched(
    ended: list[VisitOutcome],
) -> None:
    def nothing(item: Any) -> None: ...

    async def look() -> None:
        crew = crew_of(Reconciler(nothing, table, name="nothing"), ended)
        assert crew.room() > 0
        with no_threads("penstock-handler", times=1):
            crew.coming.extend([item(1)])
            crew._accept()
        assert (crew.busy, crew.room()) == (0, 0)

    asyncio.run(look())
    assert [end.kind for end in ended] == [VisitKind.RELEASED]
