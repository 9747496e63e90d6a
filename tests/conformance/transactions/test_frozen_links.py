"""job_transaction: a link that freezes inside `job.transaction()`, until the server has given the transaction up: an
outage.

Not so if the handler itself has left its transaction alone for that long: it would do the same again, for ever.
"""

import asyncio
import threading
from collections.abc import Callable

import pytest

from penstock import Penstock, current
from penstock.errors import JobFailed
from penstock.runtime.worker import Worker
from tests.conformance.embedded import beside_a_worker
from tests.conformance.wakeups.test_silent_connections import way_to

AppOn = Callable[..., Penstock]
STATEMENT = 0.8
LONGER = 2 * STATEMENT + 0.8
"""Than the server lets a transaction be idle; and less than an answer is waited for."""


@pytest.mark.parametrize("last", ["a statement", "the commit"])
def test_a_link_that_froze_in_a_transaction_spends_nothing(
    app_on: AppOn, postgres_url: str, last: str
) -> None:
    inside, frozen = threading.Event(), threading.Event()
    attempts: list[int] = []
    with way_to(postgres_url) as (way, there):
        app = app_on(there, statement_timeout=STATEMENT, lock_timeout=STATEMENT)

        @app.task(retries=0, max_crashes=0)
        def pay() -> str:
            job = current()
            attempts.append(job.attempt)
            with job.transaction() as connection:
                connection.exec_driver_sql("SELECT 1")
                inside.set()
                frozen.wait(30)
                if last == "a statement":
                    connection.exec_driver_sql("SELECT 2")
                job.complete("paid")
            return "ignored"

        async def main(_: Worker) -> None:
            job = await pay.enqueue_async()
            await asyncio.to_thread(inside.wait, 30)
            way.block()
            frozen.set()
            await asyncio.sleep(LONGER)
            way.unblock(reset=False)
            assert await job.result_async(timeout=60) == "paid"
            assert [str(attempt.outcome) for attempt in job.attempts()] == ["released", "succeeded"]

        beside_a_worker(app, main)
        app.close()
    assert len(attempts) == 2


def test_a_handler_that_leaves_its_transaction_alone_for_too_long_fails(
    app_on: AppOn, postgres_url: str
) -> None:
    app = app_on(postgres_url, statement_timeout=0.2, lock_timeout=0.2)

    @app.task(retries=0, max_crashes=0)
    def dawdle() -> None:
        with current().transaction() as connection:
            connection.exec_driver_sql("SELECT 1")
            threading.Event().wait(0.8)
            connection.exec_driver_sql("SELECT 2")

    async def main(_: Worker) -> None:
        job = await dawdle.enqueue_async()
        with pytest.raises(JobFailed, match=r"left alone for 0\.8 s"):
            await job.result_async(timeout=60)

    beside_a_worker(app, main)
