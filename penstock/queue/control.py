"""Acts on jobs from outside: cancel, retry, discard, delete, update. Each locks the row it decides on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from penstock.database.transaction import Transaction
from penstock.queue import audit, retention, states
from penstock.queue.claim import LEAVE
from penstock.queue.jobs import EndedStep, Follow, nothing_follows, tier_of
from penstock.queue.rules import followers
from penstock.telemetry.events import JobsCancelled, Stream
from penstock.values.status import JobStatus, Reason

LOCK = """
SELECT job_id, status, process_id, cancel_requested FROM {job_states} WHERE job_id {among:ids:uuid}
ORDER BY job_id {lock}
"""
DESCRIBE = "SELECT id, task, queue, priority, run_id, node, path FROM {jobs} WHERE id {among:ids:uuid}"
# A job that was cancelled while it was scheduled left its row there; it must not be promoted by it later.
UNSCHEDULE = "DELETE FROM {scheduled} WHERE job_id {among:ids:uuid}"
REMOVE_LETTERS = "DELETE FROM {dead_letters} WHERE job_id {among:ids:uuid}"
LISTED = "SELECT job_id FROM {dead_letters} WHERE job_id {among:ids:uuid}"

STATUSES = "SELECT job_id, status FROM {job_states} WHERE job_id {among:ids:uuid}"
ACTED_ON = "SELECT DISTINCT subject_id FROM {audits} WHERE subject_id {among:ids:uuid} AND act = :act"

Action = Callable[[Transaction, Sequence[str]], list[str]]
KEY_OF = "SELECT task, job_key, run_id FROM {jobs} WHERE id = :id"
LOCK_KEY = "SELECT job_id FROM {job_keys} WHERE task = :task AND job_key = :key {lock}"
DUE = "SELECT {now}, (SELECT MIN(due_at) FROM {scheduled} WHERE job_id = :id)"
UNPARK = "DELETE FROM {parked} WHERE job_id = :id"
# A row in the queue that a claim under way has locked is left: that claim drops it.
PLACES = """
SELECT seq FROM {availabilities} WHERE queue = :queue AND tier = :tier AND job_id = :id ORDER BY seq {lock_skip}
"""
CHANGE = "UPDATE {jobs} SET queue = :queue, priority = :priority WHERE id = :id"
WAITING = (JobStatus.AVAILABLE, JobStatus.SCHEDULED)
NOT_STARTED = (JobStatus.AVAILABLE, JobStatus.SCHEDULED, JobStatus.WAITING)


def cancel(
    tx: Transaction,
    ids: Sequence[str],
    follow: Follow = nothing_follows,
    *,
    audited: bool = False,
    events: Stream | None = None,
) -> list[str]:
    """Cancel jobs: at once where no process holds them, else by asking the holder. The jobs that will end cancelled.

    Rows in the queue are left: a claim or a promotion that finds them drops them. `audited`: True if an operator asked
    for it, not if it follows from another act.
    """
    tx.stage("cancel")
    rows = tx.rows(LOCK, ids=sorted(set(ids)))
    waiting = [job_id for job_id, status, *_ in rows if status in NOT_STARTED]
    running = [(job_id, process) for job_id, status, process, _ in rows if status == JobStatus.RUNNING]
    if waiting:
        states.end(tx, waiting, JobStatus.CANCELLED, Reason.CANCELLED)
        followers.release(tx, dict.fromkeys(waiting, JobStatus.CANCELLED))
        _tell_runs(tx, waiting, follow)
        if events is not None and events.wants(JobsCancelled):
            tx.after_commit(partial(events.emit, JobsCancelled(tuple(map(str, waiting)))))
    if running:
        states.request_cancel(tx, [job_id for job_id, _ in running])
        requests = [{"process_id": process, "job_id": job_id} for job_id, process in running if process]
        tx.insert("cancellations", requests, ignore_duplicates=True)
    if audited:
        told = {job_id for job_id, status, _, asked in rows if status == JobStatus.RUNNING and not asked}
        audit.of_jobs(tx, "cancel", [*waiting, *sorted(told)])
    return waiting + [job_id for job_id, _ in running]


def _tell_runs(tx: Transaction, ids: Sequence[str], follow: Follow) -> None:
    ended = [
        EndedStep(str(job_id), str(run_id), node, path or "", JobStatus.CANCELLED, Reason.CANCELLED, None)
        for job_id, _task, _queue, _priority, run_id, node, path in tx.rows(DESCRIBE, ids=ids)
        if run_id is not None
    ]
    if ended:
        follow(tx, ended)


def retry(tx: Transaction, ids: Sequence[str]) -> list[str]:
    """Run failed or cancelled jobs again with fresh budgets; returns the jobs that will run.

    Steps are left out: their runs have gone on without them. `run.retry_step` and `run.revive` are for those.
    """
    tx.stage("retry")
    rows = tx.rows(LOCK, ids=sorted(set(ids)))
    over = [job_id for job_id, status, *_ in rows if status in (JobStatus.FAILED, JobStatus.CANCELLED)]
    described = {row[0]: row for row in tx.rows(DESCRIBE, ids=over) if row[4] is None} if over else {}
    again = [job_id for job_id in over if job_id in described]
    if not again:
        return []
    cancelled = [job_id for job_id, status, *_ in rows if status == JobStatus.CANCELLED]
    if cancelled:
        tx.run(UNSCHEDULE, ids=cancelled)
    states.retry(tx, again)
    tx.run(REMOVE_LETTERS, ids=again)
    places = [
        {"job_id": job_id, "task": task, "queue": queue, "tier": tier_of(priority)}
        for job_id, task, queue, priority, *_ in described.values()
    ]
    states.put_in_place(tx, JobStatus.AVAILABLE, places)
    audit.of_jobs(tx, "retry", again)
    return again


def discard(tx: Transaction, ids: Sequence[str]) -> list[str]:
    """Take failed jobs off the list of dead letters for good; their history stays.

    A step only leaves the list and stays failed: a revival of its run looks for failed steps.
    """
    tx.stage("discard")
    over = [
        job_id for job_id, status, *_ in tx.rows(LOCK, ids=sorted(set(ids))) if status == JobStatus.FAILED
    ]
    failed = [job_id for (job_id,) in tx.rows(LISTED, ids=over)] if over else []
    if failed:
        alone = [row[0] for row in tx.rows(DESCRIBE, ids=failed) if row[4] is None]
        if alone:
            states.discard(tx, alone)
        tx.run(REMOVE_LETTERS, ids=failed)
        audit.of_jobs(tx, "discard", failed)
    return failed


def delete(tx: Transaction, ids: Sequence[str]) -> list[str]:
    """Remove jobs that are not running, with their history; those that were removed. What follows them is skipped.

    Steps stay: they belong to their runs. The key is locked before the state, as an enqueue does it.
    """
    tx.stage("delete")
    removed = []
    for job_id in sorted(set(ids)):
        key = tx.row(KEY_OF, id=job_id)
        if key is None or key[2] is not None:
            continue
        if key[1] is not None:
            tx.row(LOCK_KEY, task=key[0], key=key[1])
        rows = tx.rows(LOCK, ids=[job_id])
        if not rows or rows[0][1] == JobStatus.RUNNING:
            continue
        audit.of_jobs(tx, "delete", [job_id], task=key[0], status=rows[0][1])
        if not JobStatus.stored(rows[0][1]).terminal:
            followers.release(tx, {job_id: JobStatus.CANCELLED})
        retention.delete(tx, job_id)
        removed.append(job_id)
    return removed


class JobChange(NamedTuple):
    """Changes of a job that waits. None leaves a field unchanged."""

    queue: str | None = None
    priority: int | None = None
    delay: float | None = None
    due_at: int | None = None


def update(tx: Transaction, id: str, change: JobChange) -> bool:
    """Change the queue, priority or time of a job that waits. False: the job does not wait in a queue any more.

    It goes through `scheduled`, due at once if no other time is given: so a claim that is under way does not get it
    from its old place.
    """
    tx.stage("update")
    rows = tx.rows(LOCK, ids=[id])
    described = tx.rows(DESCRIBE, ids=[id])
    if not rows or not described or described[0][4] is not None or rows[0][1] not in WAITING:
        return False
    _, task, queue, priority, *_ = described[0]
    now, due = tx.row(DUE, id=id) or (0, None)
    after = None if change.delay is None else int(now) + int(change.delay * 1_000_000)
    at = next(each for each in (change.due_at, after, due, now) if each is not None)
    wanted = (change.queue or queue, priority if change.priority is None else change.priority)
    tx.run(UNSCHEDULE, ids=[id])
    tx.run(UNPARK, id=id)
    seqs = [row[0] for row in tx.rows(PLACES, queue=queue, tier=tier_of(priority), id=id)]
    if seqs:
        tx.run(LEAVE, queue=queue, tier=tier_of(priority), seqs=seqs)
    tx.run(CHANGE, id=id, queue=wanted[0], priority=wanted[1])
    states.reschedule(tx, id, int(at))
    place = {"job_id": id, "task": task, "queue": wanted[0], "tier": tier_of(wanted[1]), "due_at": int(at)}
    tx.insert("scheduled", [place])
    told = {name: value for name, value in change._asdict().items() if value is not None}
    audit.of_jobs(tx, "update", [id], **told)
    return True


# The same acts for callers that try again after a lost answer: jobs that an earlier try changed count as changed.


def cancelling(follow: Follow, events: Stream | None = None) -> Action:
    action = partial(cancel, follow=follow, audited=True, events=events)
    return _counting_earlier_tries("cancel", action, lambda status: status == JobStatus.CANCELLED)


def retrying() -> Action:
    over = (JobStatus.FAILED, JobStatus.CANCELLED)
    return _counting_earlier_tries("retry", retry, lambda status: status not in over)


def discarding() -> Action:
    """Take jobs off the list of dead letters; a step stays failed."""
    put_away = (JobStatus.CANCELLED, JobStatus.FAILED)
    return _counting_earlier_tries("discard", discard, lambda status: status in put_away)


def deleting() -> Action:
    """Remove jobs; the audit trail tells which jobs an earlier try removed."""
    return _counting_earlier_tries("delete", delete, lambda _: False)


def _counting_earlier_tries(name: str, action: Action, is_done: Callable[[str], bool]) -> Action:
    tried: set[str] = set()

    def act(tx: Transaction, ids: Sequence[str]) -> list[str]:
        done = action(tx, ids)
        doubtful = sorted(tried.difference(done))
        tried.update(done)
        if not doubtful:
            return done
        statuses = {str(job_id): status for job_id, status in tx.rows(STATUSES, ids=doubtful)}
        # A job that retention has removed since then is still in the trail.
        gone = [job_id for job_id in doubtful if job_id not in statuses]
        trail = [str(job_id) for (job_id,) in tx.rows(ACTED_ON, ids=gone, act=name)] if gone else []
        return done + [job_id for job_id, status in statuses.items() if is_done(status)] + trail

    return act
