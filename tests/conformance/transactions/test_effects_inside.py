"""job_transaction: what may and may not be done with the connection of a `job.transaction()` block."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

import penstock
from penstock import Penstock
from penstock.testing import drain
from tests.conformance.receipts import INSERT, receipts, with_receipts
from tests.conformance.rows import count


@pytest.fixture
def app(make_app: Callable[..., Penstock]) -> Penstock:
    return with_receipts(make_app())


def test_an_async_enqueue_inside_the_block_belongs_to_it(app: Penstock) -> None:
    """Work and a run; the first attempt is rolled back, and with it what was enqueued."""

    @app.task
    def follow(order: int) -> int:
        return order

    @app.pipeline
    def after(order: int) -> Any:
        return follow(order)

    @app.task(retries=penstock.Retry(max=1, delay=0))
    async def pay() -> None:
        job = penstock.current()
        async with job.transaction() as connection:
            await connection.execute(INSERT, {"note": "paid"})
            await follow.options(connection=connection).enqueue_async(1)
            first = await follow.options(connection=connection, key="one").enqueue_async(2)
            assert await follow.options(connection=connection, key="one").enqueue_async(3) == first
            await follow.options(connection=connection).enqueue_many_async([(4,), (5,)])
            await after.options(connection=connection).trigger_async(6)
            if job.attempt == 1:
                raise ValueError

    job = pay.enqueue()
    drain(app)
    assert job.status == "succeeded", job.attempts()
    assert receipts(app) == ["paid"]
    assert count(app, "runs") == 1
    assert count(app, "jobs") == 1 + 4 + 1
    assert {run.status for run in app.runs()} == {"succeeded"}


def test_a_sync_enqueue_on_an_async_block_says_which_to_use(app: Penstock) -> None:
    @app.task
    def follow() -> None: ...

    @app.task(retries=0)
    async def pay() -> None:
        async with penstock.current().transaction() as connection:
            follow.options(connection=connection).enqueue()

    job = pay.enqueue()
    drain(app)
    assert "use enqueue_async" in str(job.attempts()[0].error)
    assert count(app, "jobs") == 1


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_the_block_alone_ends_its_transaction(app: Penstock, end: str) -> None:
    """A handler that commits inside would have its writes without the job's end; on a server it even seemed to hang."""

    @app.task(retries=0)
    def pay() -> None:
        with penstock.current().transaction() as connection:
            connection.execute(INSERT, {"note": "half"})
            getattr(connection, end)()

    job = pay.enqueue()
    assert drain(app) == 1
    assert receipts(app) == []
    assert job.status == "failed"
    assert "begin_nested()" in str(job.attempts()[0].error)


@pytest.mark.parametrize("end", ["COMMIT", "rollback ", "  End", "begin", "START TRANSACTION"])
def test_not_even_by_a_statement(app: Penstock, end: str) -> None:
    """On SQLite no thread of this process could write after that."""

    @app.task(retries=0)
    def pay() -> None:
        with penstock.current().transaction() as connection:
            connection.execute(INSERT, {"note": "half"})
            connection.execute(text(end))

    job = pay.enqueue()
    assert drain(app) == 1
    assert receipts(app) == []
    assert "begin_nested()" in str(job.attempts()[0].error)


def test_what_commits_by_itself_is_refused(app: Penstock, database_kind: str) -> None:
    @app.task(retries=0)
    def pay() -> None:
        with penstock.current().transaction() as connection:
            connection.execute(text("CREATE TEMPORARY TABLE notes (n INTEGER)"))
            connection.execute(INSERT, {"note": "half"})
            connection.execute(text("CREATE TABLE more (n INTEGER)"))
            raise ValueError

    job = pay.enqueue()
    drain(app)
    assert receipts(app) == []
    expected = "CREATE commits on MySQL" if database_kind == "mariadb" else "ValueError"
    assert expected in str(job.attempts()[0].error)


@pytest.mark.parametrize("kind", ["thread", "async"])
def test_what_sqlite_has_rolled_back_by_itself_ends_no_job(
    app_on: Callable[..., Penstock], sqlite_url: str, kind: str
) -> None:
    app = with_receipts(app_on(sqlite_url))
    app.database.in_transaction(lambda tx: tx.run("CREATE TABLE numbers (n INTEGER UNIQUE)"))
    twice = text("INSERT OR ROLLBACK INTO numbers VALUES (1), (1)")

    @app.task(retries=0)
    def pay() -> None:
        with penstock.current().transaction() as connection:
            connection.execute(INSERT, {"note": "undone"})
            with suppress(IntegrityError):
                connection.execute(twice)

    @app.task(retries=0)
    async def pay_async() -> None:
        async with penstock.current().transaction() as connection:
            await connection.execute(INSERT, {"note": "undone"})
            with suppress(IntegrityError):
                await connection.execute(twice)

    job = (pay if kind == "thread" else pay_async).enqueue()
    assert drain(app) == 1
    assert receipts(app) == []
    assert "was ended inside its block" in str(job.attempts()[0].error)
    app.database.in_transaction(lambda tx: tx.run("INSERT INTO numbers VALUES (2)"))


def test_a_transaction_that_was_ended_by_other_means_ends_no_job(app: Penstock) -> None:
    @app.task(retries=0)
    def pay() -> None:
        with penstock.current().transaction() as connection:
            connection.execute(INSERT, {"note": "undone"})
            Session(bind=connection).rollback()
            transaction = connection.get_transaction()
            assert transaction is not None
            transaction.rollback()

    job = pay.enqueue()
    assert drain(app) == 1
    assert receipts(app) == []
    assert job.status == "failed"
    assert "was ended inside its block" in str(job.attempts()[0].error)


def test_a_session_on_the_connection_takes_part(app: Penstock) -> None:
    @app.task(retries=0)
    def pay(fail: bool) -> str:
        job = penstock.current()
        with job.transaction() as connection:
            with Session(bind=connection) as session:
                session.execute(INSERT, {"note": "by a session"})
                session.commit()
            job.complete("done")
            if fail:
                raise ValueError
        return ""

    failed, done = pay.enqueue(True), pay.enqueue(False)
    drain(app)
    assert [failed.status, done.status] == ["failed", "succeeded"]
    assert receipts(app) == ["by a session"]


def test_a_part_may_be_undone(app: Penstock) -> None:
    with app.database.sqlalchemy() as (connection, _):
        connection.execute(text("CREATE TABLE once (id INTEGER PRIMARY KEY)"))

    @app.task(retries=0)
    async def pay() -> None:
        async with penstock.current().transaction() as connection:
            for number in (1, 1, 2):
                try:
                    async with connection.begin_nested():
                        await connection.execute(INSERT, {"note": f"number {number}"})
                        await connection.execute(text(f"INSERT INTO once VALUES ({number})"))
                except IntegrityError:
                    await connection.execute(INSERT, {"note": "again"})

    job = pay.enqueue()
    drain(app)
    assert job.status == "succeeded", job.attempts()
    assert receipts(app) == ["number 1", "again", "number 2"]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_block_inside_the_block_is_refused(app: Penstock, kind: str) -> None:
    """The inner one would end the job, and the outer one's writes would be dropped without a word."""

    @app.task(name="sync", retries=0)
    def in_thread() -> None:
        job = penstock.current()
        with job.transaction() as connection:
            connection.execute(INSERT, {"note": "outer"})
            with job.transaction():
                job.complete()

    @app.task(name="async", retries=0)
    async def on_loop() -> None:
        job = penstock.current()
        async with job.transaction() as connection:
            await connection.execute(INSERT, {"note": "outer"})
            async with job.transaction():
                job.complete()

    job = app.tasks[kind].enqueue()
    assert drain(app) == 1
    assert job.status == "failed"
    assert "is inside a transaction() block" in str(job.attempts()[0].error)
    assert receipts(app) == []


def test_a_forgotten_complete_is_named(app: Penstock) -> None:
    @app.task(retries=0)
    def pay() -> int:
        with penstock.current().transaction() as connection:
            connection.execute(INSERT, {"note": "paid"})
        return 7

    job = pay.enqueue()
    drain(app)
    assert receipts(app) == []
    assert "give job.complete(...) its result" in str(job.attempts()[0].error)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_error_after_the_block_is_logged(
    app: Penstock, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It changes nothing, so no attempt tells of it; it must not vanish."""

    @app.task(name="sync")
    def in_thread() -> None:
        with penstock.current().transaction():
            pass
        raise LookupError("too late")

    @app.task(name="async")
    async def on_loop() -> None:
        async with penstock.current().transaction():
            pass
        raise LookupError("too late")

    job = app.tasks[kind].enqueue()
    drain(app)
    assert job.status == "succeeded"
    assert f"job {job.id} was done" in caplog.text
    assert "LookupError: too late" in caplog.text
