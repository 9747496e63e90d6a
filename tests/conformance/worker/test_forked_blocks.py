"""database/user/transactions: a process that is forked inside a transaction: it is the parent's, and the child can
do nothing to it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection

import penstock
from penstock import Penstock
from penstock.errors import DatabaseError
from penstock.testing import drain
from tests.conformance.reconcile.cloud import Cloud, Volume
from tests.conformance.rows import rows
from tests.conformance.worker.test_forked_apps import in_a_fork

REFUSED, RAISED, CAME_BACK = 3, 4, 5
WRITE = "INSERT INTO ledger (entry) VALUES ('charge')"
Block = Callable[[Callable[[Connection], None]], None]


@pytest.fixture
def app(app: Penstock) -> Penstock:
    with app.database.engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE ledger (entry VARCHAR(20))")
    return app


@contextmanager
def children_end_here() -> Iterator[None]:
    here = os.getpid()
    try:
        yield
    except BaseException as error:
        if os.getpid() != here:
            os._exit(REFUSED if isinstance(error, DatabaseError) else RAISED)
        raise
    finally:
        if os.getpid() != here:
            os._exit(CAME_BACK)


@pytest.fixture(params=["job.transaction", "app.lock"])
def block(app: Penstock, request: pytest.FixtureRequest) -> Block:
    """Runs something inside a block."""

    def of_a_job(inside: Callable[[Connection], None]) -> None:
        @app.task(name="effect", retries=0)
        def effect() -> str:
            job = penstock.current()
            with children_end_here(), job.transaction() as connection:
                inside(connection)
                job.complete("charged")
            return "charged"

        job: Any = effect.enqueue()
        drain(app)
        assert job.result(0) == "charged"
        assert len(job.attempts()) == 1

    def of_a_lock(inside: Callable[[Connection], None]) -> None:
        Cloud(app).volumes(1)
        with children_end_here(), app.lock(Volume, 1) as connection:
            inside(connection)

    return of_a_job if request.param == "job.transaction" else of_a_lock


def writes(connection: Connection) -> None:
    connection.exec_driver_sql(WRITE)


def leaves(_: Connection) -> None:
    """As if its work were done."""


def fails(_: Connection) -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize(("act", "code"), [(writes, REFUSED), (leaves, REFUSED), (fails, RAISED)])
def test_what_a_child_does_there_is_nothing_to_its_parent(
    app: Penstock, block: Block, act: Callable[[Connection], None], code: int
) -> None:
    codes: list[int] = []

    def inside(connection: Connection) -> None:
        writes(connection)
        child = os.fork()
        if child:
            codes.append(ended(child))
        else:
            act(connection)

    block(inside)
    assert codes == [code]
    assert rows(app, "SELECT COUNT(*) FROM ledger") == [(1,)]


@pytest.mark.parametrize(("error", "code"), [(None, REFUSED), (ZeroDivisionError, RAISED)])
def test_nor_does_a_child_wait_for_the_thread_of_an_async_block(
    app: Penstock, error: type[Exception] | None, code: int
) -> None:
    @app.task(name="effect", retries=0)
    async def effect() -> int:
        job = penstock.current()
        with children_end_here():
            async with job.transaction() as connection:
                await connection.exec_driver_sql(WRITE)
                child = os.fork()
                if not child and error is not None:
                    raise error
                if child:
                    job.complete(ended(child))
        return 0

    job: Any = effect.enqueue()
    drain(app)
    assert job.result(0) == code
    assert rows(app, "SELECT COUNT(*) FROM ledger") == [(1,)]


def test_a_child_of_a_block_has_connections_of_its_own_or_none(
    app: Penstock, block: Block, database_kind: str
) -> None:
    """A SQLite file that is open when its process is forked loses what the child would write: it is refused."""
    note: Any = app.task(name="note")(lambda: None)

    def child() -> None:
        if database_kind != "sqlite":
            note.enqueue()
            return
        for use in (note.enqueue, app.runs, lambda: note.enqueue_many([()])):
            with pytest.raises(DatabaseError, match="forked"):
                use()

    codes: list[int] = []
    block(lambda _: codes.append(ended(in_a_fork(child))))
    codes.append(ended(in_a_fork(note.enqueue)))
    assert codes == [0, 0]
    note.enqueue()
    found = rows(app, "SELECT COUNT(*) FROM {jobs} WHERE task = 'note'")[0][0]
    assert found == (2 if database_kind == "sqlite" else 3)


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
