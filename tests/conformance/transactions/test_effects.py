"""job_transaction: `job.transaction()`: the handler's writes and the job's end commit together, fenced, or not at
all.
"""

from collections.abc import Callable
from decimal import Decimal

import pytest
from sqlalchemy import text

import penstock
from penstock import Penstock, Retry
from penstock.errors import JobFailed, PenstockError
from penstock.queue import reclaim
from penstock.telemetry.events import AttemptSettled
from penstock.testing import crash_at, drain
from tests.conformance.receipts import INSERT, receipts, with_receipts
from tests.conformance.rows import count, state


@pytest.fixture
def app(make_app: Callable[..., Penstock]) -> Penstock:
    return with_receipts(make_app())


def test_writes_and_completion_commit_together(app: Penstock) -> None:
    @app.task
    def pay(order: int) -> str:
        job = penstock.current()
        with job.transaction() as connection:
            connection.execute(INSERT, {"note": f"order {order}"})
            job.complete(f"receipt {order}")
        return "ignored: the job was over before"

    job = pay.enqueue(7)
    assert drain(app) == 1
    assert receipts(app) == ["order 7"]
    assert job.result(timeout=0) == "receipt 7"
    assert [attempt.outcome for attempt in job.attempts()] == ["succeeded"]
    assert count(app, "claims") == 0


@pytest.mark.parametrize("after", ["returns", "raises"])
def test_the_end_is_told_once_whatever_the_handler_does_after_the_block(app: Penstock, after: str) -> None:
    told: list[tuple[str, str, str]] = []
    app.events.on(AttemptSettled, lambda event: told.append((event.job_id, event.outcome, event.status)))

    @app.task
    def pay() -> None:
        job = penstock.current()
        with job.transaction():
            job.complete()
        if after == "raises":
            raise ValueError("after the end")

    job = pay.enqueue()
    drain(app)
    assert told == [(job.id, "succeeded", "succeeded")]


def test_async_with(app: Penstock) -> None:
    @app.task
    async def pay() -> str:
        job = penstock.current()
        async with job.transaction() as connection:
            await connection.execute(INSERT, {"note": "awaited"})
            connection.execute(INSERT, {"note": "not awaited"})
            found = await connection.scalar(text("SELECT count(*) FROM receipts"))
            await connection.run_sync(lambda conn: conn.execute(INSERT, {"note": f"after {found}"}))
            job.complete("async receipt")
        return ""

    job = pay.enqueue()
    drain(app)
    assert receipts(app) == ["awaited", "not awaited", "after 2"]
    assert job.result(timeout=0) == "async receipt"


def test_a_handler_that_returns_nothing_may_complete_its_job_with_something(app: Penstock) -> None:
    @app.task(name="pay")
    def pay() -> None:
        with penstock.current().transaction():
            penstock.current().complete({"receipt": Decimal("7.50")})

    job, run = pay.enqueue(), app.flow("paying").start(pay).trigger()
    drain(app)
    assert job.result(timeout=0) == run.result(timeout=0) == {"receipt": Decimal("7.50")}


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_error_in_the_block_undoes_everything(app: Penstock, kind: str) -> None:
    @app.task(name="sync", retries=0)
    def in_thread() -> None:
        with penstock.current().transaction() as connection:
            connection.execute(INSERT, {"note": "lost"})
            raise ValueError("no")

    @app.task(name="async", retries=0)
    async def on_loop() -> None:
        async with penstock.current().transaction() as connection:
            await connection.execute(INSERT, {"note": "lost"})
            raise ValueError("no")

    job = app.tasks[kind].enqueue()
    drain(app)
    assert receipts(app) == []
    assert job.status == "failed"
    assert "ValueError: no" in str(job.attempts()[0].error)


def test_a_statement_that_was_not_awaited_and_fails_undoes_everything(app: Penstock) -> None:
    @app.task(retries=0)
    async def pay() -> None:
        async with penstock.current().transaction() as connection:
            await connection.execute(INSERT, {"note": "lost"})
            connection.execute(text("INSERT INTO no_such_table VALUES (1)"))

    job = pay.enqueue()
    drain(app)
    assert receipts(app) == []
    assert job.status == "failed"
    assert "no_such_table" in str(job.attempts()[0].error)


def test_without_complete_the_result_is_none(app: Penstock) -> None:
    @app.task
    def pay() -> None:
        with penstock.current().transaction() as connection:
            connection.execute(INSERT, {"note": "paid"})

    job = pay.enqueue()
    drain(app)
    assert job.result(timeout=0) is None
    assert receipts(app) == ["paid"]


def test_a_result_that_cannot_be_stored_undoes_everything(app: Penstock) -> None:
    @app.task(retries=0)
    def pay() -> object:
        with penstock.current().transaction() as connection:
            connection.execute(INSERT, {"note": "lost"})
            penstock.current().complete(object())
        return None

    job = pay.enqueue()
    drain(app)
    assert receipts(app) == []
    with pytest.raises(JobFailed):
        job.result(timeout=0)


def test_complete_outside_the_block_is_refused(app: Penstock) -> None:
    @app.task(retries=0)
    def pay() -> None:
        penstock.current().complete(1)

    job = pay.enqueue()
    drain(app)
    assert PenstockError.__name__ in str(job.attempts()[0].error)


def test_a_second_block_after_the_first_is_refused(app: Penstock) -> None:
    said: list[str] = []

    @app.task
    def pay() -> None:
        job = penstock.current()
        with job.transaction() as connection:
            connection.execute(INSERT, {"note": "first"})
        try:
            job.transaction()
        except PenstockError as error:
            said.append(str(error))

    job = pay.enqueue()
    assert drain(app) == 1
    assert receipts(app) == ["first"]
    assert job.status == "succeeded"
    (text,) = said
    assert "ended with its first transaction() block" in text


def test_an_error_after_the_block_changes_nothing(app: Penstock) -> None:
    @app.task
    def pay() -> None:
        with penstock.current().transaction() as connection:
            connection.execute(INSERT, {"note": "paid"})
            penstock.current().complete()
        raise ValueError("too late")

    job = pay.enqueue()
    assert drain(app) == 1
    assert job.status == "succeeded"
    assert receipts(app) == ["paid"]
    assert drain(app) == 0


@pytest.mark.parametrize("lost", ["before", "inside"])
def test_a_lost_claim_writes_nothing(app: Penstock, lost: str) -> None:
    """A reaper took this process for dead: its successor's effect is the only one."""
    if lost == "inside" and app.database.dialect.name == "sqlite":
        pytest.skip("SQLite has one writer: no process can take the claim while the block is open")
    problems: list[BaseException] = []

    def be_taken_for_dead() -> None:
        app.database.in_transaction(reclaim.remove_process, penstock.current()._around.process)
        app.database.in_transaction(reclaim.reclaim)

    @app.task
    def pay() -> None:
        job = penstock.current()
        if not job.recovered and lost == "before":
            be_taken_for_dead()
        try:
            with job.transaction() as connection:
                if not job.recovered and lost == "inside":
                    be_taken_for_dead()
                connection.execute(INSERT, {"note": f"attempt {job.attempt}"})
        except BaseException as error:
            problems.append(error)
            raise

    job = pay.enqueue()
    drain(app)
    drain(app)
    # Where transactions are serializable, the engine itself refuses what comes too late.
    refused = lost == "inside" and app.settings.profile == "distributed"
    assert [type(error).__name__ for error in problems] == [
        "DatabaseUnavailable" if refused else "CommitFailed"
    ]
    assert receipts(app) == ["attempt 2"]
    assert [attempt.outcome for attempt in job.attempts()] == ["crashed", "succeeded"]
    assert state(app, job.id)["retry_count"] == 0


def test_a_cancelled_job_completes_nothing(app: Penstock) -> None:
    @app.task
    def pay() -> None:
        app.job(penstock.current().id).cancel()
        with penstock.current().transaction() as connection:
            connection.execute(INSERT, {"note": "lost"})

    job = pay.enqueue()
    drain(app)
    assert job.status == "cancelled"
    assert receipts(app) == []


@pytest.mark.parametrize(
    ("point", "attempts"),
    [
        ("execute.before", ["crashed", "succeeded"]),
        ("effects.1", ["crashed", "succeeded"]),
        ("settle.1", ["crashed", "succeeded"]),
        ("effects.commit", ["crashed", "succeeded"]),
        ("effects.committed", ["succeeded"]),
        ("execute.after", ["succeeded"]),
        ("hand_over", ["crashed", "succeeded"]),
    ],
)
def test_the_effect_happens_exactly_once_wherever_it_dies(
    app: Penstock, point: str, attempts: list[str]
) -> None:
    @app.task(retries=Retry(max=0))
    def pay() -> None:
        with penstock.current().transaction() as connection:
            connection.execute(INSERT, {"note": "paid"})
            penstock.current().complete()

    job = pay.enqueue()
    with crash_at(point) as crash:
        drain(app)
    assert crash.crashed
    drain(app)
    assert receipts(app) == ["paid"]
    assert [attempt.outcome for attempt in job.attempts()] == attempts
    assert job.status == "succeeded"
    assert count(app, "claims") == 0


def test_a_second_transaction_inside_the_block_never_waits_for_the_first(app: Penstock) -> None:
    """SQLite has one writer, and says so at once; elsewhere the second simply goes its own way."""

    @app.task
    def follow() -> None: ...

    @app.task(retries=0)
    def pay() -> None:
        with penstock.current().transaction():
            follow.enqueue()
            raise LookupError

    job = pay.enqueue()
    drain(app)
    error = str(job.attempts()[0].error)
    if app.database.dialect.name == "sqlite":
        assert "enqueue with connection=" in error
        assert count(app, "jobs") == 1
    else:
        assert "LookupError" in error
        assert count(app, "jobs") == 2


def test_an_enqueue_inside_the_block_belongs_to_it(app: Penstock) -> None:
    @app.task
    def follow() -> None: ...

    @app.task(retries=Retry(max=1, delay=0))
    def pay() -> None:
        with penstock.current().transaction() as connection:
            follow.options(connection=connection).enqueue()
            if penstock.current().attempt == 1:
                raise ValueError

    pay.enqueue()
    assert drain(app) == 3
    assert count(app, "jobs") == 2


def test_statements_may_be_plain_text(app: Penstock) -> None:
    mark = "?" if app.database.dialect.name == "sqlite" else "%s"

    @app.task
    async def pay() -> object:
        job = penstock.current()
        async with job.transaction() as connection:
            connection.execute("INSERT INTO receipts VALUES ('a')")
            connection.execute("INSERT INTO receipts VALUES (:name)", {"name": "b"})
            connection.execute(f"INSERT INTO receipts VALUES ({mark})", ("c",))
            found = await connection.execute("SELECT COUNT(*) FROM receipts")
            job.complete(found.scalar())
        return None

    job = pay.enqueue()
    drain(app)
    assert job.result(timeout=0) == 3
