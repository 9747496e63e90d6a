"""Tables full of rows that do not concern the batch, and statistics taken when they were not, or when they were."""

from __future__ import annotations

from collections.abc import Sequence

from penstock import Penstock
from penstock.database.transaction import Transaction
from tests.plans.scenes import Play

ROWS = 20_000
AFEW = 6
"""So often a statement is planned anew before a plan of it is kept."""
STATES = ("empty", "full", "ended")
COPIED = {"runs": "id", "jobs": "id", "job_states": "job_id", "executions": "job_id"}
"""Of each table, the column that has to differ."""
OTHERS = {"run_id": "r"}
QUEUED = """
INSERT INTO {availabilities} (queue, tier, job_id, task)
SELECT 'history', 0, CAST(md5('j' || n) AS uuid), 'element' FROM generate_series(1, :rows) AS n
"""
COLUMNS = "SELECT column_name FROM information_schema.columns WHERE table_name = :table"


def prepare(app: Penstock, plays: Sequence[Play], state: str) -> None:
    """Statistics of empty tables, and plans that were made then; of a full queue; or of jobs that have all ended."""
    app.database.in_transaction(lambda tx: tx.run("ANALYZE"))
    for play in plays:
        for _ in range(AFEW if state == "empty" else 1):
            play(2)
    app.database.in_transaction(_fill, "available" if state == "full" else "succeeded")
    if state != "empty":
        app.database.in_transaction(lambda tx: tx.run("ANALYZE"))


def _fill(tx: Transaction, status: str) -> None:
    for table, key in COPIED.items():
        mark = "r" if table == "runs" else "j"
        names = [str(row[0]) for row in tx.rows(COLUMNS, table=f"penstock_{table}")]
        values = {name: name for name in names} | {key: _made(mark)}
        values |= {name: _made(other) for name, other in OTHERS.items() if name in names}
        if table == "job_states":
            values["status"] = f"'{status}'"
        tx.run(
            f"INSERT INTO {{{table}}} ({', '.join(names)}) SELECT {', '.join(values[name] for name in names)} "
            f"FROM (SELECT * FROM {{{table}}} LIMIT 1) AS one, generate_series(1, :rows) AS n",
            rows=ROWS,
        )
    if status == "available":
        tx.run(QUEUED, rows=ROWS)


def _made(mark: str) -> str:
    return f"CAST(md5('{mark}' || n) AS uuid)"
