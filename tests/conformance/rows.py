"""Looking at the rows themselves, where what users see is not enough."""

from typing import Any

from penstock import Penstock

TABLES = (
    "jobs",
    "job_states",
    "availabilities",
    "scheduled",
    "claims",
    "executions",
    "job_keys",
    "processes",
)


def count(app: Penstock, table: str) -> int:
    return int(rows(app, f"SELECT count(*) FROM {{{table}}}")[0][0])


def counts(app: Penstock) -> dict[str, int]:
    return {table: count(app, table) for table in TABLES}


def rows(app: Penstock, sql: str, **parameters: object) -> list[tuple[Any, ...]]:
    return app.database.read(lambda tx: tx.rows(sql, **parameters))


def state(app: Penstock, job_id: str) -> dict[str, Any]:
    columns = ("status", "token", "generation", "retry_count", "crash_count", "cancel_requested", "reason")
    (row,) = rows(app, f"SELECT {', '.join(columns)} FROM {{job_states}} WHERE job_id = :id", id=job_id)
    return dict(zip(columns, row, strict=True))
