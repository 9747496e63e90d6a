"""runtime/executors/call: the database is away when a handler needs it. Invariant 11: that is not the job's fault
and spends nothing.
"""

import asyncio
from collections.abc import Callable

import pytest
from sqlalchemy import text

from penstock import Penstock, current
from penstock.database.database import TRIES
from penstock.errors import DatabaseUnavailable
from penstock.testing import drain, travel
from tests.conformance.faults import deadlocked, disconnected, failing_at
from tests.conformance.receipts import with_receipts
from tests.conformance.rows import state

Trouble = Callable[[Penstock], Exception]
INSERT = text("INSERT INTO receipts (note) VALUES ('paid')")


@pytest.fixture
def app(make_app: Callable[..., Penstock]) -> Penstock:
    return with_receipts(make_app())


def receipts(app: Penstock) -> int:
    with app.database.engine.connect() as connection:
        return int(connection.execute(text("SELECT count(*) FROM receipts")).scalar_one())


def spent(app: Penstock, job_id: str) -> tuple[int, int]:
    now = state(app, job_id)
    return now["retry_count"], now["crash_count"]


@pytest.mark.parametrize(
    ("point", "trouble", "outcomes"),
    [
        ("effects.1", deadlocked, ["succeeded"]),
        ("effects.1", disconnected, ["succeeded"]),
        ("settle.1", disconnected, ["released", "succeeded"]),
        ("settle.1", deadlocked, ["released", "succeeded"]),
        ("settle.commit", disconnected, ["released", "succeeded"]),
    ],
)
def test_an_outage_in_the_jobs_transaction_spends_nothing(
    app: Penstock, point: str, trouble: Trouble, outcomes: list[str]
) -> None:
    @app.task(retries=0, max_crashes=0)
    def pay() -> None:
        job = current()
        with job.transaction() as connection:
            connection.execute(INSERT)
            job.complete(None)

    job = pay.enqueue()
    with failing_at(point, trouble(app)):
        drain(app)
    with travel(app, 5):
        drain(app)
    assert [attempt.outcome for attempt in job.attempts()] == outcomes
    assert (job.status, spent(app, job.id), receipts(app)) == ("succeeded", (0, 0), 1)


@pytest.mark.parametrize("spelling", ["sync", "async"])
def test_a_connection_lost_under_the_handlers_own_statement(app: Penstock, spelling: str) -> None:
    lost = [disconnected(app)]

    @app.task(name="sync", retries=0)
    def pay() -> None:
        job = current()
        with job.transaction() as connection:
            connection.execute(INSERT)
            if lost:
                raise lost.pop()
            job.complete(None)

    @app.task(name="async", retries=0)
    async def pay_async() -> None:
        job = current()
        async with job.transaction() as connection:
            await connection.execute(INSERT)
            if lost:
                raise lost.pop()
            job.complete(None)

    job = app.tasks[spelling].enqueue()
    drain(app)
    assert (job.status, receipts(app)) == ("scheduled", 0)
    with travel(app, 5):
        drain(app)
    assert [attempt.outcome for attempt in job.attempts()] == ["released", "succeeded"]
    assert (spent(app, job.id), receipts(app)) == ((0, 0), 1)
    assert "does not answer" in (job.attempts()[0].error or "")


@pytest.mark.parametrize(("beside", "outcome"), [([], "released"), ([ValueError("no order")], "errored")])
def test_a_task_group_tells_of_it_in_its_own_way(
    app: Penstock, beside: list[Exception], outcome: str
) -> None:
    @app.task
    def follow() -> None: ...

    @app.task(retries=0)
    async def pay() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(follow.enqueue_async())
        except ExceptionGroup as away:
            raise ExceptionGroup("all of it", [away, *beside]) from None

    job = pay.enqueue()
    with failing_at("enqueue.1", disconnected(app), times=TRIES):
        drain(app)
    assert [attempt.outcome for attempt in job.attempts()] == [outcome]


def test_a_statement_that_fails_for_its_own_sake_is_the_handlers_error(app: Penstock) -> None:
    @app.task(retries=0)
    def pay() -> None:
        with current().transaction() as connection:
            connection.execute(text("INSERT INTO nowhere VALUES (1)"))

    job = pay.enqueue()
    drain(app)
    assert [attempt.outcome for attempt in job.attempts()] == ["errored"]
    assert job.status == "failed"


def test_only_the_workers_own_database_counts(app: Penstock) -> None:
    """A job that needs another database which is not there fails as it would with any other service."""

    @app.task(retries=0)
    def ask_elsewhere() -> None:
        raise DatabaseUnavailable("it is away", "postgresql://elsewhere/shop")

    job = ask_elsewhere.enqueue()
    drain(app)
    assert [attempt.outcome for attempt in job.attempts()] == ["errored"]
    assert job.status == "failed"
