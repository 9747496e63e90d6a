"""The rows of runs: failures, changes of mode, and the end, with everything that belongs into the same transaction.

A run is over when its last join fires, and that happens in one transaction only: there its row is locked, its
status derived, its callbacks enqueued, its parent's step ended and what follows it started. Invariants 4 and 7.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from penstock.database.dialect import Ahead, Row
from penstock.database.transaction import Transaction
from penstock.errors import AdvancementFailed
from penstock.pipelines.advance import run_headers, run_rows, stop_requests, timers
from penstock.pipelines.advance.advance import Advance, RunChange
from penstock.pipelines.advance.read import first_failure, stored_reasons
from penstock.pipelines.advance.run_rows import RunView
from penstock.pipelines.advance.state import EngineState, JobTemplate, Mode
from penstock.pipelines.advance.values import result_text
from penstock.pipelines.advance.waits import WaitResult, finish_waiting
from penstock.pipelines.model.definition import Callback, Definition, Running, Strategy, payload
from penstock.pipelines.model.expressions import path_text
from penstock.pipelines.model.wiring import Wiring, wiring_of
from penstock.pipelines.plan.changes import RunMode
from penstock.pipelines.plan.plan import RunState, events_of, status_of
from penstock.queue.enqueue import enqueue as enqueue_jobs
from penstock.queue.jobs import EndedStep, NewJob, Offer, tier_of, with_headers
from penstock.telemetry.events import RunEnded
from penstock.values.ids import new_id
from penstock.values.status import JobStatus, Reason, RunStatus
from penstock.values.typed_json.json_text import dumps

# The runs that follow others, seen from the end of one: they are to be looked at now (see `chains`).

DOWNSTREAM = (
    "SELECT DISTINCT downstream_id FROM {chains} WHERE upstream_id {among:ids:uuid} ORDER BY downstream_id"
)


def ask_followers(tx: Transaction, ending: Sequence[str]) -> Ahead:
    """Query the runs that follow these, whose rows are locked, or are locked by a statement sent before."""
    return tx.send_ahead(DOWNSTREAM, ids=sorted(ending))


def wake_followers(tx: Transaction, followers: Sequence[Row]) -> None:
    """Set the timers that decide about followers."""
    for (downstream,) in followers:
        timers.set(tx, timers.CHAIN, str(downstream))


def free_places(tx: Transaction, ended: Sequence[RunView]) -> None:
    """Have the next of each pipeline that has a limit on its runs let in (see `run_line`)."""
    limited = {run.pipeline: run.id for run in ended if run.is_limited}
    for pipeline, run in limited.items():
        timers.set(tx, timers.ADMIT, run, data=pipeline)


# Callbacks: ordinary jobs, enqueued in the transaction that makes a run terminal, under a key of the run's own.


def enqueue(
    engine_state: EngineState, tx: Transaction, run: RunView, status: RunStatus, reasons: tuple[str, ...]
) -> None:
    """Enqueue the callbacks of a run."""
    wanted = dict(run.wiring.definition.callbacks)
    told: dict[str, object] = {
        "run_id": run.id,
        "id": run.id,
        "pipeline": run.pipeline,
        "status": status.value,
        "reasons": list(reasons),
    }
    jobs = [
        _job(found, event, run.id, told) for event in events_of(status) for found in wanted.get(event, ())
    ]
    if not jobs:
        return
    if engine_state.host.enqueue_middlewares:
        jobs = list(with_headers(jobs, run_headers.find(tx, run.id)))
    enqueue_jobs(tx, jobs)
    engine_state.trace(tx).made.update({job.id: (job.queue, tier_of(job.priority)) for job in jobs})
    engine_state.tell_ready(tx)


def _job(callback: Callback, event: str, run: str, told: dict[str, object]) -> NewJob:
    template = JobTemplate.of(callback.task, callback.job)
    return NewJob(
        id=new_id(),
        task=template.task,
        queue=template.queue,
        priority=template.priority,
        payload=payload(callback, told),
        options=template.options,
        max_crashes=template.max_crashes,
        delay=callback.delay,
        key=f"{event}:{run}",
    )


# The usual end of a run, presumed: it has gone well, no parent waits for it, and nothing follows it.
#
# Like the settle before it (`run_modes`), it is written without waiting for an answer, and fails the transaction
# where it is not so.

SUCCEED = """
UPDATE {runs} SET status = 'succeeded', ended_at = {now}
WHERE id {among:ids:uuid} AND mode = 'running' AND paused_at IS NULL AND ended_at IS NULL AND failed = 0
  AND NOT halted AND reserved IS NULL AND parent_job_id IS NULL
"""
# By a statement of its own: a caller that chains a run to this one holds its row while it writes the edge.
NOTHING_FOLLOWS = "NOT EXISTS (SELECT 1 FROM {chains} WHERE upstream_id {among:ids:uuid})"
USUAL = RunChange(ended=True)


def all_plain(runs: Mapping[str, RunView], changes: Mapping[str, RunChange]) -> bool:
    """True if nothing known here contradicts the assumption."""
    return all(change == USUAL and not runs[id].is_child for id, change in changes.items())


def succeed(tx: Transaction, ids: Sequence[str]) -> None:
    """End these runs, or fail."""
    tx.assume_changed(SUCCEED, len(ids), ids=sorted(ids))
    tx.assume(NOTHING_FOLLOWS, ids=sorted(ids))


# Halting runs for which nothing can be planned (see `troubles`). Needs nothing of their definitions.
#
# This is done again whenever one of their steps ends, until none is left: the transaction that ends the last of
# them, by the lock on the run's row, ends the run.

UNFINISHED = """
SELECT 1 FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id
WHERE j.run_id = :run AND s.status IN ('available', 'scheduled', 'running', 'waiting') LIMIT 1
"""
FORGET_EXPANDS = "DELETE FROM {advancements} WHERE run_id = :run"


def abandon(application: Advance, ids: Sequence[str]) -> None:
    """Nothing of these runs will start; each ends as halted when nothing of it is left."""
    for id in ids:
        run = _view(application, id)
        if run is None:
            continue
        application.runs[id] = run
        change = application.change(run)
        change.mode, change.abandoned = RunMode.HALTED, True
        application.tx.run(FORGET_EXPANDS, run=id)


def nothing_is_left(tx: Transaction, run: str) -> bool:
    """Every step that there is has ended. Its row is locked, so the last two to end see each other."""
    return not tx.rows(UNFINISHED, run=run)


def _view(application: Advance, id: str) -> RunView | None:
    engine_state, tx = application.engine_state, application.tx
    try:
        return run_rows.views(engine_state, tx, [id]).get(id)
    except AdvancementFailed:
        row = tx.row("SELECT pipeline, definition, args, mode FROM {runs} WHERE id = :id", id=id)
        if row is None:
            return None
        pipeline, definition, args, mode = row
        return RunView(id, pipeline, definition, _empty(pipeline), args, RunMode(mode))


def _empty(pipeline: str) -> Wiring:
    """Stands for a definition that cannot be read: no steps, no callbacks."""
    return wiring_of(Definition(pipeline, (), ()).text)


LOCK = """
SELECT id, mode, failed, halted, reasons, paused_at, ended_at, parent_job_id, reserved FROM {runs} {by_key}
WHERE id {among:ids:uuid} ORDER BY id {lock}
"""
WRITE = """
UPDATE {runs} {by_key} SET mode = :mode, status = :status, failed = :failed, halted = :halted, reasons = :reasons,
  reserved = :reserved
WHERE id {among:ids:uuid}
"""
CLOSE = """
UPDATE {runs} {by_key} SET mode = :mode, status = :status, failed = :failed, halted = :halted, reasons = :reasons,
  reserved = :reserved, ended_at = {now}
WHERE id {among:ids:uuid}
"""
BECAUSE = ", because of "
KEEP_RESULT = "UPDATE {runs} SET result = :result WHERE id = :id"


class RunEnd(NamedTuple):
    """A run that this transaction ends."""

    run: RunView
    status: RunStatus
    reasons: tuple[str, ...]
    parent_job: str | None


class _Row(NamedTuple):
    mode: RunMode
    failed: int
    halted: bool
    reasons: tuple[str, ...]
    paused: bool
    ended: bool
    parent_job: str | None
    reserved: int | None

    def status(self, ended: bool) -> RunStatus:
        cancelled = self.mode is RunMode.CANCELLED
        return status_of(
            RunState(
                ended=ended,
                failed=self.failed,
                halted=self.halted,
                paused=self.paused,
                cancelled=cancelled,
            )
        )


def follow(
    engine_state: EngineState, tx: Transaction, ended: Sequence[EndedStep], offer: Offer | None = None
) -> None:
    """Write everything that follows from ended steps, in this transaction."""
    tx.stage("advance")
    trace = engine_state.trace(tx)
    trace.offer = offer
    for step in ended:
        if isinstance(step.run, Mode):
            trace.modes[step.run_id] = step.run
    if any(step.status is JobStatus.CANCELLED for step in ended):
        stop_requests.cancel_left_behind(tx, ended)
    application = Advance(engine_state, tx)
    _go_on(application, ended)
    finish(application)
    trace.offer = None  # its receipt is written next: what this transaction makes later is for the queue


def give_up(engine_state: EngineState, tx: Transaction, run: str) -> None:
    """Halt a run that cannot be planned, without waiting for a step of it to end."""
    tx.stage("advance")
    application = Advance(engine_state, tx)
    abandon(application, [run])
    finish(application)


def finish(application: Advance) -> None:
    """Work off, write runs, and go on with what that has ended, until nothing is left."""
    while True:
        application.work_off()
        ended = _settle_runs(application)
        if not ended:
            return
        _go_on(application, ended)


def _go_on(application: Advance, ended: Sequence[EndedStep]) -> None:
    """Plan what follows from these steps; for runs that are given up nothing is planned, also where a child ends."""
    lost = application.engine_state.planning_failures.given_up([step.run_id for step in ended])
    application.ended([step for step in ended if step.run_id not in lost] if lost else ended)
    abandon(application, lost)


def _settle_runs(application: Advance) -> list[EndedStep]:
    changes, application.changes = application.changes, {}
    if not changes:
        return []
    tx = application.tx
    if tx.optimistic and all_plain(application.runs, changes):
        succeed(tx, list(changes))
        usual = [RunEnd(application.runs[id], RunStatus.SUCCEEDED, (), None) for id in changes]
        return _end(application, usual, ())
    groups: dict[tuple[_Row, RunStatus, bool], list[str]] = defaultdict(list)
    ends: list[RunEnd] = []
    locked = tx.send_ahead(LOCK, ids=sorted(changes))
    ending = [id for id, change in changes.items() if change.ended or change.abandoned]
    asked = ask_followers(tx, ending) if ending else None
    rows, following = locked(), asked() if asked is not None else ()
    for id, *stored in rows:
        row, change, run = _read(stored), changes[id], application.runs[id]
        if row.ended:
            continue
        change.ended = change.ended or (change.abandoned and nothing_is_left(tx, id))
        after = _within_budget(_changed(row, change), run)
        if change.ended and after.mode is RunMode.CANCELLED:
            after = after._replace(reasons=tuple(dict.fromkeys([*after.reasons, Reason.CANCELLED.value])))
        _note_mode(application, row, after, id, change)
        status = after.status(change.ended)
        groups[after._replace(parent_job=None), status, change.ended].append(id)
        if change.ended:
            ends.append(RunEnd(run, status, after.reasons, after.parent_job))
    for (row, status, ended), ids in groups.items():
        _write(tx, row, status, ended, ids)
    _note_losers(tx, changes)
    more = application.engine_state.features.start_waiting(
        application, {id: change.waits for id, change in changes.items() if change.waits}
    )
    return more + (_end(application, ends, following) if ends else [])


def _read(stored: Sequence[object]) -> _Row:
    mode, failed, halted, reasons, paused, ended, parent, reserved = stored
    return _Row(
        RunMode(str(mode)),
        int(str(failed)),
        bool(halted),
        stored_reasons(str(reasons)),
        paused is not None,
        ended is not None,
        None if parent is None else str(parent),
        None if reserved is None else int(str(reserved)),
    )


def _changed(row: _Row, change: RunChange) -> _Row:
    counted = [failed for failed in change.failures if failed.strategy is not Strategy.OPTIONAL]
    mode = change.mode if change.mode is not None and row.mode is RunMode.RUNNING else row.mode
    given_up = [Reason.ADVANCEMENT_FAILED.value] if change.abandoned else []
    return row._replace(
        mode=mode,
        failed=row.failed + len(counted) + len(given_up),
        halted=row.halted or change.abandoned or any(f.strategy is Strategy.HALT for f in counted),
        reasons=tuple(dict.fromkeys([*row.reasons, *[f.reason.value for f in counted], *given_up])),
        reserved=(row.reserved or 0) + change.reserved if change.reserved else row.reserved,
    )


def _within_budget(row: _Row, run: RunView) -> _Row:
    """Here, under the lock, it is decided: expands at the same moment may each have seen that there was room."""
    reason = Reason.MAX_STEPS_EXCEEDED.value
    if not run_rows.is_exceeded(run, row.reserved) or reason in row.reasons:
        return row
    mode = RunMode.HALTED if row.mode is RunMode.RUNNING else row.mode
    return row._replace(mode=mode, failed=row.failed + 1, halted=True, reasons=(*row.reasons, reason))


def _note_mode(application: Advance, before: _Row, after: _Row, id: str, change: RunChange) -> None:
    if after.mode is before.mode:
        return
    tx, engine_state, run = application.tx, application.engine_state, application.runs[id]
    run.mode = after.mode
    engine_state.trace(tx).modes[id] = Mode(after.mode.value, after.paused, run.definition)
    if change.result is not None:
        tx.run(KEEP_RESULT, id=id, result=change.result)
    if change.ended:
        return
    timers.set(tx, timers.SWEEP, id)
    if after.mode is RunMode.HALTED and run.wiring.definition.halt_running is Running.CANCEL:
        stop_requests.request_stop(tx, id)


def _note_losers(tx: Transaction, changes: Mapping[str, RunChange]) -> None:
    """Have waits ended that have lost. The rows of their runs are locked: a wait that begins later sees it itself."""
    found = {id: change.losers for id, change in changes.items() if change.losers and not change.ended}
    if found:
        tx.certify(run_rows.CERTIFY, ids=sorted(found))
    for id, lost in found.items():
        for one in lost:
            timers.set(tx, timers.LOST, id, data=dumps([list(one.nodes), path_text(one.path)]))


def _write(tx: Transaction, row: _Row, status: RunStatus, ended: bool, ids: Sequence[str]) -> None:
    tx.run(
        CLOSE if ended else WRITE,
        mode=row.mode.value,
        status=status.value,
        failed=row.failed,
        halted=row.halted,
        reasons=dumps(list(row.reasons)),
        reserved=row.reserved,
        ids=ids,
    )


def _end(application: Advance, ends: Sequence[RunEnd], following: Sequence[Row]) -> list[EndedStep]:
    engine_state, tx = application.engine_state, application.tx
    for end in ends:
        enqueue(engine_state, tx, end.run, end.status, end.reasons)
    wake_followers(tx, following)
    free_places(tx, [end.run for end in ends])
    engine_state.tell_ended(tx)
    if engine_state.host.events.wants(RunEnded):
        tx.after_commit(partial(_emit, engine_state, ends))
    return finish_waiting(
        tx, {end.parent_job: _as_step(application, end) for end in ends if end.parent_job is not None}
    )


def _emit(engine_state: EngineState, ends: Sequence[RunEnd]) -> None:
    for end in ends:
        scheduled = end.run.scheduled_for is not None and end.parent_job is None
        told = RunEnded(end.run.id, end.run.pipeline, end.status, end.reasons, scheduled)
        engine_state.host.events.emit(told)


def _as_step(application: Advance, end: RunEnd) -> WaitResult:
    """How the end of a child run looks to the step that it is."""
    match end.status:
        case RunStatus.SUCCEEDED:
            return WaitResult(JobStatus.SUCCEEDED, _output(application, end.run))
        case RunStatus.CANCELLED:
            return WaitResult(JobStatus.CANCELLED, reason=Reason.CANCELLED)
    error = f"run {end.run.id} of {end.run.pipeline} ended {end.status}: {', '.join(end.reasons)}"
    step, cause = first_failure(application.tx, end.run.id, end.run.wiring.definition)
    if cause:
        # Of runs inside of runs, what went wrong in the innermost: each is named by the step that it was.
        error += BECAUSE + (cause.partition(BECAUSE)[2] or f"step {step!r}: {cause}")
    return WaitResult(JobStatus.FAILED, reason=Reason.CHILD_RUN_FAILED, error=error)


def _output(application: Advance, run: RunView) -> str:
    if run.mode is RunMode.STOPPED:
        row = application.tx.row("SELECT result FROM {runs} WHERE id = :id", id=run.id)
        return str(row[0]) if row is not None else "null"
    return result_text(application.engine_state, application.tx, run, application.values)
