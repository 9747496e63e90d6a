"""reconcile/row_lock: API code and reconcilers at the same row: one at a time, fairly, and no request is lost."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import select, update

from penstock import Penstock
from penstock.errors import LockTimeout, RowNotFound
from penstock.reconcile.row_lock import RowLock
from penstock.reconcile.wakeup_subjects import table_changed
from penstock.testing import travel
from penstock.testing.drain_rows import ManualReconciler
from tests.conformance.reconcile.cloud import Cloud, Volume, declare, ids
from tests.waiting import until

Hands = Callable[..., ManualReconciler]
STOP = update(Volume).where(Volume.id == 1).values(status="terminating")


def test_a_writer_takes_a_free_row_and_the_row_is_visited_next(
    app: Penstock, cloud: Cloud, hand: Hands
) -> None:
    cloud.volumes(1)
    told: list[str] = []
    app.wakeups.listen(told.append)
    mine = hand(declare(app, Volume, every=3600))
    mine.visit()
    with app.lock(Volume, 1) as connection:
        connection.execute(STOP)
    (item,) = mine.take()
    assert item.row.status == "terminating"
    assert table_changed("volumes") in told


def test_the_same_from_async_code(app: Penstock, cloud: Cloud) -> None:
    async def write() -> None:
        async with app.lock(Volume, 1) as connection:
            result = await connection.execute(select(Volume.status).where(Volume.id == 1))
            assert result.scalar_one() == "submitted"
            await connection.execute(STOP)

    cloud.volumes(1)
    asyncio.run(write())
    assert cloud.get(Volume, 1).status == "terminating"


def test_a_block_that_raises_writes_nothing(app: Penstock, cloud: Cloud) -> None:
    cloud.volumes(1)
    before = cloud.all(Volume)
    with pytest.raises(ZeroDivisionError), app.lock(Volume, 1) as connection:
        _write_and_raise(connection)
    assert cloud.all(Volume) == before


def test_who_waits_too_long_is_told_and_leaves_no_trace(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    cloud.volumes(1)
    mine = hand(declare(app, Volume))
    (item,) = mine.take()
    with pytest.raises(LockTimeout, match="volumes 1"), app.lock(Volume, 1, timeout=0.05):
        pytest.fail("another process holds it")
    assert cloud.get(Volume, 1).lock_wanted_by is None
    mine.finish(mine.end(item))


def test_a_row_that_is_not_there(app: Penstock, cloud: Cloud) -> None:
    with pytest.raises(RowNotFound, match="volumes has no row 7"), app.lock(Volume, 7):
        pytest.fail("there is none")


def test_a_writer_waits_for_the_handler_and_gets_the_next_turn(
    app: Penstock, cloud: Cloud, hand: Hands
) -> None:
    """The handler's apply comes first, the writer's word is the last, and the reconciler does not jump the queue."""
    cloud.volumes(1)
    mine = hand(declare(app, Volume, every=0))
    (item,) = mine.take()
    seen: list[Any] = []

    def write() -> None:
        with app.lock(Volume, 1, timeout=30) as connection:
            seen.append(connection.execute(select(Volume.status)).scalar_one())
            connection.execute(STOP)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        _until_wanted(app, cloud)
        mine.finish(mine.end(item, {"status": "active"}))
        items = mine.take()
        writing.result()
    (item,) = items or mine.take()
    assert (seen, item.row.status) == (["active"], "terminating")


def _until_wanted(app: Penstock, cloud: Cloud) -> None:
    """Until the writer has announced itself: it is a thread of its own, and told by nothing else."""
    announced = threading.Event()
    for _ in range(2000):
        if cloud.get(Volume, 1).lock_wanted_by is not None:
            return
        announced.wait(0.005)
    pytest.fail("the writer never announced itself")


def test_writers_take_turns(app: Penstock, cloud: Cloud) -> None:
    cloud.volumes(1)

    async def add() -> None:
        async with app.lock(Volume, 1, timeout=30) as connection:
            count = (await connection.execute(select(Volume.count))).scalar_one()
            await connection.execute(update(Volume).values(count=count + 1))

    async def all_at_once() -> None:
        await asyncio.gather(*[add() for _ in range(10)])

    asyncio.run(all_at_once())
    assert cloud.get(Volume, 1).count == 10


def test_a_writer_that_is_cancelled_while_it_waits_has_gone_away(
    app: Penstock, cloud: Cloud, hand: Hands
) -> None:
    """A client hung up: its row is not taken for it later, and no thread waits for it."""
    cloud.volumes(1)
    mine = hand(declare(app, Volume))
    (item,) = mine.take()

    async def hang_up() -> None:
        async def write() -> None:
            async with app.lock(Volume, 1, timeout=300):
                pytest.fail("another process holds it")

        writing = asyncio.create_task(write())
        await until(lambda: cloud.get(Volume, 1).lock_wanted_by is not None)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        await until(lambda: cloud.get(Volume, 1).lock_wanted_by is None)

    asyncio.run(hang_up())
    mine.finish(mine.end(item, {"status": "active"}))
    with app.lock(Volume, 1, timeout=0.5) as connection:
        connection.execute(STOP)
    assert cloud.get(Volume, 1).status == "terminating"


def test_a_writer_that_is_cancelled_as_it_gets_the_row_lets_it_go(
    app: Penstock, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.volumes(1)
    here, go_on, take = threading.Event(), threading.Event(), RowLock._take

    def slowly(self: RowLock, *args: Any) -> bool:
        here.set()
        assert go_on.wait(30)
        return take(self, *args)

    async def hang_up() -> None:
        async def write() -> None:
            async with app.lock(Volume, 1):
                pytest.fail("it was cancelled before")

        writing = asyncio.create_task(write())
        await until(here.is_set)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing

    monkeypatch.setattr(RowLock, "_take", slowly)
    asyncio.run(hang_up())
    go_on.set()
    monkeypatch.undo()
    with app.lock(Volume, 1, timeout=5) as connection:
        connection.execute(STOP)
    assert cloud.get(Volume, 1).status == "terminating"


def test_a_writer_takes_over_from_the_dead_who_then_change_nothing(
    app: Penstock, cloud: Cloud, hand: Hands
) -> None:
    cloud.volumes(1)
    mine = hand(declare(app, Volume, lease=30))
    (item,) = mine.take()
    with travel(app, 31):
        with app.lock(Volume, 1) as connection:
            connection.execute(STOP)
        mine.finish(mine.end(item, {"status": "active", "ip": "10.0.0.1"}))
        row = cloud.get(Volume, 1)
        assert (row.status, row.ip) == ("terminating", None)
        (again,) = mine.take()
    assert again.recovered, "its reconciler still learns that a process died over it"


def test_a_hint_that_leads_nowhere_is_no_error(app: Penstock, caplog: pytest.LogCaptureFixture) -> None:
    app.hint("volumes")
    assert "leads nowhere" in caplog.text


def test_hints_for_async_callers(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    cloud.volumes(1)
    mine = hand(declare(app, Volume, every=3600))
    mine.visit()
    asyncio.run(app.hint_async(Volume, 1))
    assert ids(mine.take()) == [1]


def _write_and_raise(connection: Any) -> None:
    connection.execute(STOP)
    raise ZeroDivisionError
