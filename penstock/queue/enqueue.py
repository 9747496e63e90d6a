"""Enqueue: a job is durable from the moment its transaction commits, and not before.

Ids are made by the caller, so the same call may be repeated after a lost connection: rows that are already there are
left as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from penstock.database.dialect import TableWrite
from penstock.database.transaction import Transaction
from penstock.queue.jobs import NewJob, tier_of

JOB_COLUMNS = {
    name: f":{name}"
    for name in (
        "id", "task", "queue", "priority", "payload", "options", "max_crashes", "job_key", "origin_id", "run_id",
        "node", "path",
    )
} | {"created_at": "{now}"}  # fmt: skip
STATE_COLUMNS = {
    "job_id": ":id",
    "status": ":status",
    "generation": "0",
    "retry_count": "0",
    "crash_count": "0",
    "cancel_requested": "false",
}
READY_COLUMNS = {"queue": ":queue", "tier": ":tier", "job_id": ":id", "task": ":task"}
DUE = {"delay": "{now} + :wait", "at": ":due_at"}

KEY_HOLDER = "SELECT job_id FROM {job_keys} WHERE task = :task AND job_key = :key {lock}"


def enqueue(tx: Transaction, jobs: Sequence[NewJob]) -> list[str]:
    """Write the jobs; the ids under which they now exist. A job whose key is taken gives the first job's id."""
    tx.stage("enqueue")
    ids = {job.id: _claim_key(tx, job) if job.key is not None else job.id for job in jobs}
    mine = [job for job in jobs if ids[job.id] == job.id]
    for kind, group in groupby(mine, key=_kind):
        _write(tx, kind, list(group))
    return [ids[job.id] for job in jobs]


def _claim_key(tx: Transaction, job: NewJob) -> str:
    """Whoever inserts the key first owns it; a second transaction waits for the first to end, then reads."""
    row = {"task": job.task, "job_key": job.key, "job_id": job.id}
    tx.insert("job_keys", [row], ignore_duplicates=True)
    holder = tx.row(KEY_HOLDER, task=job.task, key=job.key)
    return str(holder[0]) if holder else job.id


def _kind(job: NewJob) -> str:
    if job.status is not None:
        return "parked"
    if job.due_at is not None:
        return "at"
    return "delay" if job.delay > 0 else "ready"


def _write(tx: Transaction, kind: str, jobs: list[NewJob]) -> None:
    status = {"ready": "available", "delay": "scheduled", "at": "scheduled"}
    rows = [_fields(job, status.get(kind) or str(job.status)) for job in jobs]
    writes = [TableWrite("jobs", JOB_COLUMNS, True), TableWrite("job_states", STATE_COLUMNS, True)]
    if kind == "ready":
        writes.append(TableWrite("availabilities", READY_COLUMNS))
    elif kind in DUE:
        writes.append(TableWrite("scheduled", READY_COLUMNS | {"due_at": DUE[kind]}, True))
    tx.insert_together(writes, rows)


def _fields(job: NewJob, status: str) -> dict[str, object]:
    return {
        "id": job.id,
        "task": job.task,
        "queue": job.queue,
        "priority": job.priority,
        "tier": tier_of(job.priority),
        "payload": job.payload,
        "options": job.options,
        "max_crashes": job.max_crashes,
        "job_key": job.key,
        "origin_id": job.origin_id,
        "run_id": job.run_id,
        "node": job.node,
        "path": job.path,
        "status": status,
        "wait": int(job.delay * 1_000_000),
        "due_at": job.due_at,
    }
