"""How many rows a process takes ahead: low and high marks, by how long handlers take."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, Table

from penstock.reconcile.columns import EPOCH, reconcilable_columns
from penstock.reconcile.definition import Reconciler
from penstock.reconcile.ending import Ended, Kind
from penstock.reconcile.item import Claimed, Item
from penstock.runtime.row_crew import RowCrew
from penstock.telemetry.events import Stream
from tests.waiting import until

table = Table("things", MetaData(), Column("id", Integer, primary_key=True), *reconcilable_columns())


async def hang(item: Any) -> None:
    await asyncio.Event().wait()


def item(number: int) -> Item:
    claim = Claimed((number,), 1, EPOCH, EPOCH, 0)
    return Item("hang", RECONCILER.target, object(), claim, (), 0.0)


RECONCILER = Reconciler(hang, table, workers=4, prefetch=8, name="hang")


@pytest.fixture
def ended() -> list[Ended]:
    return []


async def crew_with(count: int, average: float, ended: list[Ended]) -> RowCrew:
    crew = RowCrew(RECONCILER, ended.append, Stream())
    crew._average = average
    crew.hand_over([item(number) for number in range(count)])
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return crew


@pytest.mark.parametrize(
    ("held", "average", "room"),
    [
        (0, 0.001, 12),  # short handlers: the workers and as many again as are done in a turn
        (0, 1.0, 4),  # long ones: nobody waits here who could be worked on elsewhere
        (4, 1.0, 0),
        (3, 1.0, 1),
    ],
)
def test_room(held: int, average: float, room: int, ended: list[Ended]) -> None:
    async def look() -> int:
        return (await crew_with(held, average, ended)).room()

    assert asyncio.run(look()) == room


def test_refilled_only_when_half_of_what_waits_is_gone(ended: list[Ended]) -> None:
    async def look() -> list[int]:
        crew = await crew_with(12, 0.001, ended)
        for one in crew.active:
            one.began += 3600  # they have only just begun
        rooms = []
        while crew.waiting:
            rooms.append(crew.room())
            crew.waiting.popleft()
        return rooms

    assert asyncio.run(look()) == [0, 0, 0, 0, 4, 5, 6, 7]


def test_a_disabled_reconciler_has_no_room(ended: list[Ended]) -> None:
    async def look() -> int:
        RECONCILER.disable()
        try:
            return (await crew_with(0, 1.0, ended)).room()
        finally:
            RECONCILER.enable()

    assert asyncio.run(look()) == 0


def test_rows_that_would_wait_long_are_given_back(ended: list[Ended]) -> None:
    async def look() -> None:
        crew = await crew_with(8, 0.001, ended)
        for one in crew.active:
            one.began -= 10
        crew.shed()
        assert len(crew.waiting) == 0
        assert [end.kind for end in ended] == [Kind.RELEASED] * 4

    asyncio.run(look())


def test_what_has_not_begun_can_be_given_back(ended: list[Ended]) -> None:
    async def look() -> None:
        crew = await crew_with(6, 0.001, ended)
        crew.give_back_waiting()
        assert (len(crew.active), len(crew.waiting)) == (4, 0)
        assert [end.kind for end in ended] == [Kind.RELEASED] * 2

    asyncio.run(look())
    assert {end.kind for end in ended} == {Kind.RELEASED}, (
        "a handler that ends with its loop is no error of the row"
    )


def test_what_a_turn_under_way_still_brings_goes_back_too(ended: list[Ended]) -> None:
    async def look() -> None:
        crew = await crew_with(0, 0.001, ended)
        crew.give_back_waiting()
        crew.hand_over([item(7)])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (len(crew.active), len(crew.waiting), crew.busy) == (0, 0, 0)

    asyncio.run(look())
    assert [end.kind for end in ended] == [Kind.RELEASED]


def test_a_handler_that_is_stopped_before_its_first_step_gives_its_row_back(ended: list[Ended]) -> None:
    async def look() -> None:
        crew = RowCrew(RECONCILER, ended.append, Stream())
        crew.coming.extend([item(1), item(2)])
        crew._accept()  # tasks are made, and have not run yet
        crew.give_back_running()
        crew.lose(next(iter(crew.active)))
        await asyncio.sleep(0.01)
        assert crew.busy == 0

    asyncio.run(look())
    assert [end.kind for end in ended] == [Kind.RELEASED]


def test_a_handler_that_will_not_end_does_not_keep_its_row(ended: list[Ended]) -> None:
    async def stubborn(item: Any) -> None:
        while True:
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                continue
            return

    async def look() -> None:
        crew = RowCrew(Reconciler(stubborn, table, name="stubborn"), ended.append, Stream())
        crew.coming.extend([item(1)])
        crew._accept()
        await asyncio.sleep(0)
        crew.give_back_running()
        await asyncio.sleep(0)
        assert ended == []
        crew.give_up_running()
        await asyncio.sleep(0.1)

    asyncio.run(look())
    assert [end.kind for end in ended] == [Kind.RELEASED], "and is not heard any more when it ends"


def test_a_row_that_is_lost_while_it_waits_never_begins(ended: list[Ended]) -> None:
    async def look() -> None:
        crew = await crew_with(6, 0.001, ended)
        first, second = crew.waiting
        first.lose()  # noticed by nobody yet but the row itself
        crew._lose(second)
        crew._vacate(next(iter(crew.active)))
        assert (len(crew.active), len(crew.waiting)) == (3, 0)
        assert {first, second}.isdisjoint(crew.active)

    asyncio.run(look())


def test_a_row_whose_holders_keep_dying_is_not_begun(ended: list[Ended]) -> None:
    async def look() -> None:
        crew = await crew_with(0, 0.001, ended)
        often, once = item(1), item(2)
        often.claim = replace(often.claim, crashes=11, taken_over=True)
        once.claim = replace(once.claim, crashes=1, taken_over=True)
        crew.hand_over([often, once])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert list(crew.active) == [once]
        assert [(end.item, end.kind, end.crashes) for end in ended] == [(often, Kind.CRASHED, 11)]

    asyncio.run(look())


@pytest.mark.parametrize(
    ("why", "kinds"),
    [("released", [Kind.RELEASED]), ("lost", []), ("timed out", [Kind.TIMED_OUT])],
)
def test_what_a_handler_raises_while_it_is_stopped_is_no_error_of_the_row(
    ended: list[Ended], why: str, kinds: list[Kind]
) -> None:
    async def clumsy(item: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ConnectionError("the tidying up failed")

    timeout = 0.01 if why == "timed out" else None
    reconciler = Reconciler(clumsy, table, name="clumsy", timeout=timeout)

    async def look() -> None:
        crew = RowCrew(reconciler, ended.append, Stream())
        crew.coming.extend([item(1)])
        crew._accept()
        await asyncio.sleep(0)
        if why == "released":
            crew.give_back_running()
        elif why == "lost":
            crew.lose(next(iter(crew.active)))
        await until(lambda: crew.busy == 0)

    asyncio.run(look())
    assert [end.kind for end in ended] == kinds
