"""database/user/connections: a connection that commits every statement by itself: what is enqueued on it is still
written whole or not at all.
"""

import asyncio
import dataclasses
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pymysql
import pytest
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from penstock import Penstock
from penstock.database.user import connections
from penstock.task import Task
from penstock.testing import drain
from tests.conformance.faults import failing_at
from tests.conformance.rows import TABLES, count
from tests.optional import asyncpg

Send = Task[[int], int]


class Broken(Exception):
    pass


@contextmanager
def autocommitting(url: str) -> Iterator[Any]:
    parts = make_url(url)
    if parts.get_backend_name() == "postgresql":
        with psycopg.connect(url, autocommit=True) as connection:
            yield connection
    elif parts.get_backend_name() == "mysql":
        where: Any = {
            "host": parts.host,
            "port": parts.port,
            "user": parts.username,
            "database": parts.database,
        }
        with pymysql.connect(autocommit=True, **where) as connection:
            yield connection
    else:
        with closing(sqlite3.connect(str(parts.database), isolation_level=None)) as connection:
            yield connection


@contextmanager
def engine_for(url: str, **options: Any) -> Iterator[Engine]:
    drivers = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}
    parts = make_url(url)
    engine = create_engine(parts.set(drivername=drivers.get(parts.get_backend_name(), "sqlite")), **options)
    yield engine
    engine.dispose()


def declare(app: Penstock) -> Send:
    @app.task
    def send(order: int) -> int:
        return order

    app.prepare()
    return send


def test_it_is_whole_or_nothing(app: Penstock, database_url: str) -> None:
    send = declare(app)
    with autocommitting(database_url) as connection:
        bound = send.options(connection=connection, key="a")
        with failing_at("enqueue.3", Broken()), pytest.raises(Broken):
            bound.enqueue(1)
        assert {count(app, table) for table in TABLES} == {0}
        job = bound.enqueue(2)
        assert job.status == "available"
    assert drain(app) == 1


@pytest.mark.parametrize("kind", ["connection", "session"])
def test_it_is_so_through_sqlalchemy_too(app: Penstock, database_url: str, kind: str) -> None:
    """A key without its job would be work that is lost: a caller that gives it again is told that the job is there."""
    send = declare(app)
    with engine_for(database_url, isolation_level="AUTOCOMMIT") as engine, engine.connect() as connection:
        bound = send.options(connection=connection if kind == "connection" else Session(connection), key="a")
        with failing_at("enqueue.3", Broken()), pytest.raises(Broken):
            bound.enqueue(1)
        assert {count(app, table) for table in TABLES} == {0}
        assert bound.enqueue(2).status == "available"
        connection.exec_driver_sql("BEGIN")
        send.options(connection=connection).enqueue(3)
        connection.exec_driver_sql("ROLLBACK")
    assert drain(app) == 1


def break_off(monkeypatch: pytest.MonkeyPatch, verb: str, done: bool, error: type[BaseException]) -> None:
    """Have the caller cancelled, or interrupted, when the transaction begins or ends; whether or not that was done."""
    recognize = connections.recognize

    def recognized(connection: Any) -> connections.CallerConnection:
        theirs = recognize(connection)
        assert theirs.alone is not None
        act = getattr(theirs.alone, verb)

        def break_it_off() -> None:
            if done:
                act()
            raise error

        return dataclasses.replace(theirs, alone=theirs.alone._replace(**{verb: break_it_off}))

    monkeypatch.setattr(connections, "recognize", recognized)


MOMENTS = pytest.mark.parametrize(
    ("verb", "done", "written"),
    [("begin", False, 0), ("begin", True, 0), ("commit", False, 0), ("commit", True, 1)],
)


@MOMENTS
def test_who_is_interrupted_is_not_left_in_a_transaction(
    app: Penstock, database_url: str, monkeypatch: pytest.MonkeyPatch, verb: str, done: bool, written: int
) -> None:
    """What the caller does next on the connection would never be committed."""
    send = declare(app)
    with autocommitting(database_url) as connection:
        bound = send.options(connection=connection)
        break_off(monkeypatch, verb, done, KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt):
            bound.enqueue(1)
        monkeypatch.undo()
        assert count(app, "jobs") == written
        assert connections.recognize(connection).alone is not None
        bound.enqueue(2)
        assert count(app, "jobs") == written + 1


def test_a_transaction_the_caller_has_opened_is_theirs(app: Penstock, database_url: str) -> None:
    send = declare(app)
    with autocommitting(database_url) as connection:
        connection.cursor().execute("BEGIN")
        send.options(connection=connection).enqueue(1)
        assert count(app, "jobs") == 0
        connection.cursor().execute("ROLLBACK")
    assert count(app, "jobs") == 0


async def connected(driver: str, url: str) -> Any:
    if driver == "asyncpg":
        return await asyncpg.connect(url)
    return await psycopg.AsyncConnection.connect(url, autocommit=True)


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_async_drivers(app_on: Callable[..., Penstock], postgres_url: str, driver: str) -> None:
    app = app_on(postgres_url)
    send = declare(app)

    async def main() -> None:
        connection = await connected(driver, postgres_url)
        bound = send.options(connection=connection, key="a")
        with failing_at("enqueue.3", Broken()), pytest.raises(Broken):
            await bound.enqueue_async(1)
        assert {count(app, table) for table in TABLES} == {0}
        await bound.enqueue_async(2)
        await connection.close()

    asyncio.run(main())
    assert drain(app) == 1


@MOMENTS
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_who_is_cancelled_is_not_left_in_a_transaction(
    app_on: Callable[..., Penstock],
    postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
    driver: str,
    verb: str,
    done: bool,
    written: int,
) -> None:
    app = app_on(postgres_url)
    send = declare(app)

    async def main() -> None:
        connection = await connected(driver, postgres_url)
        bound = send.options(connection=connection)
        break_off(monkeypatch, verb, done, asyncio.CancelledError)
        with pytest.raises(asyncio.CancelledError):
            await bound.enqueue_async(1)
        monkeypatch.undo()
        assert count(app, "jobs") == written
        assert connections.recognize(connection).alone is not None
        await bound.enqueue_async(2)
        await connection.close()

    asyncio.run(main())
    assert count(app, "jobs") == written + 1


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_sqlalchemys_async_twins(app_on: Callable[..., Penstock], postgres_url: str, driver: str) -> None:
    app = app_on(postgres_url)
    send = declare(app)

    async def main() -> None:
        url = make_url(postgres_url).set(drivername=f"postgresql+{driver}")
        engine = create_async_engine(url, isolation_level="AUTOCOMMIT")
        async with AsyncSession(engine) as session:
            bound = send.options(connection=session, key="a")
            with failing_at("enqueue.3", Broken()), pytest.raises(Broken):
                await bound.enqueue_async(1)
            assert {count(app, table) for table in TABLES} == {0}
            assert (await bound.enqueue_async(2)).status == "available"
        await engine.dispose()

    asyncio.run(main())
    assert drain(app) == 1


def test_who_begins_by_an_event_is_in_a_transaction(app_on: Callable[..., Penstock], sqlite_url: str) -> None:
    """As SQLAlchemy's own recipe for SQLite has it: to the driver, every statement stands alone."""
    app = app_on(sqlite_url)
    send = declare(app)
    with engine_for(sqlite_url) as engine:
        event.listen(engine, "connect", lambda driver, _: setattr(driver, "isolation_level", None))
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
        with engine.connect() as connection:
            send.options(connection=connection).enqueue(1)
        assert count(app, "jobs") == 0
        with engine.begin() as connection:
            send.options(connection=connection).enqueue(1)
    assert drain(app) == 1
