"""Promote: what has become due gets a place in the queue, with a fresh sequence."""

from __future__ import annotations

from typing import NamedTuple

from penstock.database.transaction import Transaction

DUE = """
SELECT due_at, job_id, queue, tier, task FROM {scheduled}
WHERE due_at <= {now} ORDER BY due_at, job_id LIMIT :limit {lock_skip}
"""
REMOVE = "DELETE FROM {scheduled} WHERE due_at >= :first AND due_at <= :last AND job_id {among:ids:uuid}"
STILL_SCHEDULED = """
SELECT job_id FROM {job_states} {by_key}
WHERE job_id {among:ids:uuid} AND status = 'scheduled' ORDER BY job_id {lock}
"""
PROMOTE = (
    "UPDATE {job_states} {by_key} SET status = 'available', due_at = {now} WHERE job_id {among:ids:uuid}"
)
LOOK = """
SELECT MIN(due_at) - {now}, EXISTS (SELECT 1 FROM {parked}), EXISTS (SELECT 1 FROM {limits}) FROM {scheduled}
"""


class Look(NamedTuple):
    """What there may be to do for jobs that nobody can claim, in one statement: most of the time it is nothing."""

    due: float | None
    """Seconds until something becomes due; None when nothing waits for its time."""
    parked: bool
    """Something waits for a limit."""
    limited: bool
    """Limits are in use, or were a while ago."""


def promote(tx: Transaction, limit: int) -> list[tuple[str, int]]:
    """Make due jobs available; the (queue, tier) of each. Cancelled ones only lose their row here."""
    tx.stage("promote")
    due = tx.rows(DUE, limit=limit)
    if not due:
        return []
    ids = sorted({str(row[1]) for row in due})
    tx.run(REMOVE, first=due[0][0], last=due[-1][0], ids=ids)
    waiting = {str(row[0]) for row in tx.rows(STILL_SCHEDULED, ids=ids)}
    ready = [row for row in due if row[1] in waiting]
    if ready:
        tx.run(PROMOTE, ids=sorted(waiting))
        rows = [
            {"job_id": job_id, "queue": queue, "tier": tier, "task": task}
            for _, job_id, queue, tier, task in ready
        ]
        tx.insert("availabilities", rows)
    return [(queue, tier) for _, _, queue, tier, _ in ready]


def look(tx: Transaction) -> Look:
    """Read only."""
    row = tx.row(LOOK)
    assert row is not None
    due, parked, limited = row
    return Look(None if due is None else max(0.0, float(due) / 1_000_000), bool(parked), bool(limited))
