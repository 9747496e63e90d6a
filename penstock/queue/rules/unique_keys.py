"""Unique keys: decides whether an enqueue makes a new job or gets the job that has the key.

The row of a key is the lock under which that is decided: of two enqueues with one key, the second waits for the
transaction of the first, and then sees what came of it. The holder's state is read with a lock as long as the holder is
not over, so that it neither starts nor ends before the enqueue has committed. A holder that is over stays so, and its
row is not locked: retention locks states before keys.

A job that may be replaced says so in its options. Replacing moves it to `scheduled`, so that a claim that is under way
does not get it with its old arguments; and a worker that has claimed such a job reads its arguments again
(`second_look`).
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from penstock.database.transaction import Transaction
from penstock.queue import states
from penstock.queue.jobs import NewJob, Uniqueness, tier_of
from penstock.values.ids import read_id
from penstock.values.status import JobStatus
from penstock.values.typed_json.json_text import loads

KEY_HOLDER = """
SELECT k.job_id, (SELECT 1 FROM {jobs} j WHERE j.id = k.job_id) FROM {job_keys} k
WHERE k.task = :task AND k.job_key = :key {lock}
"""
IS_THERE = "SELECT 1 FROM {jobs} WHERE id = :id {lock}"
TAKE_KEY = "UPDATE {job_keys} SET job_id = :id WHERE task = :task AND job_key = :key"
STATE = "SELECT status, generation, due_at FROM {job_states} WHERE job_id = :id"
LOCKED_STATE = f"{STATE} {{lock}}"
IS_RECENT = "SELECT 1 FROM {jobs} WHERE id = :id AND created_at > {now} - :window"
DESCRIBED = "SELECT task, queue, priority, options FROM {jobs} WHERE id = :id"
REPLACE = "UPDATE {jobs} SET payload = :payload, options = :options WHERE id = :id"
UNSCHEDULE = "DELETE FROM {scheduled} WHERE due_at = :due AND job_id = :id"
NOW = "SELECT {now}"

REPLACEABLE = "replaceable"
"""The option of a job that may be replaced before it starts."""
WAITING = (JobStatus.SCHEDULED, JobStatus.AVAILABLE)


def claim_key(tx: Transaction, job: NewJob, new: Container[str]) -> str:
    """Take the key; returns the job that has it: this one, or the one that had it before.

    `new`: jobs that are yet to be written. A key whose job is neither one of them nor there was left by a caller who
    committed although the enqueue had failed: no job owns it, and it would keep this job from ever being written.
    """
    for alias in job.aliases:
        earlier = tx.row(KEY_HOLDER, task=alias, key=job.key)
        if earlier is not None and earlier[1] is not None and _keeps_key(tx, read_id(earlier[0]), job):
            return read_id(earlier[0])
    row = {"task": job.task, "job_key": job.key, "job_id": job.id}
    tx.insert("job_keys", [row], ignore_duplicates=True)
    found = tx.row(KEY_HOLDER, task=job.task, key=job.key)
    if found is None:
        return job.id
    holder = read_id(found[0])
    if holder in new:
        return holder
    # The lock is on the key, without which no job is pruned; it also reads past the snapshot of a caller's transaction.
    there = found[1] is not None or tx.row(IS_THERE, id=holder) is not None
    if there and _keeps_key(tx, holder, job):
        return holder
    tx.run(TAKE_KEY, task=job.task, key=job.key, id=job.id)
    return job.id


def with_due_time(tx: Transaction, job: NewJob) -> NewJob:
    """Add the instant at which a replaceable job is due: its row in the queue is found by it."""
    if job.unique is None or not job.unique.replaces or job.delay <= 0:
        return job
    return job._replace(delay=0.0, due_at=_now(tx) + int(job.delay * 1_000_000))


def note_due_time(tx: Transaction, job: NewJob) -> None:
    """Keep the instant at which a job that may be replaced is due."""
    if job.unique is not None and job.unique.replaces and job.due_at is not None:
        states.reschedule(tx, job.id, job.due_at)


def _keeps_key(tx: Transaction, holder: str, job: NewJob) -> bool:
    """True if no new job is to be made: the holder stands, or was replaced."""
    rule = job.unique
    if rule is None:
        return True
    status, generation, due = _state_of(tx, holder)
    if rule.replaces:
        return status in WAITING and generation == 0 and _replace(tx, holder, job, status, due)
    if rule.window is not None and tx.row(IS_RECENT, id=holder, window=rule.window) is not None:
        return True
    match rule.lasts:
        case Uniqueness.WHILE_PENDING:
            return status is not None and not status.terminal
        case Uniqueness.WHILE_WAITING:
            return status in WAITING
        case _:
            return rule.window is None


def _state_of(tx: Transaction, holder: str) -> tuple[JobStatus | None, int, int | None]:
    """The state of the holder; locked, unless it is over."""
    row = tx.row(STATE, id=holder)
    if row is not None and not JobStatus.stored(row[0]).terminal:
        row = tx.row(LOCKED_STATE, id=holder)
    if row is None:
        return None, 0, None
    return JobStatus.stored(row[0]), int(row[1]), row[2]


def _replace(tx: Transaction, holder: str, job: NewJob, status: JobStatus, due: int | None) -> bool:
    """Give the holder the arguments and the time of this job. False: it does not say that it may be replaced."""
    row = tx.row(DESCRIBED, id=holder)
    if row is None or not _is_replaceable(row[3]):
        return False
    task, queue, priority, _ = row
    tx.run(REPLACE, id=holder, payload=job.payload, options=job.options)
    if status is JobStatus.SCHEDULED and due is not None:
        tx.run(UNSCHEDULE, id=holder, due=due)
    at = job.due_at if job.due_at is not None else _now(tx) + int(job.delay * 1_000_000)
    states.reschedule(tx, holder, at)
    place = {"job_id": holder, "task": task, "queue": queue, "tier": tier_of(priority), "due_at": at}
    tx.insert("scheduled", [place], ignore_duplicates=True)
    return True


def _is_replaceable(options: str | None) -> bool:
    stored: Any = loads(options) if options else {}
    return bool(stored.get(REPLACEABLE))


def _now(tx: Transaction) -> int:
    row = tx.row(NOW)
    assert row is not None
    return int(row[0])
