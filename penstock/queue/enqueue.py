"""Enqueue: a job is durable from the moment its transaction commits, and not before.

Ids are made by the caller, so a call whose answer was lost with the connection can be repeated: if it was committed,
the ids are there (`are_written`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

from penstock.database.transaction import Transaction
from penstock.queue import states
from penstock.queue.jobs import JobBatch, NewJob, tier_of
from penstock.queue.rules import unique_keys

PART = 2000
"""How many rows are sent at a time."""
SAME_IN_A_BATCH = [NewJob._fields.index(name) for name in NewJob._fields if name not in ("id", "payload")]

WRITTEN = "SELECT COUNT(*) FROM {jobs} WHERE id {among:ids:uuid}"


def enqueue(tx: Transaction, jobs: Sequence[NewJob]) -> list[str]:
    """Write the jobs; returns the ids under which they exist.

    For a job whose key is taken this is the id of the first job.
    """
    tx.stage("enqueue")
    if isinstance(jobs, JobBatch):
        _write_in_parts(tx, jobs)
        _label(tx, jobs.ids, jobs.template.labels)
        return jobs.ids
    new = {job.id for job in jobs}
    ids = [unique_keys.claim_key(tx, job, new) if job.key is not None else job.id for job in jobs]
    mine = [job for job, id in zip(jobs, ids, strict=True) if id == job.id]
    if any(job.unique is not None for job in mine):
        mine = [unique_keys.with_due_time(tx, job) for job in mine]
    for group in _groups(mine):
        _write_in_parts(tx, group)
    for job in mine:
        _label(tx, [job.id], job.labels)
        if job.unique is not None:
            unique_keys.note_due_time(tx, job)
    return ids


def _label(tx: Transaction, ids: Sequence[str], labels: Sequence[str]) -> None:
    """Write the labels by which these jobs are found again."""
    rows = [{"label": label, "job_id": id} for id in ids for label in labels]
    for start in range(0, len(rows), PART):
        tx.insert("job_labels", rows[start : start + PART])


def _write_in_parts(tx: Transaction, jobs: Sequence[NewJob]) -> None:
    """Send the rows in parts: the database writes one part while we prepare the next.

    No other transaction waits for new rows.
    """
    for start in range(0, len(jobs), PART):
        if start:
            tx.dialect.flush(tx.opened)
        _write(tx, jobs[start : start + PART])


def are_written(tx: Transaction, ids: Sequence[str]) -> bool:
    """True if all of these jobs exist."""
    row = tx.row(WRITTEN, ids=ids)
    return row is not None and int(row[0]) == len(set(ids))


def _groups(jobs: Sequence[NewJob]) -> list[list[NewJob]]:
    """Group jobs that differ in a few fields only: one statement writes a group, and sends the common fields once."""
    if len(set(map(itemgetter(*SAME_IN_A_BATCH), jobs))) == 1:
        return [list(jobs)]
    return [list(group) for _, group in groupby(jobs, key=_alike)]


def _place(job: NewJob) -> str:
    if job.status is not None:
        return "aside"
    if job.due_at is not None:
        return "at"
    return "delayed" if job.delay > 0 else "ready"


def _alike(job: NewJob) -> tuple[object, ...]:
    place = _place(job)
    optional = (job.key is not None, job.origin_id is not None, job.path is not None)
    return (
        place,
        *optional,
        job.task,
        job.queue,
        job.priority,
        job.max_crashes,
        job.run_id,
        job.node,
    )


def _write(tx: Transaction, jobs: Sequence[NewJob]) -> None:
    first = jobs[0]
    place = _place(first)
    status = {"ready": "available", "delayed": "scheduled", "at": "scheduled"}
    shared = {
        "task": first.task,
        "queue": first.queue,
        "priority": first.priority,
        "tier": tier_of(first.priority),
        "options": first.options,
        "max_crashes": first.max_crashes,
        "run_id": first.run_id,
        "node": first.node,
        "status": status.get(place) or str(first.status),
    }
    optional = tuple([name for name, value in _optional(first) if value is not None])
    rows: list[dict[str, object]]
    if place == "ready" and isinstance(jobs, JobBatch):
        rows = [{"id": id, "payload": payload} for id, payload in zip(jobs.ids, jobs.payloads, strict=True)]
    else:
        rows = [_fields(job, optional, place) for job in jobs]
        if any(job.options != first.options for job in jobs):
            # Ticks of one schedule differ in the time that they are for: that is no reason to write them one by one.
            del shared["options"]
            for row, job in zip(rows, jobs, strict=True):
                row["options"] = job.options
    tx.insert_together(states.tables_of_new(place, optional), rows, shared)


def _optional(job: NewJob) -> list[tuple[str, object]]:
    return [("job_key", job.key), ("origin_id", job.origin_id), ("path", job.path)]


def _fields(job: NewJob, optional: Sequence[str], place: str) -> dict[str, object]:
    fields: dict[str, object] = {"id": job.id, "payload": job.payload}
    if optional:
        fields |= {name: value for name, value in _optional(job) if name in optional}
    if place == "delayed":
        fields["wait"] = int(job.delay * 1_000_000)
    elif place == "at":
        fields["due_at"] = job.due_at
    return fields
