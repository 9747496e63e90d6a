"""`postgresql://a,b/shop`: whichever host takes writes is used, by everything that connects."""

import asyncio
from collections.abc import Callable

import psycopg
from sqlalchemy import make_url

from penstock import Penstock
from penstock.testing import drain
from tests.waiting import eventually

LISTENING = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'penstock-listen' AND datname = %s"
)


def several(url: str) -> str:
    """The same database, behind a host that is not there."""
    there = make_url(url)
    return f"postgresql://{there.username}@127.0.0.1:1,{there.host}:{there.port}/{there.database}"


def test_work_goes_to_the_host_that_is_there(app_on: Callable[..., Penstock], postgres_url: str) -> None:
    app = app_on(several(postgres_url))

    @app.task
    def double(number: int) -> int:
        return 2 * number

    job = double.enqueue(21)
    drain(app)
    assert job.result(timeout=0) == 42


def test_a_worker_listens_there_too(app_on: Callable[..., Penstock], postgres_url: str) -> None:
    app = app_on(several(postgres_url))

    @app.task
    def double(number: int) -> int:
        return 2 * number

    async def work() -> int:
        async with app.worker():
            await asyncio.to_thread(eventually, lambda: listeners(postgres_url) > 0)
            return await double.enqueue(21).result_async(timeout=30)

    assert asyncio.run(work()) == 42


def listeners(url: str) -> int:
    plain = make_url(url).set(drivername="postgresql")
    with psycopg.connect(plain.render_as_string(hide_password=False)) as connection:
        row = connection.execute(LISTENING, (plain.database,)).fetchone()
        return int(row[0]) if row else 0
