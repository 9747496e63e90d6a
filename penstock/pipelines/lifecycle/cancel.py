"""Cancels, pauses and resumes runs, and ends runs whose deadline has passed.

Each begins with one short transaction that locks the run's row and nothing else, and leaves timers for the rest:
the caller works them off at once, and should its process die, any other does. So a cancelled run ends even if the
process that asked for it is gone.

Cancelling: nothing new starts, what has not started is swept, what runs is told; after the grace it is given up on
(see `give_up`). Children are cancelled likewise, each by a timer of its own. A second request with a shorter grace
shortens it, also for children that were cancelled before.
"""

from __future__ import annotations

from enum import StrEnum
from functools import partial

from penstock.database.transaction import Transaction
from penstock.errors import ActionRefused, CancelConflict
from penstock.pipelines.advance import expand, finish, stop_requests, timers
from penstock.pipelines.advance.finish import follow
from penstock.pipelines.advance.read import stored_reasons
from penstock.pipelines.advance.run_rows import views, wiring_for
from penstock.pipelines.advance.state import EngineState
from penstock.pipelines.lifecycle.claimed_steps import not_started
from penstock.pipelines.model.definition import Running
from penstock.pipelines.model.expressions import path_of
from penstock.pipelines.plan.changes import RunMode
from penstock.queue import audit, states
from penstock.queue.control import cancel as cancel_jobs
from penstock.queue.jobs import EndedStep, tier_of
from penstock.queue.limits import slots
from penstock.queue.wakeups import ready
from penstock.values.ids import FIRST_ID
from penstock.values.status import JobStatus, OutcomeKind, Reason, RunStatus
from penstock.values.typed_json.json_text import dumps

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
"""Seconds: the grace of a child that was cancelled along with its parent ends a little later, and is not shortened."""
WITHOUT_PLACE = """
SELECT j.id, j.task, j.queue, j.priority, j.node, j.path FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id
WHERE j.run_id = :run AND s.status = 'available' AND j.id > :after
  AND NOT EXISTS (SELECT 1 FROM {parked} p WHERE p.job_id = j.id) ORDER BY j.id LIMIT :limit
"""
BATCH = 500


class Effect(StrEnum):
    """The effect of a request to cancel."""

    BEGUN = "begun"
    SHORTENED = "shortened"
    NONE = "none"


def cancel(engine_state: EngineState, tx: Transaction, run: str, grace: float) -> bool:
    """Cancel a run. False if it was cancelled before. A run that has ended otherwise is a conflict."""
    effect = begin_to_cancel(engine_state, tx, run, grace)
    if effect is not Effect.NONE:
        audit.of_run(tx, "cancel", run, grace=grace)
    return effect is Effect.BEGUN


def begin_to_cancel(engine_state: EngineState, tx: Transaction, run: str, grace: float) -> Effect:
    tx.stage("cancel_run")
    status, mode = _locked(tx, run)
    if status == RunStatus.CANCELLING:
        return Effect.SHORTENED if stop_requests.hurry(tx, run, grace) else Effect.NONE
    if status == RunStatus.CANCELLED:
        return Effect.NONE
    if RunStatus.stored(status).terminal:
        raise CancelConflict(f"run {run} has ended {status}; there is nothing left to cancel")
    if status == RunStatus.PENDING:
        close_unstarted(engine_state, tx, run, RunStatus.CANCELLED, (Reason.CANCELLED.value,))
        return Effect.BEGUN
    tx.run(CANCEL, id=run)
    timers.set(tx, timers.SWEEP, run)
    stop_requests.request_stop(tx, run, grace)
    return Effect.BEGUN if mode != "cancelled" else Effect.NONE


def close_unstarted(
    engine_state: EngineState, tx: Transaction, run: str, status: RunStatus, reasons: tuple[str, ...]
) -> None:
    """End a run that never began: it was cancelled before it was due, or skipped because of the runs it follows."""
    tx.run(CLOSE_UNSTARTED, id=run, status=status.value, reasons=dumps(list(reasons)))
    found = views(engine_state, tx, [run]).get(run)
    if found is None:
        return
    finish.enqueue(engine_state, tx, found, status, reasons)
    finish.wake_followers(tx, finish.ask_followers(tx, [run])())
    finish.free_places(tx, [found])
    engine_state.tell_ended(tx)


def cancel_children(tx: Transaction, run: str, grace: str) -> None:
    """Cancel every child that has not ended; shorten the grace of a child that was cancelled before."""
    tx.stage("cancel_children")
    patient = tx.rows(PATIENT_CHILDREN, run=run, wait=int((float(grace) + SLACK) * 1_000_000))
    for (child,) in [*tx.rows(CHILDREN, run=run), *patient]:
        timers.set(tx, timers.CANCEL, str(child), data=grace)


def cancel_child(engine_state: EngineState, tx: Transaction, run: str, grace: str) -> None:
    row = tx.row(LOCK, id=run)
    if row is not None and row[2] is None:
        begin_to_cancel(engine_state, tx, run, float(grace))


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
    """Let a paused run go on. False: it is not paused."""
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


def requeue(engine_state: EngineState, tx: Transaction, run: str, after: str) -> None:
    """Give steps that were put aside while the run was paused a place in the queue again.

    A second row in the queue is harmless: a claim takes the job once. Elements that are staged get theirs with the
    others, which is after this: so those are looked for first.
    """
    tx.stage("requeue")
    to_come = expand.to_come(engine_state, tx, run)
    steps = tx.rows(WITHOUT_PLACE, run=run, after=after, limit=BATCH)
    rows = [
        {"job_id": job, "task": task, "queue": queue, "tier": tier_of(priority)}
        for job, task, queue, priority, node, path in steps
        if not to_come(str(node), path_of(path or ""))
    ]
    tx.insert("availabilities", rows)
    for queue, tier in sorted({(str(row["queue"]), int(str(row["tier"]))) for row in rows}):
        engine_state.host.wakeups.notify_on_commit(tx, [ready(queue, tier)])
    if len(steps) == BATCH:
        timers.set(tx, timers.REQUEUE, run, data=str(steps[-1][0]))


def _locked(tx: Transaction, run: str) -> tuple[str, str]:
    row = tx.row(LOCK, id=run)
    if row is None:
        raise ActionRefused(f"there is no run {run}; it may have been pruned")
    return str(row[0]), str(row[1])


# A run that takes too long is halted, what still runs in it is told to stop, and its children are cancelled.
#
# What has not stopped after a grace is given up on, as in a cancellation: a deadline ends its run. The run's row is
# written first, in a transaction that locks nothing else; telling the steps is another one.

LOCK_OVERDUE = """
SELECT mode, reasons, definition, started_at, {now} FROM {runs} WHERE id = :id AND ended_at IS NULL {lock}
"""
HALT = "UPDATE {runs} SET mode = :mode, failed = failed + 1, halted = true, reasons = :reasons WHERE id = :id"
RUNNING = """
SELECT j.id FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id WHERE j.run_id = :run AND s.status = 'running'
"""


def exceed_deadline(engine_state: EngineState, tx: Transaction, run: str) -> None:
    """Halt a run whose deadline has passed, unless its present definition has a later one."""
    tx.stage("deadline")
    row = tx.row(LOCK_OVERDUE, id=run)
    if row is None:
        return
    mode, reasons, definition, started, now = row
    limit = wiring_for(engine_state, tx, definition).definition.deadline
    if limit is None or started is None or now - started < int(limit * 1_000_000):
        return
    tx.run(
        HALT,
        id=run,
        mode="halted" if mode == "running" else mode,
        reasons=dumps([*stored_reasons(reasons), Reason.DEADLINE_EXCEEDED.value]),
    )
    timers.set(tx, timers.SWEEP, run)
    stop_requests.request_stop(tx, run)


def interrupt_running(engine_state: EngineState, tx: Transaction, run: str) -> None:
    """Tell the steps that are running to stop."""
    running = [str(id) for (id,) in tx.rows(RUNNING, run=run)]
    if running:
        cancel_jobs(tx, running, partial(follow, engine_state))


# Sweeping a run that starts nothing more: what is available, delayed or waiting ends unstarted; so the run can end.
#
# It is done batch by batch, and again with growing pauses until the run has ended: a step may have been created by a
# settle that still saw the run going on, or wait for its next retry. Steps that a worker is just claiming are passed
# over; the claim itself notices the mode.

SWEEP_BATCH = 500
LONGEST_PAUSE = 60.0

RUN = "SELECT mode FROM {runs} WHERE id = :id AND ended_at IS NULL"
CANDIDATES = """
SELECT j.id, j.run_id, j.node, j.path FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id
WHERE j.run_id = :run AND (s.status IN ('available', 'scheduled') OR (s.status = 'waiting' AND s.generation = 0))
LIMIT :limit
"""
LOCK_SWEPT = """
SELECT job_id FROM {job_states} {by_key} WHERE job_id {among:ids:uuid}
AND (status IN ('available', 'scheduled') OR (status = 'waiting' AND generation = 0)) ORDER BY job_id {lock_skip}
"""


def sweep_unstarted(tx: Transaction, run: str, pause: str | None) -> list[EndedStep]:
    """End a batch of steps that have not started; sets the next timer until the run has ended."""
    tx.stage("sweep")
    row = tx.row(RUN, id=run)
    if row is None or row[0] == RunMode.RUNNING:
        return []
    found = {str(step[0]): step for step in tx.rows(CANDIDATES, run=run, limit=SWEEP_BATCH)}
    mine = [str(id) for (id,) in tx.rows(LOCK_SWEPT, ids=sorted(found))] if found else []
    ended = not_started(tx, RunMode(row[0]), [(id, run, found[id][2], found[id][3] or "") for id in mine])
    wait = 0.0 if len(found) == SWEEP_BATCH and mine else min(2 * float(pause or 0.25), LONGEST_PAUSE)
    timers.set(tx, timers.SWEEP, run, after=wait, data=f"{wait:g}" if wait else None)
    return ended


# The grace of a cancellation, a deadline or a halt is over: what still runs is no longer waited for.
#
# Its claim is taken away, so that whatever it still returns is refused by the fence. This is done again, with growing
# pauses, until the run has ended: a claim or a child that was under way when the run was cancelled may have been
# committed after every process had looked.

FIRST_PAUSE, LONGEST_GRACE_PAUSE = 1.0, 60.0

RUN_IN_GRACE = "SELECT mode, reasons, definition FROM {runs} WHERE id = :id AND ended_at IS NULL"
HELD = """
SELECT j.id, j.node, j.path FROM {jobs} j
JOIN {job_states} s ON s.job_id = j.id WHERE j.run_id = :run AND s.status = 'running' ORDER BY j.id LIMIT 500
"""


def give_up(engine_state: EngineState, tx: Transaction, run: str, pause: str | None) -> list[EndedStep]:
    """Give up on steps that still run; returns the ended steps. Sets the next timer until the run has ended."""
    tx.stage("give_up")
    reason = _reason(engine_state, tx, run)
    if reason is None:
        return []
    wait = float(pause or FIRST_PAUSE)
    timers.set(tx, timers.GIVE_UP, run, after=wait, data=f"{min(2 * wait, LONGEST_GRACE_PAUSE):g}")
    # A child that was not cancelled in time gets no grace of its own.
    cancel_children(tx, run, "0")
    found = {str(held[0]): held for held in tx.rows(HELD, run=run)}
    running = states.lock_running(tx, sorted(found))
    if not running:
        return []
    mine = [job.job_id for job in running]
    states.end(tx, mine, JobStatus.CANCELLED, reason)
    states.record(tx, [_given_up(job, reason) for job in running])
    slots.free_slot(tx, mine)
    return [
        EndedStep(id, run, found[id][1], found[id][2] or "", JobStatus.CANCELLED, reason, None) for id in mine
    ]


def _reason(engine_state: EngineState, tx: Transaction, run: str) -> Reason | None:
    """The reason to give up on running steps; None if the run has ended, or need not be given up."""
    row = tx.row(RUN_IN_GRACE, id=run)
    if row is None:
        return None
    if row[0] == RunMode.CANCELLED:
        return Reason.CANCELLED
    if Reason.DEADLINE_EXCEEDED.value in stored_reasons(row[1]):
        return Reason.DEADLINE_EXCEEDED
    strict = wiring_for(engine_state, tx, row[2]).definition.halt_running is Running.CANCEL
    return Reason.RUN_HALTED if strict and row[0] == RunMode.HALTED else None


def _given_up(job: states.RunningJob, reason: Reason) -> states.Execution:
    what = {Reason.CANCELLED: "cancellation", Reason.RUN_HALTED: "halt"}.get(reason, "deadline")
    error = f"it was still running when the grace of its run's {what} was over"
    return job.execution(OutcomeKind.CANCELLED, "Cancelled", error)
