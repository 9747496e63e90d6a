"""No page of the dashboard walks through history: what its statements read does not grow with what is finished.

On PostgreSQL and MariaDB the rows are counted that each statement touches; on SQLite its plan must not scan a table
that grows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

pytest.importorskip("jinja2", reason="Jinja2 is not installed")

from penstock import Penstock
from penstock.dashboard import Request, Viewer, troubles
from penstock.database.cursor_dialect import ByCursor
from penstock.queue import tallies
from tests.pages import addresses
from tests.plans.measuring import counting, measuring
from tests.plans.page_history import History, add_history, make_history
from tests.plans.test_linear import shown

ROWS = 12_000
"""Of each kind of history, at first; then twice as many. Counts end at 10,000 of whatever is counted."""
MORE = 1.3
"""So many times as many rows may a statement touch when there is twice as much history."""
FEW = 15_000
"""Fewer are not all of anything: a walk looks at some thousands of jobs at a time, by one plan or another."""
QUEUES, READY = 8, 400
FILTERED = [
    "/jobs?status=failed",
    "/jobs?status=failed&task=nothing",
    "/jobs?status=succeeded",
    "/jobs?status=available&queue=default",
    "/jobs?task=done",
    "/jobs?task=nothing",
    "/jobs?queue=nothing",
    "/runs?status=failed",
    "/runs?status=running",
    "/runs?pipeline=small",
    "/runs?pipeline=nothing",
    "/runs?pipeline=fan&status=failed",
    "/runs?label=nothing",
    "/runs?key=nothing",
]
GROWING = ("jobs", "job_states", "executions", "dead_letters", "runs", "audits", "schedule_ticks", "joins")


def visit(app: Penstock, history: History) -> None:
    """Every page, and the filters that people use; with the next page of each list."""
    board = app.dashboard(guard=lambda _: Viewer("ann", "all"))
    for path in every_address(history):
        answer = ask(board, path)
        assert answer.status in (200, 303), (path, answer.body[:500])


def ask(board: Any, path: str) -> Any:
    where, _, query = path.partition("?")
    fields = {name: [value] for name, value in (part.split("=") for part in query.split("&") if part)}
    return board.respond(Request("GET", where, query=fields))


def every_address(history: History) -> list[str]:
    ids = {"jobs": [history.job, history.dead], "runs": [history.run, history.large_run]}
    views = {
        f"/runs/{history.large_run}": ["step=done", "step=done&state=failed", "step=done&path=7"],
        f"/runs/{history.run}": ["step=done"],
        "/jobs/new": ["task=done"],
    }
    found = addresses(ids, {"pipeline": ["small", "fan"], "schedule": []}, views)
    return [*found, *FILTERED]


def test_postgres_touches_no_history(postgres_url: str, app_on: Callable[..., Penstock]) -> None:
    app = app_on(postgres_url)
    history = make_history(app, ROWS)
    before = _touched(app, history)
    add_history(app, history, ROWS + 1, 2 * ROWS)
    for analysed in (False, True):
        if analysed:
            app.database.in_transaction(lambda tx: tx.run("ANALYZE"))
        after = _touched(app, history)
        assert len(after) > 3
        slow = [
            f"{before.get(sql, (0,))[0]}, then {rows}: {sql}\n{shown(plan)}"
            for sql, (rows, plan) in after.items()
            if rows > max(FEW, MORE * before.get(sql, (0,))[0])
        ]
        assert not slow, "\n\n".join(slow)


EAGER = (
    "parallel_setup_cost",
    "parallel_tuple_cost",
    "min_parallel_table_scan_size",
    "min_parallel_index_scan_size",
)


def test_postgres_starts_no_parallel_workers(
    postgres_url: str, app_on: Callable[..., Penstock], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To start two processes for fifty rows costs more than the page, and takes it from a drain beside it.

    The doctor, which examines in a thread of its own every half minute, is not asked here.
    """
    monkeypatch.setattr(troubles, "QUICK", ())
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for name in EAGER:
            connection.execute(f"ALTER DATABASE {connection.info.dbname} SET {name} = 0".encode())
    app = app_on(postgres_url)
    history = make_history(app, 500)
    app.database.in_transaction(lambda tx: tx.run("ANALYZE"))
    with measuring() as measured:
        visit(app, history)
    found = {sql: plan for sql, (_, plan) in measured.most().items() if "Gather" in str(plan)}
    assert not found, "\n\n".join(f"{sql}\n{shown(plan)}" for sql, plan in found.items())


def _touched(app: Penstock, history: History) -> dict[str, tuple[int, Any]]:
    with measuring() as measured:
        visit(app, history)
    return measured.most()


@pytest.mark.own_database
def test_mariadb_reads_no_history(mariadb_url: str, app_on: Callable[..., Penstock]) -> None:
    app = app_on(mariadb_url)
    history = make_history(app, ROWS)
    with counting() as before:
        visit(app, history)
    add_history(app, history, ROWS + 1, 2 * ROWS)
    with counting() as after:
        visit(app, history)
    slow = [
        f"{before.get(sql, 0)}, then {rows}: {sql}"
        for sql, rows in after.items()
        if rows > max(FEW, MORE * before.get(sql, 0))
    ]
    assert not slow, "\n\n".join(slow)


def test_mariadb_finds_queues_by_probes(mariadb_url: str, app_on: Callable[..., Penstock]) -> None:
    """Which queues there are is read from the index, queue by queue: not from the jobs that are ready in them."""
    app = app_on(mariadb_url)
    for number in range(QUEUES):
        task = app.task(name=f"task-{number}", queue=f"queue-{number}")(_nothing)
        task.enqueue_many([(one,) for one in range(READY)])
    with counting() as read:
        found = app.database.read(tallies.queue_lengths, 10)
    assert {queue: length for queue, (length, _) in found.items()} == {
        f"queue-{number}": 10 for number in range(QUEUES)
    }
    slow = {sql: rows for sql, rows in read.items() if rows > QUEUES * 50}
    assert not slow, slow


def _nothing(number: int) -> None: ...


def test_sqlite_scans_nothing_that_grows(sqlite_url: str, app_on: Callable[..., Penstock]) -> None:
    app = app_on(sqlite_url)
    history = make_history(app, 50)
    with plans() as found:
        visit(app, history)
    scan = re.compile(rf"SCAN (?:penstock_)?(?:{'|'.join(GROWING)})(?! USING)\b")
    slow = {sql: plan for sql, plan in found.items() if scan.search(plan) and " LIMIT " not in sql.upper()}
    assert not slow, "\n\n".join(f"{sql}\n{plan}" for sql, plan in slow.items())


@contextmanager
def plans() -> Iterator[dict[str, str]]:
    """The plan of every statement that SQLite executes inside."""
    found: dict[str, str] = {}
    execute = ByCursor.execute

    def explained(dialect: ByCursor, driver: Any, opened: object, sql: str, parameters: Any) -> Any:
        if sql.lstrip().upper().startswith(("SELECT", "WITH")):
            told = driver.execute(f"EXPLAIN QUERY PLAN {sql}", parameters).fetchall()
            found[sql] = "\n".join(str(row[-1]) for row in told)
        return execute(dialect, driver, opened, sql, parameters)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ByCursor, "execute", explained)
        yield found
