"""database/postgres/dialect: Behind a transaction pooler each transaction may run on another connection of the
server: nothing may outlive one.
"""

from collections.abc import Callable

import pytest

import penstock
from penstock import Penstock
from penstock.runtime.worker import Worker
from tests.conformance.embedded import beside_a_worker
from tests.conformance.rows import rows

SESSION_STATE = """
SELECT name, setting FROM pg_settings
WHERE name IN ('statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout') ORDER BY name
"""


@pytest.fixture
def app(app_on: Callable[..., Penstock], postgres_url: str) -> Penstock:
    app = app_on(postgres_url, pooler="transaction", statement_timeout=7, lock_timeout=3, poll_interval=0.05)

    @app.task(name="pay", retries=0)
    def pay(amount: int) -> int:
        job = penstock.current()
        assert job.once("charge", lambda: amount) == amount
        with job.transaction() as connection:
            connection.exec_driver_sql("SELECT 1")
            job.complete(amount * 2)
        return 0

    return app


def test_work_is_done_without_listening(app: Penstock) -> None:
    async def main(_: Worker) -> list[int]:
        jobs = await app.tasks["pay"].enqueue_many_async([(number,) for number in range(20)])
        return [await job.result_async(timeout=30) for job in jobs]

    assert beside_a_worker(app, main) == [number * 2 for number in range(20)]
    assert not app.settings.listens


def test_nothing_outlives_a_transaction(app: Penstock) -> None:
    for _ in range(12):  # psycopg would begin to prepare at the fifth
        app.tasks["pay"].options(delay=60).enqueue(1)
    inside = dict(rows(app, SESSION_STATE))
    assert (inside["statement_timeout"], inside["lock_timeout"]) == ("7000", "3000")
    driver = app.database.engine.raw_connection()
    try:
        after = dict(driver.cursor().execute(SESSION_STATE).fetchall())
        assert set(after.values()) == {"0"}
        assert driver.cursor().execute("SELECT name FROM pg_prepared_statements").fetchall() == []
        assert driver.cursor().execute("SELECT * FROM pg_listening_channels()").fetchall() == []
        ours = "database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        held = f"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND {ours}"
        assert driver.cursor().execute(held).fetchall() == [(0,)]
    finally:
        driver.close()
