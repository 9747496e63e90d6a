"""Steps that wait without a worker: for a signal, for a child run. What they wait for ends them, exactly once.

The transaction that ends such a step locks its state and finds it `waiting`; if another was faster, nothing happens.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from penstock.database.transaction import Transaction
from penstock.queue import states
from penstock.queue.jobs import EndedStep
from penstock.values.status import JobStatus, OutcomeKind, Reason

PLACES = "SELECT id, run_id, node, path, created_at FROM {jobs} WHERE id {among:ids:uuid}"
OUTCOMES = {
    JobStatus.SUCCEEDED: OutcomeKind.SUCCEEDED,
    JobStatus.CANCELLED: OutcomeKind.CANCELLED,
    JobStatus.FAILED: OutcomeKind.ERRORED,
}


class WaitResult(NamedTuple):
    """How a waiting step ends."""

    status: JobStatus
    output: str | None = None
    reason: Reason | None = None
    error: str | None = None
    kept: bool = False
    """So it has ended in an earlier run."""


def finish_waiting(tx: Transaction, conclusions: Mapping[str, WaitResult]) -> list[EndedStep]:
    """End those of these steps, by job id, that still wait; what is to follow."""
    if not conclusions:
        return []
    generations = states.lock_in(tx, sorted(conclusions), JobStatus.WAITING)
    if not generations:
        return []
    groups: dict[tuple[JobStatus, Reason | None], list[str]] = defaultdict(list)
    ended, attempts = [], []
    for id, run, node, path, created in tx.rows(PLACES, ids=sorted(generations)):
        how = conclusions[id]
        groups[how.status, how.reason].append(id)
        end = EndedStep(
            id, run, node, path or "", how.status, how.reason, how.output, how.error, kept=how.kept
        )
        ended.append(end)
        if how.status is JobStatus.SKIPPED:
            continue  # nothing was waited for to the end: no attempt
        attempt = states.Execution(id, generations[id] + 1, OUTCOMES[how.status], created)
        error_type = how.reason.value if how.reason is not None else None
        attempts.append(attempt._replace(output=how.output, error_type=error_type, error=how.error))
    states.record(tx, attempts)
    for (status, reason), ids in groups.items():
        states.end_unclaimed(tx, ids, status, reason)
    return ended
