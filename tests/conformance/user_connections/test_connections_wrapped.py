"""database/user/connections: Transactional enqueue on connections that come wrapped, or that give texts in a way of
their own.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any

import pymysql
import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import scoped_session, sessionmaker

from penstock import Penstock
from penstock.errors import ConfigurationError
from penstock.testing import drain
from tests.conformance.rows import count
from tests.conformance.user_connections.test_connections import Send, check, check_async, send, sqlalchemy_url
from tests.optional import asyncpg

__all__ = ["send"]


@pytest.mark.parametrize("kind", ["pool", "scope"])
def test_sqlalchemys_proxies(app: Penstock, send: Send, database_url: str, kind: str) -> None:
    engine = create_engine(sqlalchemy_url(database_url))
    connection: Any = engine.raw_connection() if kind == "pool" else scoped_session(sessionmaker(engine))
    check(app, send, connection, connection.commit, connection.rollback)
    connection.close()
    engine.dispose()


def test_texts_given_as_bytes(app: Penstock, send: Send, database_url: str) -> None:
    """A key's holder read as bytes was taken for another job: the first enqueue was lost without a word."""
    where = make_url(database_url)
    connection: Any
    match where.get_backend_name():
        case "sqlite":
            connection = sqlite3.connect(str(where.database))
            connection.text_factory = bytes
        case "mysql":
            parts: Any = {"host": where.host, "port": where.port, "user": where.username}
            connection = pymysql.connect(use_unicode=False, database=where.database, **parts)
        case _:
            pytest.skip("psycopg has no such mode")
    check(app, send, connection, connection.commit, connection.rollback)
    connection.close()


def test_an_async_scope_and_a_pool(app_on: Callable[..., Penstock], postgres_url: str) -> None:
    app = app_on(postgres_url)

    @app.task
    def send(order: int) -> int:
        return order * 2

    app.prepare()

    async def main() -> None:
        engine = create_async_engine(sqlalchemy_url(postgres_url, "postgresql+asyncpg"))
        session = async_scoped_session(async_sessionmaker(engine), asyncio.current_task)
        await check_async(app, send, session, session.commit, session.rollback)
        await session.remove()
        await engine.dispose()
        pool = await asyncpg.create_pool(postgres_url, min_size=1, max_size=1)
        with pytest.raises(ConfigurationError, match="connection= is a Pool"):
            await send.options(connection=pool).enqueue_async(1)
        await pool.close()

    asyncio.run(main())
    assert count(app, "jobs") == 5
    assert drain(app) == 4


def test_a_cursor_is_no_connection(app: Penstock, send: Send, database_url: str) -> None:
    """It raised bare errors of Python."""
    engine = create_engine(sqlalchemy_url(database_url))
    connection = engine.raw_connection()
    cursor: Any = connection.cursor()
    with pytest.raises(ConfigurationError, match="Pass a SQLAlchemy Session"):
        send.options(connection=cursor).enqueue(1)
    connection.close()
    engine.dispose()
