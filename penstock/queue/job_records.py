"""Reads one job: its state, its result, its attempts, its progress and its `once()` values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.database.dialect import Row
from penstock.database.transaction import Transaction
from penstock.values.status import JobStatus, Reason

STATE = "SELECT status, reason, generation FROM {job_states} WHERE job_id = :id"
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
DETAILS = """
SELECT j.task, j.queue, j.priority, j.payload, j.options, j.job_key, j.run_id, j.created_at, s.status, s.reason,
  s.claimed_at, s.finished_at, s.retry_count, s.crash_count, s.generation,
  CASE WHEN s.status = 'scheduled' THEN (SELECT MIN(d.due_at) FROM {scheduled} d WHERE d.job_id = j.id) END, l.label
FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id LEFT JOIN {job_labels} l ON l.job_id = j.id
WHERE j.id = :id ORDER BY l.label
"""
JOBS_OF = """
SELECT j.id, j.queue, s.status, j.payload FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id
WHERE j.task = :task ORDER BY j.id
"""
MOVEMENT = """
SELECT s.status, s.generation, p.fraction, p.message, s.reason
FROM {job_states} s LEFT JOIN {progress} p ON p.job_id = s.job_id WHERE s.job_id = :id
"""
PROGRESS = "SELECT fraction, message FROM {progress} WHERE job_id = :id"


@dataclass(frozen=True, slots=True)
class JobState:
    """The status of a job; if it has ended, with its output, or its reason and last error."""

    status: JobStatus
    reason: Reason | None
    output: str | None = None
    error: str = ""


def state_of(tx: Transaction, id: str) -> JobState | None:
    """The job's status; once it is terminal, with its output or its last error."""
    row = tx.row(STATE, id=id)
    if row is None:
        return None
    status = JobStatus.stored(row[0])
    reason = Reason.stored(row[1]) if row[1] and status.terminal else None
    if status is JobStatus.SUCCEEDED:
        output = tx.row(OUTPUT, id=id)
        return JobState(status, reason, output[0] if output else None)
    if status.terminal:
        error = tx.row(LAST_ERROR, id=id)
        return JobState(status, reason, error=f"{error[0]}: {error[1]}" if error else "")
    return JobState(status, reason)


@dataclass(frozen=True, slots=True)
class JobDetails:
    """A job's row and state at one moment. Times are microseconds by the database's clock."""

    task: str
    queue: str
    priority: int
    payload: str
    options: str | None
    key: str | None
    run_id: str | None
    created_at: int
    status: JobStatus
    reason: Reason | None
    started_at: int | None
    """When the latest attempt began."""
    finished_at: int | None
    retry_count: int
    crash_count: int
    claims: int
    due_at: int | None
    """When a scheduled job becomes available."""
    labels: tuple[str, ...] = ()


def details(tx: Transaction, id: str) -> JobDetails | None:
    """Everything that the job's rows say, read by one statement."""
    rows = tx.rows(DETAILS, id=id)
    if not rows:
        return None
    task, queue, priority, payload, options, key, run, created, status, reason = rows[0][:10]
    started, finished, retries, crashes, claims, due = rows[0][10:16]
    stands = JobStatus.stored(status)
    if stands is JobStatus.SKIPPED and not retries + crashes:
        started = None  # the step was claimed when its run had halted already: no handler was called
    return JobDetails(
        task,
        queue,
        priority,
        payload,
        options,
        key,
        run,
        created,
        stands,
        Reason.stored(reason) if reason and stands.terminal else None,
        started,
        finished,
        retries,
        crashes,
        claims,
        due,
        tuple(sorted(str(row[-1]) for row in rows if row[-1] is not None)),
    )


HOLDER = "SELECT process_id FROM {job_states} WHERE job_id = :id"


@dataclass(frozen=True, slots=True)
class JobHistory:
    """A job with everything that came of it so far."""

    details: JobDetails
    attempts: Sequence[Row]
    """Those that have ended, with the columns of ATTEMPTS."""
    output: str | None
    holder: str | None
    """The process that runs it now."""


def history(tx: Transaction, id: str) -> JobHistory | None:
    """A job, its attempts, its output and its holder; None: there is no such job."""
    found = details(tx, id)
    if found is None:
        return None
    attempts = tx.rows(ATTEMPTS, id=id) if found.claims else []
    output = tx.row(OUTPUT, id=id) if found.status is JobStatus.SUCCEEDED else None
    holder = tx.row(HOLDER, id=id) if found.status is JobStatus.RUNNING else None
    named = str(holder[0]) if holder and holder[0] else None
    return JobHistory(found, attempts, output[0] if output else None, named)


def jobs_of(tx: Transaction, task: str) -> list[tuple[str, str, str, str]]:
    """Every job of a task, oldest first: id, queue, status, payload. For tests: it walks the table."""
    return [(str(id), queue, status, payload) for id, queue, status, payload in tx.rows(JOBS_OF, task=task)]


# Progress that running jobs report.

UPDATE = (
    "UPDATE {progress} SET fraction = :fraction, message = :message, updated_at = {now} WHERE job_id = :id"
)


def record(tx: Transaction, reports: Mapping[str, tuple[float, str]]) -> None:
    tx.stage("progress")
    for job_id, (fraction, message) in sorted(reports.items()):
        if tx.count(UPDATE, id=job_id, fraction=fraction, message=message) == 0:
            row = {"job_id": job_id, "fraction": fraction, "message": message}
            tx.insert("progress", [row], ignore_duplicates=True, updated_at="{now}")


def plainly(reports: Mapping[str, tuple[float, str]]) -> dict[str, tuple[float, str]]:
    """The same reports in ASCII, which every database can store."""
    return {
        job_id: (fraction, message.encode("ascii", "backslashreplace").decode())
        for job_id, (fraction, message) in reports.items()
    }


# Markers: what `once()` has done before, kept under the job's idempotency key.

FIND = "SELECT value FROM {markers} WHERE idempotency_key = :key AND name = :name"


def find(tx: Transaction, key: str, name: str) -> str | None:
    row = tx.row(FIND, key=key, name=name)
    return None if row is None else str(row[0])


def remember(tx: Transaction, key: str, name: str, value: str) -> str:
    """Store the value unless there is one already; returns the stored value."""
    tx.stage("marker")
    row = {"idempotency_key": key, "name": name, "value": value}
    tx.insert("markers", [row], ignore_duplicates=True, created_at="{now}")
    return find(tx, key, name) or value
