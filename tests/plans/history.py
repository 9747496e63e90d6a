"""Tables full of rows that do not concern the batch, and statistics taken when they were not, or when they were."""

from __future__ import annotations

from collections.abc import Sequence

from penstock import Penstock
from penstock.database.transaction import Transaction
from tests.plans import scenes
from tests.plans.scenes import Play

ROWS = 20_000
OTHER_ROWS = 3_000
"""Of schedules, and of the user's rows."""
AFEW = 6
"""So often a statement is planned anew before a plan of it is kept."""
STATES = ("empty", "full", "ended")
COPIED = {"runs": "id", "jobs": "id", "job_states": "job_id", "executions": "job_id"}
"""Of each table, the column that has to differ."""
OTHERS = {"run_id": "r"}
DIGITS = f"({' UNION ALL '.join(f'SELECT {digit} AS d' for digit in range(10))})"
NUMBERS = f"""
SELECT 1 + a.d + 10 * b.d + 100 * c.d + 1000 * d.d + 10000 * e.d AS n
FROM {DIGITS} AS a, {DIGITS} AS b, {DIGITS} AS c, {DIGITS} AS d, {DIGITS} AS e HAVING n <= {ROWS}
"""
"""MySQL has no series of numbers, unlike MariaDB."""
SERIES = {
    "postgresql": f"generate_series(1, {ROWS}) AS n",
    "mysql": f"({NUMBERS}) AS numbers",
}
UUID = {
    "postgresql": "CAST(md5('{mark}' || n) AS uuid)",
    "mysql": (
        "INSERT(INSERT(INSERT(INSERT(LEFT(SHA2(CONCAT('{mark}', n), 256), 32), 9, 0, '-'), 14, 0, '-'), 19, 0, '-'), "
        "24, 0, '-')"
    ),
}
QUEUED = "INSERT INTO {availabilities} (queue, tier, job_id, task) SELECT 'history', 0, %s, 'element' FROM %s"
COLUMNS = "SELECT column_name FROM information_schema.columns WHERE table_name = :table AND table_schema = "
SCHEMA = {"postgresql": "current_schema()", "mysql": "DATABASE()"}


def prepare(app: Penstock, plays: Sequence[Play], state: str) -> None:
    """Statistics of empty tables, and plans that were made then; of a full queue; or of jobs that have all ended."""
    app.prepare()
    _analyze(app)
    for play in plays:
        for _ in range(AFEW if state == "empty" else 1):
            play(2)
    app.database.in_transaction(_fill, "available" if state == "full" else "succeeded")
    scenes.fill(app, OTHER_ROWS)
    if state != "empty":
        _analyze(app)


def _analyze(app: Penstock) -> None:
    tables = [table.name for table in app.metadata.tables.values()] + [scenes.Widget.__tablename__]
    every = f"ANALYZE TABLE {', '.join(tables)}" if app.database.dialect.name == "mysql" else "ANALYZE"
    app.database.in_transaction(lambda tx: tx.run(every))


def _fill(tx: Transaction, status: str) -> None:
    kind = tx.dialect.name
    for table, key in COPIED.items():
        mark = "r" if table == "runs" else "j"
        names = [str(row[0]) for row in tx.rows(COLUMNS + SCHEMA[kind], table=f"penstock_{table}")]
        values = {name: name for name in names} | {key: _made(kind, mark)}
        values |= {other: _made(kind, made) for other, made in OTHERS.items() if other in names}
        if table == "job_states":
            values["status"] = f"'{status}'"
        tx.run(
            f"INSERT INTO {{{table}}} ({', '.join(names)}) SELECT {', '.join(values[name] for name in names)} "
            f"FROM (SELECT * FROM {{{table}}} LIMIT 1) AS one, {SERIES[kind]}"
        )
    if status == "available":
        tx.run(QUEUED % (_made(kind, "j"), SERIES[kind]))


def _made(dialect: str, mark: str) -> str:
    return UUID[dialect].format(mark=mark)
