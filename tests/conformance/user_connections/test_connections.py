"""database/user/connections: Transactional enqueue: on the caller's connection, whatever kind it is, a job is there
if and only if they commit.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from typing import Any

import psycopg
import pymysql
import pytest
from psycopg.rows import dict_row
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from penstock import Penstock
from penstock.errors import ConfigurationError
from penstock.task import Task
from penstock.testing import drain
from tests.conformance.rows import count
from tests.optional import asyncpg

Send = Task[[int], int]


@pytest.fixture
def send(app: Penstock) -> Send:
    @app.task
    def send(order: int) -> int:
        return order * 2

    app.prepare()
    return send


def check(app: Penstock, send: Send, connection: Any, commit: Callable[[], object], rollback: Any) -> None:
    """One rolled back, one committed, with and without key; only what was committed is there."""
    send.options(connection=connection).enqueue(1)
    send.options(connection=connection, key="a").enqueue(1)
    rollback()
    assert count(app, "jobs") == 0
    plain = send.options(connection=connection).enqueue(2)
    keyed = send.options(connection=connection, key="a").enqueue(3)
    assert send.options(connection=connection, key="a").enqueue(4) == keyed
    delayed = send.options(connection=connection, delay=60).enqueue(5)
    many = send.options(connection=connection).enqueue_many([(6,), (7,)])
    commit()
    assert drain(app) == 4
    assert [job.result(timeout=0) for job in (plain, keyed, *many)] == [4, 6, 12, 14]
    assert delayed.status == "scheduled"
    assert send.options(key="a").enqueue(8) == keyed


def sqlalchemy_url(url: str, driver: str | None = None) -> str:
    drivers = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql", "sqlite": "sqlite"}
    if driver == "postgresql+asyncpg":
        pytest.importorskip("asyncpg", reason="asyncpg is not installed")
    made = make_url(url)
    return made.set(drivername=driver or drivers[made.get_backend_name()]).render_as_string(False)


def test_a_sqlalchemy_session(app: Penstock, send: Send, database_url: str) -> None:
    engine = create_engine(sqlalchemy_url(database_url))
    with Session(engine) as session:
        check(app, send, session, session.commit, session.rollback)
    engine.dispose()


def test_a_sqlalchemy_connection(app: Penstock, send: Send, database_url: str) -> None:
    engine = create_engine(sqlalchemy_url(database_url))
    with engine.connect() as connection:
        check(app, send, connection, connection.commit, connection.rollback)
    engine.dispose()


def test_a_session_with_writes_of_its_own(app: Penstock, send: Send, database_url: str) -> None:
    engine = create_engine(sqlalchemy_url(database_url))
    with Session(engine) as session:
        session.execute(text("CREATE TABLE orders (id INTEGER PRIMARY KEY)"))
        session.commit()
        session.execute(text("INSERT INTO orders VALUES (1)"))
        job = send.options(connection=session).enqueue(1)
        session.commit()
        session.execute(text("INSERT INTO orders VALUES (2)"))
        send.options(connection=session).enqueue(2)
        session.rollback()
        assert session.scalar(text("SELECT count(*) FROM orders")) == 1
    engine.dispose()
    assert drain(app) == 1
    assert job.status == "succeeded"


def test_a_savepoint_takes_its_jobs_with_it(app: Penstock, send: Send, database_url: str) -> None:
    if database_url.startswith("sqlite"):
        pytest.skip("Python's sqlite3 driver opens no transaction before a SAVEPOINT")
    engine = create_engine(sqlalchemy_url(database_url))
    with Session(engine) as session:
        kept = send.options(connection=session).enqueue(1)
        nested = session.begin_nested()
        send.options(connection=session).enqueue(2)
        nested.rollback()
        session.commit()
    engine.dispose()
    assert drain(app) == 1
    assert kept.status == "succeeded"


@contextmanager
def native(url: str, plain_rows: bool) -> Iterator[Any]:
    parts = make_url(url)
    kind = parts.get_backend_name()
    if kind == "postgresql":
        with psycopg.connect(url, **({} if plain_rows else {"row_factory": dict_row})) as connection:  # type: ignore[arg-type]
            yield connection
    elif kind == "mysql":
        cursor = pymysql.cursors.Cursor if plain_rows else pymysql.cursors.DictCursor
        where: Any = {
            "host": parts.host,
            "port": parts.port,
            "user": parts.username,
            "database": parts.database,
        }
        with pymysql.connect(cursorclass=cursor, **where) as connection:
            yield connection
    else:
        with closing(sqlite3.connect(str(parts.database))) as connection:
            connection.row_factory = None if plain_rows else sqlite3.Row
            yield connection


def lives_in_its_snapshot(connection: Any) -> bool:
    if not isinstance(connection, pymysql.Connection):
        return False
    with connection.cursor() as cursor:
        cursor.execute("SHOW VARIABLES LIKE 'innodb_snapshot_isolation'")
        return bool(cursor.fetchone() == ("innodb_snapshot_isolation", "ON"))


@pytest.mark.parametrize("plain_rows", [True, False])
def test_the_drivers_own_connection(app: Penstock, send: Send, database_url: str, plain_rows: bool) -> None:
    with native(database_url, plain_rows) as connection:
        check(app, send, connection, connection.commit, connection.rollback)


def test_a_key_taken_after_the_callers_snapshot_is_still_seen(
    app: Penstock, send: Send, database_url: str
) -> None:
    """MySQL's default isolation shows the caller the past; the key must be looked up in the present.

    MariaDB from 11.6 on wants a transaction that meets what is newer than its own past to be begun again.
    """
    with native(database_url, True) as connection:
        connection.cursor().execute(f"SELECT count(*) FROM {app.database.qualified('job_keys')}")
        first = send.options(key="a").enqueue(1)
        if lives_in_its_snapshot(connection):
            with pytest.raises(pymysql.err.OperationalError, match="try restarting transaction"):
                send.options(key="a", connection=connection).enqueue(2)
            connection.rollback()
        assert send.options(key="a", connection=connection).enqueue(2) == first
        connection.commit()
    assert count(app, "jobs") == 1


def test_a_sync_connection_from_the_async_door(app: Penstock, send: Send, database_url: str) -> None:
    async def main(connection: Any) -> None:
        job = await send.options(connection=connection).enqueue_async(4)
        await send.options(connection=connection).enqueue_many_async([(5,)])
        connection.commit()
        assert await job.status_async() == "available"

    with native(database_url, True) as connection:
        asyncio.run(main(connection))
    assert drain(app) == 2


async def check_async(app: Penstock, send: Send, connection: Any, commit: Any, rollback: Any) -> None:
    await send.options(connection=connection).enqueue_async(1)
    await rollback()
    assert count(app, "jobs") == 0
    await send.options(connection=connection).enqueue_async(2)
    keyed = await send.options(connection=connection, key="a").enqueue_async(3)
    assert await send.options(connection=connection, key="a").enqueue_async(4) == keyed
    await send.options(connection=connection, delay=60).enqueue_async(5)
    await send.options(connection=connection).enqueue_many_async([(6,), (7,)])
    with pytest.raises(ConfigurationError, match="use enqueue_async"):
        send.options(connection=connection).enqueue(1)
    await commit()
    assert count(app, "jobs") == 5


@pytest.fixture
def postgres(app_on: Callable[..., Penstock], postgres_url: str) -> tuple[Penstock, Send, str]:
    app = app_on(postgres_url)

    @app.task
    def send(order: int) -> int:
        return order * 2

    app.prepare()
    return app, send, postgres_url


@pytest.mark.parametrize("driver", ["postgresql+asyncpg", "postgresql+psycopg"])
@pytest.mark.parametrize("kind", ["session", "connection"])
def test_sqlalchemys_async_twins(postgres: tuple[Penstock, Send, str], driver: str, kind: str) -> None:
    app, send, url = postgres

    async def main() -> None:
        engine = create_async_engine(sqlalchemy_url(url, driver))
        async with AsyncSession(engine) if kind == "session" else engine.connect() as connection:
            await check_async(app, send, connection, connection.commit, connection.rollback)
        await engine.dispose()

    asyncio.run(main())
    assert drain(app) == 4


def test_psycopgs_async_connection(postgres: tuple[Penstock, Send, str]) -> None:
    app, send, url = postgres

    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            await check_async(app, send, connection, connection.commit, connection.rollback)

    asyncio.run(main())
    assert drain(app) == 4


@asynccontextmanager
async def asyncpg_connection(url: str) -> AsyncIterator[tuple[Any, Any, Any]]:
    """With a transaction to roll back, which opens the next one, and that one's commit."""
    connection = await asyncpg.connect(url)
    transactions = [connection.transaction(), connection.transaction()]
    await transactions[0].start()

    async def rollback() -> None:
        await transactions[0].rollback()
        await transactions[1].start()

    yield connection, transactions[1].commit, rollback
    await connection.close()


def test_asyncpg(postgres: tuple[Penstock, Send, str]) -> None:
    app, send, url = postgres

    async def main() -> None:
        async with asyncpg_connection(url) as (connection, commit, rollback):
            await check_async(app, send, connection, commit, rollback)

    asyncio.run(main())
    assert drain(app) == 4


def test_a_connection_out_of_asyncpgs_pool(postgres: tuple[Penstock, Send, str]) -> None:
    app, send, url = postgres

    async def main() -> None:
        pool = await asyncpg.create_pool(url, min_size=1, max_size=1)
        async with pool.acquire() as connection, connection.transaction():
            await send.options(connection=connection).enqueue_async(1)
        await pool.close()

    asyncio.run(main())
    assert drain(app) == 1


def test_what_is_no_connection_is_refused(app: Penstock, send: Send) -> None:
    for wrong in (object(), "postgresql://localhost/shop", create_engine("sqlite://")):
        with pytest.raises(ConfigurationError, match="Pass a SQLAlchemy Session"):
            send.options(connection=wrong).enqueue(1)
    assert count(app, "jobs") == 0


def test_a_connection_to_another_kind_of_database_is_refused(app: Penstock, send: Send) -> None:
    others = {
        "sqlite": "mysql+pymysql://ann@127.0.0.1:1/shop",
        "mysql": "sqlite://",
        "postgresql": "sqlite://",
    }
    session = Session(create_engine(others[app.database.dialect.name]))
    with session, pytest.raises(ConfigurationError, match="but the app's database is"):
        send.options(connection=session).enqueue(1)


@pytest.mark.parametrize("kind", ["session", "driver"])
def test_a_connection_to_where_the_tables_are_not_is_refused(
    app: Penstock, send: Send, empty_database_url: str, kind: str
) -> None:
    engine = create_engine(sqlalchemy_url(empty_database_url))
    opened: Any = Session(engine) if kind == "session" else native(empty_database_url, plain_rows=True)
    with opened as connection, pytest.raises(ConfigurationError, match="the app's own database"):
        send.options(connection=connection).enqueue(1)
    engine.dispose()
