"""reconcile: failures of the system that this replaces, each by its number, and why it cannot happen here.

Those about related rows are in test_related.py: #3704, #3741, #3580, #3886, #4120 and #3471.
"""

import asyncio
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text, update

from penstock import Penstock
from penstock.reconcile.events import RowSettled
from penstock.runtime.worker import Worker
from penstock.testing import travel
from penstock.testing.drain_rows import ManualReconciler
from tests.conformance.embedded import beside_a_worker
from tests.conformance.reconcile.apply.test_apply import heard
from tests.conformance.reconcile.cloud import Cloud, Volume, declare, ids
from tests.waiting import eventually, until

Hands = Callable[..., ManualReconciler]
AppOn = Callable[..., Penstock]


def test_3828_and_3922_a_request_does_not_wait_for_the_interval(
    app: Penstock, cloud: Cloud, hand: Hands
) -> None:
    """The interval added up to fourteen seconds to every change: a request is for now, also during a visit."""
    cloud.volumes(2)
    mine = hand(declare(app, Volume, every=3600))
    mine.visit()
    app.hint(Volume, 1)
    (item,) = mine.take()
    app.hint(Volume, 1)
    mine.finish(mine.end(item))
    assert ids(mine.take()) == [1], "and is not used up by the visit that was under way"


def test_3719_every_state_has_its_own_interval(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    """One interval was not enough: what is steady was visited as often as what was under way."""
    cloud.add(Volume, {"id": 1, "status": "starting"}, {"id": 2, "status": "running"})
    mine = hand(declare(app, Volume, every={"starting": 60, "running": 1200}))
    assert mine.visit() == 2
    with travel(app, 100):
        assert ids(mine.take()) == [1]
    with travel(app, 1300):
        assert 2 in ids(mine.take())


def test_3736_nothing_belongs_to_the_loop_of_the_import(app: Penstock, cloud: Cloud) -> None:
    """Primitives made at import belonged to a loop that did not run: here one declaration serves any number of
    loops."""

    async def provision(item: Any) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"status": "active"}

    declare(app, Volume, provision, where=Volume.status == "submitted")
    for number in (1, 2):
        cloud.add(Volume, {"id": number})

        async def live(_: Worker, number: int = number) -> None:
            await until(lambda: cloud.get(Volume, number).status == "active")

        beside_a_worker(app, live, role="reconciler")


@pytest.mark.parametrize("timeout", [None, 60])
@pytest.mark.parametrize("kind", [TimeoutError, asyncio.TimeoutError, asyncio.CancelledError])
def test_3692_a_timeout_of_the_handlers_own_is_its_error(
    app: Penstock, cloud: Cloud, timeout: float | None, kind: type[BaseException]
) -> None:
    """Which TimeoutError it was depended on the version of Python, and one of them ended the worker."""
    settled = heard(app, RowSettled)

    async def give_up(item: Any) -> None:
        raise kind("the provider took too long")

    declare(app, Volume, give_up, timeout=timeout, every=3600)
    cloud.volumes(2)

    async def live(worker: Worker) -> None:
        await until(lambda: len(settled) == 2)
        assert worker.rows.runners["give_up"].pump.alive

    beside_a_worker(app, live, role="reconciler")
    assert [event.outcome for event in settled] == ["errored", "errored"]


def test_3882_a_lock_lives_in_its_transaction_and_not_in_a_connection(
    app: Penstock, other: Penstock, cloud: Cloud, hand: Hands
) -> None:
    """A session's lock was let go on another connection of the pool, and so never: nothing outlives a transaction."""
    cloud.volumes(1)
    mine = hand(declare(app, Volume, every=0))
    for number in range(5):
        with app.lock(Volume, 1) as connection:
            connection.execute(update(Volume).values(count=number))
            app.database.engine.raw_connection().close()  # the pool hands out others meanwhile
        with other.lock(Volume, 1, timeout=5) as connection:
            connection.execute(update(Volume).values(count=Volume.count + 1))
        assert mine.visit() == 1
    with pytest.raises(ZeroDivisionError), app.lock(Volume, 1) as connection:
        _lose(connection)
    with other.lock(Volume, 1, timeout=5):
        pass
    # What tells others takes one for the length of its transaction, by itself a moment later.
    eventually(lambda: _session_locks(cloud.engine) == 0)


def _lose(connection: Connection) -> None:
    connection.invalidate()
    raise ZeroDivisionError


def _session_locks(engine: Engine) -> int:
    """Locks that belong to sessions, where a database tells."""
    if engine.dialect.name != "postgresql":
        return 0
    with engine.connect() as connection:
        held = text(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        return int(connection.execute(held).scalar_one())


def test_4291_a_statement_that_hangs_ends_and_the_reconciler_goes_on(
    make_app: AppOn, cloud: Cloud, hand: Hands
) -> None:
    """Without a time limit on statements, dead connections filled the pool."""
    app = make_app(statement_timeout=1, lock_timeout=1)
    cloud.volumes(1)
    mine = hand(declare(app, Volume), app)
    assert ids(mine.take(1)) == [1]
    with _table_locked(cloud.engine), pytest.raises(Exception) as ended:
        mine.take()
    assert app.database.is_outage(ended.value), "not the handler's fault: to be tried again"
    app.hint(Volume, 1)
    with travel(app, 31):
        assert ids(mine.take()) == [1]


@contextmanager
def _table_locked(engine: Engine) -> Any:
    """Another transaction has locked the whole table."""
    with engine.connect() as connection:
        match engine.dialect.name:
            case "postgresql":
                connection.execute(text("LOCK TABLE volumes IN ACCESS EXCLUSIVE MODE"))
            case "sqlite":
                connection.execute(update(Volume).values(count=1))
            case _:
                connection.execute(text("LOCK TABLES volumes WRITE"))
        try:
            yield
        finally:
            if engine.dialect.name in ("mysql", "mariadb"):
                connection.execute(text("UNLOCK TABLES"))
            connection.rollback()
