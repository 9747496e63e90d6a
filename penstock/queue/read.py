"""Looking at one job: where it stands, what it returned, what its attempts were."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.database.transaction import Transaction
from penstock.values.status import JobStatus, Reason

STANDING = "SELECT status, reason, generation FROM {job_states} WHERE job_id = :id"
OUTPUT = """
SELECT output FROM {executions} WHERE job_id = :id AND outcome = 'succeeded' ORDER BY generation DESC LIMIT 1
"""
LAST_ERROR = """
SELECT error_type, error FROM {executions} WHERE job_id = :id AND error_type IS NOT NULL
ORDER BY generation DESC LIMIT 1
"""
ATTEMPTS = """
SELECT generation, process_id, started_at, finished_at, outcome, error_type, error, traceback
FROM {executions} WHERE job_id = :id ORDER BY generation
"""
DESCRIPTION = """
SELECT task, queue, priority, payload, created_at, run_id, node, path FROM {jobs} WHERE id = :id
"""
JOBS_OF = """
SELECT j.id, j.queue, s.status, j.payload FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id
WHERE j.task = :task ORDER BY j.id
"""
PROGRESS = "SELECT fraction, message FROM {progress} WHERE job_id = :id"


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a job stands and, if it is over, how that came."""

    status: JobStatus
    reason: Reason | None
    output: str | None = None
    error: str = ""


def standing(tx: Transaction, id: str) -> Standing | None:
    """The job's status; once it is terminal, with its output or its last error."""
    row = tx.row(STANDING, id=id)
    if row is None:
        return None
    status = JobStatus(row[0])
    reason = Reason(row[1]) if row[1] else None
    if status is JobStatus.SUCCEEDED:
        output = tx.row(OUTPUT, id=id)
        return Standing(status, reason, output[0] if output else None)
    if status.terminal:
        error = tx.row(LAST_ERROR, id=id)
        return Standing(status, reason, error=f"{error[0]}: {error[1]}" if error else "")
    return Standing(status, reason)


def jobs_of(tx: Transaction, task: str) -> list[tuple[str, str, str, str]]:
    """Every job of a task, oldest first: id, queue, status, payload. For tests: it walks the table."""
    return [(str(id), queue, status, payload) for id, queue, status, payload in tx.rows(JOBS_OF, task=task)]
