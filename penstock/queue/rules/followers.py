"""Followers of a job: its callbacks, and jobs that wait for its end. Both belong to the transaction that ends it.

A callback is known when the job is enqueued, and is kept in the job's options. A job that follows another by
`job.then(...)` is written at once, as `waiting`. Its registration locks the state of the job that it follows, and marks
it: either the registration sees the end, or the transaction that ends the job sees the mark. Followers become
`scheduled` rather than available: that calls the housekeeping, which wakes the workers they need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from penstock.database.transaction import Transaction
from penstock.errors import ActionRefused
from penstock.queue import audit, enqueue, states
from penstock.queue.jobs import NewJob, headers_of, tier_of, with_headers
from penstock.values.ids import new_id
from penstock.values.status import JobStatus, Reason
from penstock.values.typed_json.json_text import dumps, loads
from penstock.values.typed_json.parameters import KEYWORDS

ON_SUCCESS, ON_FAILURE = "on_success", "on_failure"
MARKS = (f'"{ON_SUCCESS}"', f'"{ON_FAILURE}"')
EVENTS = {JobStatus.SUCCEEDED: ON_SUCCESS, JobStatus.FAILED: ON_FAILURE}
AT_ONCE = 1e-9
"""A delay of less than a microsecond: the job becomes scheduled, not available."""

UPSTREAM = "SELECT status FROM {job_states} WHERE job_id = :id {lock}"
RUN_OF = "SELECT run_id FROM {jobs} WHERE id = :id"
FOLLOWERS = "SELECT job_id, id, spec FROM {job_followers} WHERE job_id {among:ids:uuid} ORDER BY id"
FORGET = "DELETE FROM {job_followers} WHERE job_id {among:ids:uuid}"
DESCRIBE = "SELECT id, task, queue, priority FROM {jobs} WHERE id {among:ids:uuid}"


class EndedJob(NamedTuple):
    """A job that has just ended, with the facts that its callbacks get."""

    job_id: str
    task: str
    status: JobStatus
    options: str | None
    reason: Reason | None = None
    output: str | None = None
    error: str | None = None

    @property
    def callback_arguments(self) -> dict[str, object]:
        """The arguments that a callback may take, by name."""
        return {
            "job_id": self.job_id,
            "task": self.task,
            "status": self.status.value,
            "reason": self.reason.value if self.reason is not None else None,
            "error": self.error,
            "result": loads(self.output) if self.output is not None else None,
        }


CALLBACK_ARGUMENTS = tuple(EndedJob("", "", JobStatus.SUCCEEDED, None).callback_arguments)


def after_end(tx: Transaction, ended: Sequence[EndedJob]) -> None:
    """Do all that follows from jobs that have just become terminal."""
    call_back(tx, ended)
    release(tx, {job.job_id: job.status for job in ended})


# Callbacks


def has_callbacks(options: str | None) -> bool:
    """True if the options of a job may name callbacks."""
    return options is not None and any(mark in options for mark in MARKS)


def call_back(tx: Transaction, ended: Sequence[EndedJob]) -> None:
    """Enqueue the callbacks of these jobs: those for a success, or those for a failure."""
    jobs = [
        with_headers([_callback(spec, job)], headers_of(job.options))[0]
        for job in ended
        for spec in _callbacks_of(job)
    ]
    if jobs:
        enqueue.enqueue(tx, jobs)


def _callbacks_of(job: EndedJob) -> Sequence[Mapping[str, Any]]:
    event = EVENTS.get(job.status)
    if event is None or not has_callbacks(job.options):
        return ()
    stored: Any = loads(job.options or "{}")
    found: Sequence[Mapping[str, Any]] = stored.get(event, ())
    return found


def _callback(spec: Mapping[str, Any], job: EndedJob) -> NewJob:
    told = job.callback_arguments
    given: dict[str, object] = {name: told[name] for name in spec["takes"]}
    if spec.get("rest"):
        given[KEYWORDS] = {name: value for name, value in told.items() if name not in given}
    return NewJob(
        new_id(),
        spec["task"],
        spec["queue"],
        spec["priority"],
        dumps(given),
        spec.get("options"),
        spec.get("max_crashes"),
        max(float(spec.get("delay") or 0.0), AT_ONCE),
    )


# Jobs that wait for another


def register(tx: Transaction, upstream: str, new: NewJob) -> str:
    """Write a job that starts when another has succeeded, now if it has; the id under which it exists."""
    tx.stage("then")
    tx.dialect.go_by_index(tx)
    row, run = tx.row(UPSTREAM, id=upstream), tx.row(RUN_OF, id=upstream)
    if row is None or run is None:
        raise ActionRefused(f"there is no job {upstream} to follow; it may have been pruned")
    if run[0] is not None:
        raise ActionRefused(
            f"job {upstream} is a step of run {run[0]}: follow the run, app.run(...).then(...)"
        )
    if enqueue.are_written(tx, [new.id]):
        return new.id  # an earlier try was committed, only its answer was lost
    status = JobStatus.stored(row[0])
    audit.of_jobs(tx, "then", [upstream], followed_by={"job": new.id, "task": new.task})
    if status is JobStatus.SUCCEEDED:
        return enqueue.enqueue(tx, [new])[0]
    (id,) = enqueue.enqueue(tx, [new._replace(delay=0.0, due_at=None, status=JobStatus.WAITING)])
    if id == new.id and status.terminal:
        _skip(tx, [id])
    elif id == new.id:
        spec = dumps({"wait": int(new.delay * 1_000_000), "at": new.due_at})
        row_of = {"job_id": upstream, "id": id, "outcome": JobStatus.SUCCEEDED.value, "spec": spec}
        tx.insert("job_followers", [row_of], created_at="{now}")
        states.mark_followed(tx, upstream)
    return id


def release(tx: Transaction, ended: Mapping[str, JobStatus]) -> None:
    """Release the jobs that wait for these, or skip them and the jobs that wait for them in turn."""
    rows = tx.rows(FOLLOWERS, ids=sorted(ended)) if ended else []
    if not rows:
        return
    waiting = states.lock_in(tx, sorted(str(row[1]) for row in rows), JobStatus.WAITING)
    free = {
        str(id): spec
        for job_id, id, spec in rows
        if str(id) in waiting and ended[str(job_id)] is JobStatus.SUCCEEDED
    }
    if free:
        _let_go(tx, free)
    skipped = sorted(waiting.keys() - free.keys())
    tx.run(FORGET, ids=sorted(ended))
    if skipped:
        _skip(tx, skipped)


def _let_go(tx: Transaction, free: Mapping[str, str]) -> None:
    timed, delayed = [], []
    for id, task, queue, priority in tx.rows(DESCRIBE, ids=sorted(free)):
        spec: Any = loads(free[str(id)])
        place = {"job_id": str(id), "task": task, "queue": queue, "tier": tier_of(priority)}
        if spec.get("at") is not None:
            timed.append(place | {"due_at": spec["at"]})
        else:
            delayed.append(place | {"wait": int(spec.get("wait") or 0)})
    states.let_go(tx, sorted(free))
    tx.insert("scheduled", timed)
    states.put_in_place(tx, JobStatus.SCHEDULED, delayed)


def _skip(tx: Transaction, ids: Sequence[str]) -> None:
    states.end(tx, ids, JobStatus.SKIPPED, Reason.UPSTREAM_FAILED)
    release(tx, dict.fromkeys(ids, JobStatus.SKIPPED))
