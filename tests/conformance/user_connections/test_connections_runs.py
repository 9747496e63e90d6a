"""pipelines/lifecycle/start: Runs with a key, triggered on the caller's connection: on every kind there is, they are
there if it commits.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from penstock import Penstock
from penstock.testing import drain
from tests.conformance.rows import count
from tests.conformance.user_connections.test_connections import asyncpg_connection, native, sqlalchemy_url


def sending(app: Penstock) -> Any:
    @app.task
    def send(order: int) -> int:
        return order * 2

    @app.pipeline
    def sending(order: int) -> Any:
        return send(order)

    app.prepare()
    return sending


def check(app: Penstock, bound: Any, commit: Callable[[], object], rollback: Callable[[], object]) -> None:
    bound.trigger(1)
    rollback()
    assert count(app, "runs") == 0
    run = bound.trigger(2)
    assert bound.trigger(3) == run
    commit()
    drain(app)
    assert run.result(timeout=0) == 4
    assert count(app, "runs") == 1


@pytest.mark.parametrize("kind", ["session", "connection", "driver"])
def test_a_sync_connection(app: Penstock, database_url: str, kind: str) -> None:
    pipeline = sending(app)
    engine = create_engine(sqlalchemy_url(database_url))
    opened: Any = {"session": lambda: Session(engine), "connection": engine.connect}
    with opened[kind]() if kind in opened else native(database_url, plain_rows=True) as connection:
        bound = pipeline.options(connection=connection, key="a")
        check(app, bound, connection.commit, connection.rollback)
    engine.dispose()


async def trigger_async(app: Penstock, bound: Any, commit: Any, rollback: Any) -> None:
    await bound.trigger_async(1)
    await rollback()
    assert count(app, "runs") == 0
    run = await bound.trigger_async(2)
    assert await bound.trigger_async(3) == run
    await commit()


def has_run(app: Penstock) -> None:
    (run,) = app.runs()
    drain(app)
    assert run.result(timeout=0) == 4


@pytest.fixture
def postgres(app_on: Callable[..., Penstock], postgres_url: str) -> tuple[Penstock, Any, str]:
    app = app_on(postgres_url)
    return app, sending(app), postgres_url


@pytest.mark.parametrize("driver", ["postgresql+asyncpg", "postgresql+psycopg"])
@pytest.mark.parametrize("kind", ["session", "connection"])
def test_sqlalchemys_async_twins(postgres: tuple[Penstock, Any, str], driver: str, kind: str) -> None:
    app, pipeline, url = postgres

    async def main() -> None:
        engine = create_async_engine(sqlalchemy_url(url, driver))
        async with AsyncSession(engine) if kind == "session" else engine.connect() as connection:
            bound = pipeline.options(connection=connection, key="a")
            await trigger_async(app, bound, connection.commit, connection.rollback)
        await engine.dispose()

    asyncio.run(main())
    has_run(app)


def test_psycopgs_async_connection(postgres: tuple[Penstock, Any, str]) -> None:
    app, pipeline, url = postgres

    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            bound = pipeline.options(connection=connection, key="a")
            await trigger_async(app, bound, connection.commit, connection.rollback)

    asyncio.run(main())
    has_run(app)


def test_asyncpg(postgres: tuple[Penstock, Any, str]) -> None:
    app, pipeline, url = postgres

    async def main() -> None:
        async with asyncpg_connection(url) as (connection, commit, rollback):
            bound = pipeline.options(connection=connection, key="a")
            await trigger_async(app, bound, commit, rollback)

    asyncio.run(main())
    has_run(app)
