"""database/user/connections, database/user/charsets: Transactional enqueue on connections whose owner has changed
what is sent or read: encodings, cursors, converters.
"""

import asyncio
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pymysql
import pytest
from psycopg.adapt import Loader
from pymysql.converters import conversions
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import create_async_engine

from penstock import Penstock
from penstock.errors import PenstockError
from penstock.task import Task
from penstock.testing import drain
from tests.conformance.rows import count
from tests.conformance.user_connections.test_connections import sqlalchemy_url
from tests.optional import asyncpg

Echo = Task[[str], str]
WORDS = "Ключ, 鍵 and \N{KEY}"


@pytest.fixture
def echo(app: Penstock) -> Echo:
    return declare(app)


def declare(app: Penstock) -> Echo:
    @app.task
    def echo(words: str) -> str:
        return words

    app.prepare()
    return echo


def check(app: Penstock, echo: Echo, connection: Any, commit: Callable[[], object]) -> None:
    """What was enqueued runs, with the words that were given, and its key is its own."""
    keyed = echo.options(connection=connection, key=WORDS).enqueue(WORDS)
    again = echo.options(connection=connection, key=WORDS).enqueue("another")
    many = echo.options(connection=connection).enqueue_many([(WORDS,), ("plain",)])
    commit()
    assert again == keyed
    assert echo.options(key=WORDS).enqueue("a third") == keyed
    assert drain(app) == 3
    assert [job.result(timeout=0) for job in (keyed, *many)] == [WORDS, WORDS, "plain"]


async def check_async(app: Penstock, echo: Echo, connection: Any) -> None:
    keyed = await echo.options(connection=connection, key=WORDS).enqueue_async(WORDS)
    assert await echo.options(connection=connection, key=WORDS).enqueue_async("another") == keyed
    await echo.options(connection=connection).enqueue_many_async([(WORDS,), ("plain",)])


def has_run(app: Penstock, echo: Echo) -> None:
    assert drain(app) == 3
    assert echo.options(key=WORDS).enqueue("a third").result(timeout=0) == WORDS


class Unread(Loader):
    """A row factory of a user who wants an object of their own, or none at all."""

    def load(self, data: Any) -> Any:
        return bytes(data)


def with_loaders(connection: Any) -> Any:
    for kind in ("uuid", "text", "int8", "bool"):
        connection.adapters.register_loader(kind, Unread)
    return connection


PSYCOPG: dict[str, Callable[[str], Any]] = {
    "SQL_ASCII": lambda url: psycopg.connect(url, client_encoding="sql_ascii"),
    "LATIN1": lambda url: psycopg.connect(url, client_encoding="latin1"),
    "autocommit": lambda url: psycopg.connect(url, client_encoding="sql_ascii", autocommit=True),
    "RawCursor": lambda url: psycopg.connect(url, cursor_factory=psycopg.RawCursor),
    "ClientCursor": lambda url: psycopg.connect(url, cursor_factory=psycopg.ClientCursor),
    "loaders": lambda url: with_loaders(psycopg.connect(url)),
}


@pytest.mark.parametrize("kind", PSYCOPG)
def test_psycopg(app_on: Callable[..., Penstock], postgres_url: str, kind: str) -> None:
    app = app_on(postgres_url)
    echo = declare(app)
    with PSYCOPG[kind](postgres_url) as connection:
        before = connection.info.parameter_status("client_encoding")
        check(app, echo, connection, connection.commit)
        assert connection.info.parameter_status("client_encoding") == before


def test_an_encoding_is_as_it_was_after_a_rollback(
    app_on: Callable[..., Penstock], postgres_url: str
) -> None:
    app = app_on(postgres_url)
    echo = declare(app)
    with psycopg.connect(postgres_url, client_encoding="latin1") as connection:
        echo.options(connection=connection, key="a").enqueue("a")
        connection.rollback()
        assert connection.info.encoding == "iso8859-1"
    assert count(app, "jobs") == 0


def test_a_database_without_an_encoding(app_on: Callable[..., Penstock], postgres_server: Any) -> None:
    """`initdb` under LANG=C makes them: psycopg gives every text as bytes. Key taken, no job written, nothing said."""
    with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as admin:
        admin.execute(
            "CREATE DATABASE plain ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
        )
    url = postgres_server.url("plain")
    app = app_on(url)
    echo = declare(app)
    with psycopg.connect(url) as connection:
        check(app, echo, connection, connection.commit)


@pytest.mark.parametrize(
    "options", [{"client_encoding": "sql_ascii"}, {"cursor_factory": psycopg.AsyncRawCursor}]
)
def test_psycopg_async(app_on: Callable[..., Penstock], postgres_url: str, options: dict[str, Any]) -> None:
    app = app_on(postgres_url)
    echo = declare(app)

    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(postgres_url, **options) as connection:
            await check_async(app, echo, connection)

    asyncio.run(main())
    has_run(app, echo)


async def with_json(connection: Any) -> None:
    for kind in ("json", "jsonb"):
        await connection.set_type_codec(kind, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")


async def with_ids_as_bytes(connection: Any) -> None:
    await connection.set_type_codec(
        "uuid", encoder=str, decoder=lambda text: text.encode(), schema="pg_catalog", format="text"
    )


async def with_latin(connection: Any) -> None:
    await connection.execute("SET client_encoding TO 'LATIN1'")


@pytest.mark.parametrize("change", [with_json, with_ids_as_bytes, with_latin])
@pytest.mark.parametrize("by", ["asyncpg", "sqlalchemy"])
def test_asyncpg(app_on: Callable[..., Penstock], postgres_url: str, change: Any, by: str) -> None:
    app = app_on(postgres_url)
    echo = declare(app)

    async def main() -> None:
        if by == "asyncpg":
            connection = await asyncpg.connect(postgres_url)
            await change(connection)
            async with connection.transaction():
                await check_async(app, echo, connection)
            await connection.close()
            return
        engine = create_async_engine(sqlalchemy_url(postgres_url, "postgresql+asyncpg"))
        async with engine.connect() as outer:
            await change((await outer.get_raw_connection()).driver_connection)
            await check_async(app, echo, outer)
            await outer.commit()
        await engine.dispose()

    asyncio.run(main())
    has_run(app, echo)


@contextmanager
def mysql(url: str, **options: Any) -> Iterator[Any]:
    where = make_url(url)
    parts: Any = {"host": where.host, "port": where.port, "user": where.username, "database": where.database}
    with closing(pymysql.connect(**parts | options)) as connection:
        yield connection


@pytest.mark.parametrize(
    "options",
    [
        {"charset": "latin1"},
        {"charset": "utf8mb3"},
        {"charset": "latin1", "autocommit": True},
        {"charset": "latin1", "use_unicode": False},
        {"conv": {kind: to for kind, to in conversions.items() if not isinstance(kind, int)}},
        {"sql_mode": "NO_BACKSLASH_ESCAPES,ANSI_QUOTES"},
    ],
    ids=["latin1", "utf8mb3", "autocommit", "bytes", "no converters", "quotes"],
)
def test_pymysql(app_on: Callable[..., Penstock], mariadb_url: str, options: dict[str, Any]) -> None:
    app = app_on(mariadb_url)
    echo = declare(app)
    with mysql(mariadb_url, **options) as connection:
        before = connection.charset, connection.encoding
        check(app, echo, connection, connection.commit)
        assert (connection.charset, connection.encoding) == before


def test_sqlalchemy_in_another_encoding(app: Penstock, echo: Echo, database_url: str) -> None:
    if database_url.startswith("sqlite"):
        pytest.skip("SQLite has one encoding")
    name = "client_encoding" if database_url.startswith("postgresql") else "charset"
    engine = create_engine(make_url(sqlalchemy_url(database_url)).update_query_dict({name: "latin1"}))
    with engine.connect() as connection:
        check(app, echo, connection, connection.commit)
    engine.dispose()


class Wrapped:
    def __init__(self, text: bytes) -> None:
        self.text = text


def test_ids_that_cannot_be_read_are_refused(app_on: Callable[..., Penstock], sqlite_url: str) -> None:
    """Whatever the owner's converters make of an id: it is never taken for another job's."""
    app = app_on(sqlite_url)
    echo = declare(app)
    sqlite3.register_converter("CHAR", Wrapped)
    try:
        with closing(
            sqlite3.connect(str(make_url(sqlite_url).database), detect_types=sqlite3.PARSE_DECLTYPES)
        ) as own:
            with pytest.raises(PenstockError, match="where an id is kept"):
                echo.options(connection=own, key="a").enqueue("a")
            own.rollback()
    finally:
        sqlite3.converters.pop("CHAR")
    assert echo.options(key="a").enqueue("a").status == "available"
