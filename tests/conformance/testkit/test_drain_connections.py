"""testing/drain: `drain` again and again: a connection costs the server more than a job, so the next drain has that
of the last.
"""

import pytest

from penstock import Penstock
from penstock.task import Task
from penstock.testing import crash_at, drain


@pytest.fixture
def nothing(app: Penstock) -> Task:
    @app.task
    def nothing() -> None: ...

    return nothing


def test_a_drain_leaves_its_connection_to_the_next_until_the_app_is_closed(
    app: Penstock, nothing: Task, database_kind: str
) -> None:
    used = []
    for _ in range(3):
        nothing.enqueue()
        assert drain(app) == 1
        kept = app.database.connections.dedicated.take()
        assert (kept is not None) == (database_kind == "postgres"), "elsewhere it goes back to the pool"
        if kept is not None:
            used.append(kept.driver_connection)
            assert app.database.connections.dedicated.keep(kept)
    assert len(set(map(id, used))) <= 1
    app.close()
    assert all(driver.closed for driver in used)


def test_what_a_crash_leaves_is_not_kept(app: Penstock, nothing: Task) -> None:
    job = nothing.enqueue()
    with crash_at("settle.1") as crash:
        drain(app)
    assert crash.crashed
    assert app.database.connections.dedicated.take() is None
    drain(app)
    assert [attempt.outcome for attempt in job.attempts()] == ["crashed", "succeeded"]


def test_connections_that_were_cut_meanwhile_are_replaced(
    app: Penstock, nothing: Task, database_kind: str
) -> None:
    if database_kind != "postgres":
        pytest.skip("no connection is kept")
    nothing.enqueue()
    drain(app)
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> "
    job = nothing.enqueue()
    app.database.in_transaction(lambda tx: tx.rows(others + "pg_backend_pid()"))
    assert drain(app) == 1
    assert [attempt.outcome for attempt in job.attempts()] == ["succeeded"]
