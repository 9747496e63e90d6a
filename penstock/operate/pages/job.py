"""Reads one job for a page: its latest attempts, its holder, its limits, its followers; every list is bounded."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.database.dialect import Row
from penstock.database.transaction import Transaction
from penstock.operate.jobs import COLUMNS, DUE_AT, HOLDER, LINE, THESE, JobRow, job_of
from penstock.queue import job_records
from penstock.values.status import JobStatus

MOST_ATTEMPTS = 50

DESCRIBED = "SELECT payload, options, max_crashes, origin_id FROM {jobs} WHERE id = :id"
LATEST = """
SELECT generation, process_id, started_at, finished_at, outcome, error_type, error, traceback
FROM {executions} WHERE job_id = :id ORDER BY generation DESC LIMIT :limit
"""
SLOTS = "SELECT limit_key FROM {slots} WHERE job_id = :id ORDER BY limit_key LIMIT 20"
NOW = "SELECT {now}"
LABELS = "SELECT label FROM {job_labels} WHERE job_id = :id ORDER BY label LIMIT 50"
PROGRESS = "SELECT fraction, message, updated_at FROM {progress} WHERE job_id = :id"


@dataclass(frozen=True, slots=True)
class JobAttempt:
    """One finished attempt."""

    number: int
    process_id: str | None
    started_at: int
    finished_at: int
    outcome: str
    error_type: str | None
    error: str | None
    traceback: str | None

    @property
    def seconds(self) -> float:
        return (self.finished_at - self.started_at) / 1e6


@dataclass(frozen=True, slots=True)
class JobHolder:
    """The process that holds a job. `silence` in seconds."""

    id: str
    host: str
    pid: int
    role: str
    silence: float


@dataclass(frozen=True, slots=True)
class JobDetail:
    """Everything that a page shows of one job."""

    job: JobRow
    payload: str
    options: str | None
    max_crashes: int | None
    origin_id: str | None
    due_at: int | None
    holder: JobHolder | None
    progress: Row | None
    """(fraction, message, when)"""
    attempts: list[JobAttempt] = field(default_factory=list)
    """The latest attempts, the oldest of them first."""
    output: str | None = None
    line: Row | None = None
    """The limit that the job waits for, as (how many it allows, how many it has, how many jobs come before this one)"""
    limits: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    now: int = 0
    """The time of the read, by the database's clock."""


def job_detail(tx: Transaction, id: str) -> JobDetail | None:
    """One job; None if there is none."""
    rows = tx.rows(COLUMNS + THESE, ids=[id])
    if not rows:
        return None
    job = job_of(rows[0])
    payload, options, max_crashes, origin = tx.row(DESCRIBED, id=id) or ("null", None, None, None)
    due = tx.row(DUE_AT, id=id) if job.status is JobStatus.SCHEDULED else None
    output = tx.row(job_records.OUTPUT, id=id) if job.status is JobStatus.SUCCEEDED else None
    return JobDetail(
        job,
        payload,
        options,
        max_crashes,
        None if origin is None else str(origin),
        due[0] if due else None,
        _holder(tx, job.process_id),
        tx.row(PROGRESS, id=id),
        _attempts(tx, id),
        output[0] if output else None,
        tx.row(LINE, id=id, key=job.waits_for) if job.waits_for else None,
        [str(key) for (key,) in tx.rows(SLOTS, id=id)],
        [str(label) for (label,) in tx.rows(LABELS, id=id)],
        int((tx.row(NOW) or (0,))[0]),
    )


def payload_of(tx: Transaction, id: str) -> tuple[str, str, str] | None:
    """The task, the queue and the stored arguments of a job."""
    row = tx.row("SELECT task, queue, payload FROM {jobs} WHERE id = :id", id=id)
    return None if row is None else (str(row[0]), str(row[1]), str(row[2]))


def _attempts(tx: Transaction, id: str) -> list[JobAttempt]:
    found = [
        JobAttempt(number, None if process is None else str(process), *rest)
        for number, process, *rest in tx.rows(LATEST, id=id, limit=MOST_ATTEMPTS)
    ]
    return found[::-1]


def _holder(tx: Transaction, id: str | None) -> JobHolder | None:
    row = tx.row(HOLDER, id=id) if id else None
    if row is None or id is None:
        return None
    host, pid, role, heard, now = row
    return JobHolder(id, host, pid, role, (now - heard) / 1e6)
