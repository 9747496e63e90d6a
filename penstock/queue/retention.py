"""Retention: finished work goes after a while, in batches, oldest first.

Ids are ordered by time, so a walk along the key finds the oldest without an index of its own. The walk goes on from
where it stopped; what is not finished is passed over.
"""

from __future__ import annotations

from penstock.database.transaction import Transaction

CANDIDATES = """
SELECT s.job_id, s.finished_at < {now} - :age FROM {job_states} s
WHERE s.job_id > :after ORDER BY s.job_id LIMIT :limit
"""
PRUNABLE = """
SELECT s.job_id FROM {job_states} s JOIN {jobs} j ON j.id = s.job_id
WHERE s.job_id {among:ids:uuid} AND s.finished_at < {now} - :age AND j.run_id IS NULL
ORDER BY s.job_id {lock_skip}
"""
KEYED = "SELECT task, job_key FROM {jobs} WHERE id {among:ids:uuid} AND job_key IS NOT NULL ORDER BY task, job_key"
FORGET_KEY = "DELETE FROM {job_keys} WHERE task = :task AND job_key = :key"
REMOVALS = (
    "DELETE FROM {executions} WHERE job_id {among:ids:uuid}",
    "DELETE FROM {dead_letters} WHERE job_id {among:ids:uuid}",
    "DELETE FROM {markers} WHERE idempotency_key {among:ids:uuid}",
    "DELETE FROM {progress} WHERE job_id {among:ids:uuid}",
    "DELETE FROM {parked} WHERE job_id {among:ids:uuid}",
    "DELETE FROM {job_states} WHERE job_id {among:ids:uuid}",
    "DELETE FROM {jobs} WHERE id {among:ids:uuid}",
)


def prune(tx: Transaction, age: float, after: str, limit: int) -> tuple[int, str | None]:
    """Remove finished jobs older than `age` seconds; how many, and where to go on (None: the end is reached)."""
    tx.stage("prune")
    micros = int(age * 1_000_000)
    rows = tx.rows(CANDIDATES, age=micros, after=after, limit=limit)
    old = [str(job_id) for job_id, is_old in rows if is_old]
    ids = [str(row[0]) for row in tx.rows(PRUNABLE, ids=old, age=micros)] if old else []
    if ids:
        for task, key in tx.rows(KEYED, ids=ids):
            tx.run(FORGET_KEY, task=task, key=key)
        for removal in REMOVALS:
            tx.run(removal, ids=ids)
    return len(ids), str(rows[-1][0]) if len(rows) == limit else None
