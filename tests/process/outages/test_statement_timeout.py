"""database/postgres/dialect: a server whose default ends every statement after 200 ms: our connections say
otherwise, and work goes on.
"""

from collections.abc import Callable

import psycopg
import pytest
from sqlalchemy import make_url

from penstock import Penstock
from penstock.runtime.worker import Worker
from penstock.telemetry.events import Event, RowSetAside, TroubleBegan
from tests.conformance.embedded import beside_a_worker

pytestmark = pytest.mark.process


def test_a_short_default_of_the_server_is_no_trouble(
    postgres_url: str, app_on: Callable[..., Penstock]
) -> None:
    name = make_url(postgres_url).database
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f'ALTER DATABASE "{name}" SET statement_timeout = 200'.encode())
    with psycopg.connect(postgres_url) as other, pytest.raises(psycopg.errors.QueryCanceled):
        other.execute("SELECT pg_sleep(1)")
    app = app_on(postgres_url)
    trouble: list[Event] = []
    for kind in (TroubleBegan, RowSetAside):
        app.events.on(kind, trouble.append)

    @app.task(name="slow", retries=0)
    def slow(number: int) -> int:
        with app.database.engine.begin() as connection:
            connection.exec_driver_sql("SELECT pg_sleep(0.4)")
        return number

    @app.pipeline(name="both")
    def both(number: int) -> object:
        return slow(slow(number))

    async def main(_: Worker) -> None:
        jobs = await slow.enqueue_many_async([(number,) for number in range(3)])
        later = await slow.options(delay=0.1).enqueue_async(3)
        run = await both.trigger_async(4)
        assert [await job.result_async(60) for job in [*jobs, later]] == [0, 1, 2, 3]
        assert await run.result_async(60) == 4

    beside_a_worker(app, main)
    assert app.database.read(lambda tx: tx.rows("SELECT 1, pg_sleep(0.4)"))
    assert not trouble
