"""Retention: removes finished jobs after a while, in batches, oldest first.

Ids are ordered by time, so a walk along the key finds the oldest without an index of its own. The walk goes on from
where it stopped; what is not finished is passed over.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.database.transaction import Transaction

CANDIDATES = """
SELECT s.job_id, s.finished_at <= {now} - :age FROM {job_states} s
WHERE s.job_id > :after ORDER BY s.job_id LIMIT :limit
"""
PRUNABLE = """
SELECT s.job_id FROM {job_states} s JOIN {jobs} j ON j.id = s.job_id
WHERE s.job_id {among:ids:uuid} AND s.finished_at <= {now} - :age AND j.run_id IS NULL
ORDER BY s.job_id {lock_skip}
"""
KEYED = """
SELECT task, job_key, id FROM {jobs} WHERE id {among:ids:uuid} AND job_key IS NOT NULL ORDER BY task, job_key
"""
# A later job may hold the key by now.
FORGET_KEY = "DELETE FROM {job_keys} WHERE task = :task AND job_key = :key AND job_id = :id"
REMOVALS = (
    "DELETE FROM {executions} WHERE job_id {among:ids:uuid}",
    "DELETE FROM {dead_letters} WHERE job_id {among:ids:uuid}",
    "DELETE FROM {markers} WHERE idempotency_key {among:ids:uuid}",
    "DELETE FROM {progress} WHERE job_id {among:ids:uuid}",
    "DELETE FROM {parked} WHERE job_id {among:ids:uuid}",
    "DELETE FROM {job_labels} WHERE job_id {among:ids:uuid}",
    "DELETE FROM {job_followers} WHERE job_id {among:ids:uuid}",
    "DELETE FROM {job_states} WHERE job_id {among:ids:uuid}",
    "DELETE FROM {jobs} WHERE id {among:ids:uuid}",
)
OLD_TICKS = """
SELECT schedule_id, nominal_at, kind FROM {schedule_ticks} WHERE decided_at <= {now} - :age
ORDER BY decided_at LIMIT :limit
"""
REMOVE_TICK = """
DELETE FROM {schedule_ticks} WHERE schedule_id = :id AND nominal_at = :nominal AND kind = :kind AND outcome <> 'waiting'
"""


def prune(tx: Transaction, age: float, after: str, limit: int) -> tuple[int, str | None]:
    """Remove finished jobs older than `age` seconds; how many, and where to go on (None: the end is reached)."""
    old, reached = candidates(tx, age, after, limit)
    return remove(tx, age, old), reached


def candidates(tx: Transaction, age: float, after: str, limit: int) -> tuple[list[str], str | None]:
    """Finished jobs of that age among the next ones, and where to go on."""
    tx.stage("prune")
    rows = tx.rows(CANDIDATES, age=int(age * 1_000_000), after=after, limit=limit)
    reached = str(rows[-1][0]) if len(rows) == limit else None
    return [str(job_id) for job_id, is_old in rows if is_old], reached


def remove(tx: Transaction, age: float, old: Sequence[str]) -> int:
    """Remove those of these jobs that are still old enough and that no other process has locked; returns how many."""
    micros = int(age * 1_000_000)
    ids = [str(row[0]) for row in tx.rows(PRUNABLE, ids=old, age=micros)] if old else []
    if ids:
        for task, key, id in tx.rows(KEYED, ids=ids):
            tx.run(FORGET_KEY, task=task, key=key, id=id)
        for removal in REMOVALS:
            tx.run(removal, ids=ids)
    return len(ids)


def delete(tx: Transaction, id: str) -> None:
    """Remove a job that is locked and not running, with all its rows.

    A claim drops the row that may be left in a queue.
    """
    for task, key, _ in tx.rows(KEYED, ids=[id]):
        tx.run(FORGET_KEY, task=task, key=key, id=id)
    for removal in REMOVALS:
        tx.run(removal, ids=[id])


def prune_ticks(tx: Transaction, age: float, limit: int) -> bool:
    """Remove the oldest ticks of schedules; True if there may be more. A removed tick does not fire again."""
    tx.stage("prune_ticks")
    found = tx.rows(OLD_TICKS, age=int(age * 1_000_000), limit=limit)
    for id, nominal, kind in found:
        tx.run(REMOVE_TICK, id=id, nominal=nominal, kind=kind)
    return len(found) == limit
