"""Promote: puts jobs that have become due into the queue, with a new sequence."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from penstock.database.dialect import Row
from penstock.database.transaction import Transaction
from penstock.queue import states
from penstock.queue.rules.queue_controls import REVISION
from penstock.values.status import JobStatus

DUE = "SELECT due_at, job_id, queue, tier, task FROM {scheduled} WHERE due_at <= {now}"
BUT = " AND NOT (job_id {among:left:uuid})"
ONLY = " AND job_id {among:only:uuid}"
FIRST = " ORDER BY due_at, job_id LIMIT :limit {lock_skip}"
REMOVE = "DELETE FROM {scheduled} WHERE due_at >= :first AND due_at <= :last AND job_id {among:ids:uuid}"
LOOK = f"""
SELECT MIN(due_at), {{now}}, EXISTS (SELECT 1 FROM {{parked}}), EXISTS (SELECT 1 FROM {{limits}}),
  (SELECT MIN(due_at) FROM {{schedules}}), {REVISION}
FROM {{scheduled}}"""


LOOK_BUT = " WHERE NOT (job_id {among:left:uuid})"


class DueReport(NamedTuple):
    """The work that housekeeping may have to do for jobs that cannot be claimed yet, read by one statement."""

    due: float | None
    """Seconds until something becomes due; None when nothing waits for its time."""
    parked: bool
    """True if a job waits for a limit."""
    limited: bool
    """True if limits are in use, or were a while ago."""
    tick: float | None
    """Seconds until a schedule is due; None when there is none."""
    controls: int
    """The revision of the controls of queues: another number, if one of them has changed."""


def promote(
    tx: Transaction, limit: int, left: Collection[str] = (), only: Collection[str] | None = None
) -> list[tuple[str, int]]:
    """Make due jobs available; the (queue, tier) of each. Cancelled ones only lose their row here.

    `left`: jobs that are set aside. `only`: of all that are due, these.
    """
    tx.stage("promote")
    tx.dialect.go_by_index(tx)
    due = _due(tx, limit, left, only)
    if not due:
        return []
    ids = sorted({str(row[1]) for row in due})
    tx.run(REMOVE, first=due[0][0], last=due[-1][0], ids=ids)
    waiting = states.lock_in(tx, ids, JobStatus.SCHEDULED)
    ready = [row for row in due if row[1] in waiting]
    if ready:
        states.promote(tx, sorted(waiting))
        rows = [
            {"job_id": job_id, "queue": queue, "tier": tier, "task": task}
            for _, job_id, queue, tier, task in ready
        ]
        states.put_in_place(tx, JobStatus.AVAILABLE, rows)
    return [(queue, tier) for _, _, queue, tier, _ in ready]


def due(tx: Transaction, limit: int, left: Collection[str] = ()) -> list[str]:
    """The jobs that `promote` would find."""
    return [str(row[1]) for row in _due(tx, limit, left)]


def _due(
    tx: Transaction, limit: int, left: Collection[str], only: Collection[str] | None = None
) -> list[Row]:
    template, given = DUE, {}
    if left:
        template, given = template + BUT, {"left": sorted(left)}
    if only is not None:
        template, given = template + ONLY, given | {"only": sorted(only)}
    return tx.rows(template + FIRST, limit=limit, **given)


def look(tx: Transaction, left: Collection[str] = ()) -> DueReport:
    """Read the report; writes nothing. `left`: jobs that are set aside."""
    row = tx.row(LOOK + LOOK_BUT, left=sorted(left)) if left else tx.row(LOOK)
    assert row is not None
    due, now, parked, limited, tick, controls = row
    return DueReport(until(due, now), bool(parked), bool(limited), until(tick, now), int(controls))


def until(due: int | None, now: int) -> float | None:
    """Seconds from now until an instant, at least 0; None: never.

    Stored times are only compared in SQL, and subtracted here: the database refuses a difference that does not fit.
    """
    return None if due is None else max(0.0, (int(due) - int(now)) / 1_000_000)
