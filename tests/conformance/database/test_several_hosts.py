"""database/url: `postgresql://a,b/shop`, `mysql://a,b/shop`: whichever host takes writes is used, by everything that
connects.
"""

import asyncio
from collections.abc import Callable
from contextlib import closing

import psycopg
import pymysql
import pytest
from sqlalchemy import make_url

from penstock import Penstock
from penstock.testing import drain
from tests.servers.mariadb import Mariadb
from tests.waiting import eventually

LISTENING = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'penstock-listen' AND datname = %s"
)


def several(url: str) -> str:
    """The same database, behind a host that is not there."""
    there = make_url(url)
    kind = there.get_backend_name()
    return f"{kind}://{there.username}@127.0.0.1:1,{there.host}:{there.port}/{there.database}"


def test_work_goes_to_the_host_that_is_there(app_on: Callable[..., Penstock], database_url: str) -> None:
    if database_url.startswith("sqlite"):
        pytest.skip("a file is on no host")
    app = app_on(several(database_url))

    @app.task
    def double(number: int) -> int:
        return 2 * number

    job = double.enqueue(21)
    drain(app)
    assert job.result(timeout=0) == 42


def test_a_host_that_takes_no_writes_is_left(
    app_on: Callable[..., Penstock], mariadb_url: str, mariadb_server: Mariadb
) -> None:
    """The first host takes none at first. Then the second becomes a replica, in the midst of it."""
    name = str(make_url(mariadb_url).database)
    mariadb_server.create_database(name)
    first, second = mariadb_server.url(name), mariadb_url
    app_on(first).migrate()
    places = [f"{where.host}:{where.port}" for where in map(make_url, (first, second))]
    for url in (first, second):
        administer(
            url, f"CREATE OR REPLACE USER {name[:20]}@'%'", f"GRANT ALL ON {name}.* TO {name[:20]}@'%'"
        )
    app = app_on(f"mysql://{name[:20]}@{','.join(places)}/{name}", connect_timeout=4)

    @app.task
    def double(number: int) -> int:
        return 2 * number

    administer(first, "SET GLOBAL read_only = 1")
    double.enqueue(21)
    assert drain(app) == 1
    assert (jobs_at(app_on(first)), jobs_at(app_on(second))) == (0, 1)
    administer(first, "SET GLOBAL read_only = 0")
    administer(second, "SET GLOBAL read_only = 1")
    try:
        job = double.enqueue(22)
        assert drain(app) == 1
    finally:
        administer(second, "SET GLOBAL read_only = 0")
    assert job.result(timeout=0) == 44
    assert (jobs_at(app_on(first)), jobs_at(app_on(second))) == (1, 1)


def administer(url: str, *statements: str) -> None:
    where = make_url(url)
    with closing(pymysql.connect(host=where.host, port=where.port or 0, user=where.username)) as connection:
        for statement in statements:
            connection.cursor().execute(statement)


def jobs_at(app: Penstock) -> int:
    row = app.database.read(lambda tx: tx.row("SELECT COUNT(*) FROM {jobs}"))
    return int(row[0]) if row else 0


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
