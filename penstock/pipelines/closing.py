"""The rows of runs: failures, changes of mode, and the end, with everything that belongs into the same transaction.

A run is over when its last join fires, and that happens in one transaction only: there its row is locked, its
status derived, its callbacks enqueued, its parent's step ended and what follows it started. Invariants 4 and 7.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from penstock.database.dialect import Row
from penstock.database.transaction import Transaction
from penstock.pipelines import abandoning, budget, callbacks, followers, signals, stopping, timers
from penstock.pipelines.apply import Application, RunChange
from penstock.pipelines.changes import RunMode
from penstock.pipelines.definition import Running, Strategy
from penstock.pipelines.desk import Desk, Mode
from penstock.pipelines.ending import RunState, status_of
from penstock.pipelines.presuming import all_as_usual, succeed
from penstock.pipelines.results import result_text
from penstock.pipelines.runs import RunView
from penstock.pipelines.waiting import Conclusion, conclude
from penstock.queue.jobs import Ended, Offer
from penstock.telemetry.events import RunEnded
from penstock.values.jsontext import dumps, loads
from penstock.values.status import JobStatus, Reason, RunStatus

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


def follow(desk: Desk, tx: Transaction, ended: Sequence[Ended], offer: Offer | None = None) -> None:
    """Everything that follows from ended steps, in this transaction."""
    tx.stage("advance")
    trace = desk.trace(tx)
    trace.offer = offer
    for step in ended:
        if step.mode is not None:
            trace.modes[step.run_id] = Mode(step.mode, step.paused, step.definition)
    stopping.cancel_left_behind(tx, ended)
    application = Application(desk, tx)
    _go_on(application, ended)
    finish(application)
    trace.offer = None  # its receipt is written next: what this transaction makes later is for the queue


def give_up(desk: Desk, tx: Transaction, run: str) -> None:
    """Halt a run that cannot be planned, without waiting for a step of it to end."""
    tx.stage("advance")
    application = Application(desk, tx)
    abandoning.abandon(application, [run])
    finish(application)


def finish(application: Application) -> None:
    """Work off, write runs, and go on with what that has ended, until nothing is left."""
    while True:
        application.work_off()
        ended = _settle_runs(application)
        if not ended:
            return
        _go_on(application, ended)


def _go_on(application: Application, ended: Sequence[Ended]) -> None:
    """Plan what follows from these steps; for runs that are given up nothing is planned, also where a child ends."""
    lost = application.desk.troubles.given_up([step.run_id for step in ended])
    application.ended([step for step in ended if step.run_id not in lost] if lost else ended)
    abandoning.abandon(application, lost)


def _settle_runs(application: Application) -> list[Ended]:
    changes, application.changes = application.changes, {}
    if not changes:
        return []
    tx = application.tx
    if tx.presumes and all_as_usual(application.runs, changes):
        succeed(tx, list(changes))
        usual = [RunEnd(application.runs[id], RunStatus.SUCCEEDED, (), None) for id in changes]
        return _end(application, usual, ())
    groups: dict[tuple[_Row, RunStatus, bool], list[str]] = defaultdict(list)
    ends: list[RunEnd] = []
    locked = tx.ahead(LOCK, ids=sorted(changes))
    ending = [id for id, change in changes.items() if change.ended or change.abandoned]
    asked = followers.ask(tx, ending) if ending else None
    rows, following = locked(), asked() if asked is not None else ()
    for id, *stored in rows:
        row, change, run = _read(stored), changes[id], application.runs[id]
        if row.ended:
            continue
        change.ended = change.ended or (change.abandoned and abandoning.nothing_is_left(tx, id))
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
    more = signals.arrange(application, {id: change.waits for id, change in changes.items() if change.waits})
    return more + (_end(application, ends, following) if ends else [])


def _read(stored: Sequence[object]) -> _Row:
    mode, failed, halted, reasons, paused, ended, parent, reserved = stored
    known = loads(str(reasons))
    assert isinstance(known, list)
    return _Row(
        RunMode(str(mode)),
        int(str(failed)),
        bool(halted),
        tuple([str(reason) for reason in known]),
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
    if not budget.is_exceeded(run, row.reserved) or reason in row.reasons:
        return row
    mode = RunMode.HALTED if row.mode is RunMode.RUNNING else row.mode
    return row._replace(mode=mode, failed=row.failed + 1, halted=True, reasons=(*row.reasons, reason))


def _note_mode(application: Application, before: _Row, after: _Row, id: str, change: RunChange) -> None:
    if after.mode is before.mode:
        return
    tx, desk, run = application.tx, application.desk, application.runs[id]
    run.mode = after.mode
    desk.trace(tx).modes[id] = Mode(after.mode.value, after.paused, run.definition)
    if change.result is not None:
        tx.run(KEEP_RESULT, id=id, result=change.result)
    if change.ended:
        return
    timers.set(tx, timers.SWEEP, id)
    if after.mode is RunMode.HALTED and run.wiring.definition.halt_running is Running.CANCEL:
        stopping.tell(tx, id)


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


def _end(application: Application, ends: Sequence[RunEnd], following: Sequence[Row]) -> list[Ended]:
    desk, tx = application.desk, application.tx
    for end in ends:
        callbacks.enqueue(desk, tx, end.run, end.status, end.reasons)
    followers.wake(tx, following)
    desk.tell_ended(tx)
    if desk.host.events.wants(RunEnded):
        tx.after_commit(partial(_emit, desk, ends))
    return conclude(
        tx, {end.parent_job: _as_step(application, end) for end in ends if end.parent_job is not None}
    )


def _emit(desk: Desk, ends: Sequence[RunEnd]) -> None:
    for end in ends:
        desk.host.events.emit(RunEnded(end.run.id, end.run.pipeline, end.status, end.reasons))


def _as_step(application: Application, end: RunEnd) -> Conclusion:
    """How the end of a child run looks to the step that it is."""
    match end.status:
        case RunStatus.SUCCEEDED:
            return Conclusion(JobStatus.SUCCEEDED, _output(application, end.run))
        case RunStatus.CANCELLED:
            return Conclusion(JobStatus.CANCELLED, reason=Reason.CANCELLED)
    error = f"run {end.run.id} of {end.run.pipeline} ended {end.status}: {', '.join(end.reasons)}"
    return Conclusion(JobStatus.FAILED, reason=Reason.CHILD_RUN_FAILED, error=error)


def _output(application: Application, run: RunView) -> str:
    if run.mode is RunMode.STOPPED:
        row = application.tx.row("SELECT result FROM {runs} WHERE id = :id", id=run.id)
        return str(row[0]) if row is not None else "null"
    return result_text(application.desk, application.tx, run, application.values)
