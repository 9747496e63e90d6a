"""Steering a run from outside: cancel, pause, resume.

Each begins with one short transaction that locks the run's row and nothing else, and leaves timers for the rest:
whoever steers works them off at once, and should that process die, any other does. So a cancelled run ends even if
nobody is left who asked for it.

Cancelling: nothing new starts, what has not started is swept, what runs is told; after the grace it is given up on
(see `giving_up`). Children are cancelled likewise, each by a timer of its own. To be asked again with a shorter grace
shortens it, also that of a child which was cancelled before.
"""

from __future__ import annotations

from enum import StrEnum

from penstock.database.transaction import Transaction
from penstock.errors import ActionRefused, CancelConflict
from penstock.pipelines import callbacks, expand, followers, stopping, timers
from penstock.pipelines.desk import Desk
from penstock.pipelines.paths import path_of
from penstock.pipelines.runs import views
from penstock.queue import audit
from penstock.queue.jobs import tier_of
from penstock.queue.wakeups import ready
from penstock.values.ids import FIRST_ID
from penstock.values.jsontext import dumps
from penstock.values.status import Reason, RunStatus

LOCK = "SELECT status, mode, ended_at FROM {runs} WHERE id = :id {lock}"
CANCEL = "UPDATE {runs} SET mode = 'cancelled', status = 'cancelling', paused_at = NULL WHERE id = :id"
CLOSE_UNSTARTED = """
UPDATE {runs} SET mode = 'cancelled', status = :status, reasons = :reasons, ended_at = {now} WHERE id = :id
"""
PAUSE = "UPDATE {runs} SET status = 'paused', paused_at = {now} WHERE id = :id"
RESUME = "UPDATE {runs} SET status = 'running', paused_at = NULL WHERE id = :id"
CHILDREN = "SELECT id FROM {runs} WHERE parent_run_id = :run AND ended_at IS NULL AND mode <> 'cancelled'"
PATIENT_CHILDREN = """
SELECT DISTINCT r.id FROM {runs} r JOIN {timers} t ON t.run_id = r.id
WHERE r.parent_run_id = :run AND r.ended_at IS NULL AND r.mode = 'cancelled'
  AND t.kind = 'give_up' AND t.data IS NULL AND t.due_at > {now} + :wait
"""
SLACK = 1.0
"""Seconds: a child that was cancelled along with its parent was told a little later, and is left alone."""
WITHOUT_PLACE = """
SELECT j.id, j.task, j.queue, j.priority, j.node, j.path FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id
WHERE j.run_id = :run AND s.status = 'available' AND j.id > :after
  AND NOT EXISTS (SELECT 1 FROM {parked} p WHERE p.job_id = j.id) ORDER BY j.id LIMIT :limit
"""
BATCH = 500


class Effect(StrEnum):
    """What it has changed that somebody asked to cancel."""

    BEGUN = "begun"
    SHORTENED = "shortened"
    NONE = "none"


def cancel(desk: Desk, tx: Transaction, run: str, grace: float) -> bool:
    """Somebody cancels a run. False: that has begun before. A run that has ended otherwise is a conflict."""
    effect = begin_to_cancel(desk, tx, run, grace)
    if effect is not Effect.NONE:
        audit.of_run(tx, "cancel", run, grace=grace)
    return effect is Effect.BEGUN


def begin_to_cancel(desk: Desk, tx: Transaction, run: str, grace: float) -> Effect:
    tx.stage("cancel_run")
    status, mode = _locked(tx, run)
    if status == RunStatus.CANCELLING:
        return Effect.SHORTENED if stopping.hurry(tx, run, grace) else Effect.NONE
    if status == RunStatus.CANCELLED:
        return Effect.NONE
    if RunStatus(status).terminal:
        raise CancelConflict(f"run {run} has ended {status}; there is nothing left to cancel")
    if status == RunStatus.PENDING:
        close_unstarted(desk, tx, run, RunStatus.CANCELLED, (Reason.CANCELLED.value,))
        return Effect.BEGUN
    tx.run(CANCEL, id=run)
    timers.set(tx, timers.SWEEP, run)
    stopping.tell(tx, run, grace)
    return Effect.BEGUN if mode != "cancelled" else Effect.NONE


def close_unstarted(
    desk: Desk, tx: Transaction, run: str, status: RunStatus, reasons: tuple[str, ...]
) -> None:
    """End a run that never began: cancelled before its time, or skipped because of those it follows."""
    tx.run(CLOSE_UNSTARTED, id=run, status=status.value, reasons=dumps(list(reasons)))
    found = views(desk, tx, [run]).get(run)
    if found is None:
        return
    callbacks.enqueue(desk, tx, found, status, reasons)
    followers.wake(tx, followers.ask(tx, [run])())
    desk.tell_ended(tx)


def cancel_children(tx: Transaction, run: str, grace: str) -> None:
    """Have every child that has not ended cancelled too; one that was before, and has longer, is given less."""
    tx.stage("cancel_children")
    patient = tx.rows(PATIENT_CHILDREN, run=run, wait=int((float(grace) + SLACK) * 1_000_000))
    for (child,) in [*tx.rows(CHILDREN, run=run), *patient]:
        timers.set(tx, timers.CANCEL, str(child), data=grace)


def cancel_child(desk: Desk, tx: Transaction, run: str, grace: str) -> None:
    row = tx.row(LOCK, id=run)
    if row is not None and row[2] is None:
        begin_to_cancel(desk, tx, run, float(grace))


def pause(tx: Transaction, run: str) -> bool:
    """Start nothing more until resumed; what runs goes on. False: it is paused already."""
    tx.stage("pause")
    status, _ = _locked(tx, run)
    if status == RunStatus.PAUSED:
        return False
    if status != RunStatus.RUNNING:
        raise ActionRefused(f"run {run} is {status}: only a running run can be paused")
    tx.run(PAUSE, id=run)
    audit.of_run(tx, "pause", run)
    return True


def resume(tx: Transaction, run: str) -> bool:
    """Go on. False: it is not paused."""
    tx.stage("resume")
    status, _ = _locked(tx, run)
    if status == RunStatus.RUNNING:
        return False
    if status != RunStatus.PAUSED:
        raise ActionRefused(f"run {run} is {status}: only a paused run can be resumed")
    tx.run(RESUME, id=run)
    timers.set(tx, timers.REQUEUE, run, data=FIRST_ID)
    audit.of_run(tx, "resume", run)
    return True


def requeue(desk: Desk, tx: Transaction, run: str, after: str) -> None:
    """Give steps that were put aside while the run was paused a place in the queue again.

    Two places are one too many, and harmless: a claim takes the job once. Elements that are staged get theirs with the
    others, which is after this: so those are looked for first.
    """
    tx.stage("requeue")
    to_come = expand.to_come(desk, tx, run)
    steps = tx.rows(WITHOUT_PLACE, run=run, after=after, limit=BATCH)
    rows = [
        {"job_id": job, "task": task, "queue": queue, "tier": tier_of(priority)}
        for job, task, queue, priority, node, path in steps
        if not to_come(str(node), path_of(path or ""))
    ]
    tx.insert("availabilities", rows)
    for queue, tier in sorted({(str(row["queue"]), int(str(row["tier"]))) for row in rows}):
        desk.host.wakeups.tell_with(tx, [ready(queue, tier)])
    if len(steps) == BATCH:
        timers.set(tx, timers.REQUEUE, run, data=str(steps[-1][0]))


def _locked(tx: Transaction, run: str) -> tuple[str, str]:
    row = tx.row(LOCK, id=run)
    if row is None:
        raise ActionRefused(f"there is no run {run}; it may have been pruned")
    return str(row[0]), str(row[1])
