"""Steps that wait without a worker: for a signal, for a child run. What they wait for ends them, exactly once.

The transaction that ends such a step locks its state and finds it `waiting`; if another was faster, nothing happens.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from penstock.database.transaction import Transaction
from penstock.queue.jobs import EndedStep
from penstock.values.status import JobStatus, OutcomeKind, Reason

LOCK = """
SELECT job_id, generation FROM {job_states} {by_key}
WHERE job_id {among:ids:uuid} AND status = 'waiting' ORDER BY job_id {lock}
"""
PLACES = "SELECT id, run_id, node, path, created_at FROM {jobs} WHERE id {among:ids:uuid}"
END = """
UPDATE {job_states} {by_key} SET status = :status, reason = :reason, generation = generation + 1, finished_at = {now}
WHERE job_id {among:ids:uuid}
"""
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
    generations: dict[str, int] = dict(tx.rows(LOCK, ids=sorted(conclusions)))
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
        attempts.append(
            {
                "job_id": id,
                "generation": generations[id] + 1,
                "started_at": created,
                "outcome": OUTCOMES[how.status].value,
                "output": how.output,
                "error_type": how.reason.value if how.reason is not None else None,
                "error": how.error,
            }
        )
    tx.insert("executions", attempts, finished_at="{now}")
    for (status, reason), ids in groups.items():
        tx.run(END, status=status.value, reason=reason.value if reason is not None else None, ids=ids)
    return ended
