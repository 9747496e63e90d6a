"""Begins and ends waits, and records signals. A signal may come before, while or after a step waits for it.

Recording a signal and beginning to wait both lock the run's row, so one of the two sees the other. The signal is
recorded in a transaction that locks nothing else, together with a timer that says it is to be delivered; delivery is
a transaction of its own, done at once by the process that gave the signal and, should that process die, by the timer.

A wait that has lasted long enough has its default, unless a signal was given. It ends the step first, as the order of
locks wants it, and looks last, under the run's lock, whether it was overtaken; if so, it takes everything back. So a
caller that was told that its signal was taken, while the step waited, has given it.

A wait that a decided first no longer needs has lost, and is skipped. The transaction that decides the first locks the
run's row and leaves a timer; a wait that begins, under the same lock, looks whether its first has been decided. So one
of the two sees the other: the timer finds the step, or the step finds the first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from pydantic_core import from_json

from penstock.database.transaction import Transaction
from penstock.errors import ActionRefused
from penstock.pipelines.advance import join_rows, timers
from penstock.pipelines.advance.advance import Advance
from penstock.pipelines.advance.run_rows import CERTIFY, RunView, views
from penstock.pipelines.advance.state import EngineState
from penstock.pipelines.advance.step_rows import NewStep
from penstock.pipelines.advance.waits import WaitResult, finish_waiting
from penstock.pipelines.lifecycle import lineage, reminders, signal_rows
from penstock.pipelines.model.definition import Wait
from penstock.pipelines.model.expressions import TOP, Path, path_text
from penstock.pipelines.plan.losers import only_first
from penstock.queue import audit
from penstock.queue.job_records import LAST_ERROR
from penstock.queue.jobs import EndedStep
from penstock.values.status import JobStatus, Reason

LOCK_RUN = "SELECT ended_at FROM {runs} WHERE id = :id {lock}"
WAITING = """
SELECT j.id, j.path FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id
WHERE j.run_id = :run AND j.node {among:nodes:text} AND s.status = 'waiting'
"""
AT_PATH = " AND j.path = :path"
LOST = WaitResult(JobStatus.SKIPPED, reason=Reason.FIRST_DECIDED)
PATH = "SELECT path FROM {jobs} WHERE id = :job"


class Overtaken(Exception):
    """A signal was recorded while a wait was timing out: the timeout is rolled back, and its timer stays."""


def start_waiting(application: Advance, waits: Mapping[str, Sequence[NewStep]]) -> list[EndedStep]:
    """Begin waits, whose runs are locked: set their timers, and end those whose signal was given already."""
    if not waits:
        return []
    tx = application.tx
    tx.certify(CERTIFY, ids=sorted(waits))
    given = signal_rows.given(
        tx, list(waits), [path_text(step.path) for steps in waits.values() for step in steps]
    )
    concluded: dict[str, WaitResult] = {}
    for run, steps in waits.items():
        view = application.runs[run]
        places = view.wiring.places
        over = _lost_before(application, view, steps) | _over_before(application, view, steps)
        for step in steps:
            node = places[step.node].node
            if step.id in over:
                concluded[step.id] = over[step.id]
                continue
            own, general = (run, node.target, path_text(step.path)), (run, node.target, "")
            if own in given or general in given:
                value = given[own] if own in given else given[general]
                concluded[step.id] = WaitResult(JobStatus.SUCCEEDED, value)
            elif node.wait is not None:
                _set_timers(application, step, node.wait)
    return finish_waiting(tx, concluded)


def _set_timers(application: Advance, step: NewStep, wait: Wait) -> None:
    if wait.timeout is not None:
        timers.set(application.tx, timers.WAIT, step.run_id, after=wait.timeout, job=step.id, data=step.node)
    if wait.remind is not None:
        reminders.begin(application.tx, step.run_id, step.id, step.node, wait.remind)


def _over_before(application: Advance, run: RunView, steps: Sequence[NewStep]) -> dict[str, WaitResult]:
    """The waits that ended in the run this one was revived from, also those that ended with their default."""
    if run.revived_from is None:
        return {}
    tx = application.tx
    places = {step.id: (step.node, path_text(step.path)) for step in steps}
    before = lineage.before(application.engine_state, tx, run, places.values())
    outputs = lineage.outputs(tx, before.values())
    over: dict[str, WaitResult] = {}
    for job, place in places.items():
        known = before.get(place)
        if known is None:
            continue
        if known.succeeded in outputs:
            over[job] = WaitResult(JobStatus.SUCCEEDED, outputs[known.succeeded])
        elif known.failed is not None and run.only not in (None, place[0]):
            reason = Reason.stored(known.failed[1]) if known.failed[1] else None
            error = tx.row(LAST_ERROR, id=known.failed[0])
            said = error[1] if error is not None else None
            over[job] = WaitResult(JobStatus.FAILED, None, reason, said, kept=True)
    return over


def _lost_before(application: Advance, run: RunView, steps: Sequence[NewStep]) -> dict[str, WaitResult]:
    """Waits whose `first` is decided already: none of their tokens has reached it, so another input has won."""
    groups: dict[str, list[NewStep]] = defaultdict(list)
    for step in steps:
        first = only_first(run.wiring, step.node)
        if first is not None:
            groups[first].append(step)
    lost: dict[str, WaitResult] = {}
    for first, some in groups.items():
        fired = join_rows.fired_among(application.tx, first, {(run.id, step.path) for step in some})
        lost |= {step.id: LOST for step in some if (run.id, step.path) in fired}
    return lost


def end_losers(tx: Transaction, run: str, data: str) -> list[EndedStep]:
    """Skip waits that have lost and still wait; returns the ended steps."""
    tx.stage("end_losers")
    nodes, path = from_json(data)
    if path:
        found = tx.rows(WAITING + AT_PATH, run=run, nodes=nodes, path=path)
    else:
        found = tx.rows(WAITING, run=run, nodes=nodes)
    return finish_waiting(tx, {id: LOST for id, _ in found})


def record(
    tx: Transaction,
    run: str,
    name: str,
    value: str,
    path: Path = TOP,
    headers: Mapping[str, str] | None = None,
) -> bool:
    """Record a signal. False: it was given before, and the first one stays."""
    tx.stage("signal")
    row = tx.row(LOCK_RUN, id=run)
    if row is None:
        raise ActionRefused(f"there is no run {run}")
    tx.certify(CERTIFY, ids=[run])
    if signal_rows.find(tx, run, name, path_text(path)) is not None:
        return False
    if row[0] is not None:
        raise ActionRefused(f"run {run} has ended: nothing in it waits for a signal any more")
    signal_rows.write(tx, run, name, value, path, headers)
    audit.of_run(tx, "signal", run, signal=name, path=list(path) or None)
    return True


def deliver(
    engine_state: EngineState, tx: Transaction, run: str, name: str, path: str = ""
) -> list[EndedStep]:
    """End the steps that wait for a signal which has been recorded; what is to follow."""
    tx.stage("deliver")
    nodes = [node.key for node in signal_rows.waits_for(engine_state, tx, run, name)]
    if not nodes:
        return []
    if path:
        found = tx.rows(WAITING + AT_PATH, run=run, nodes=nodes, path=path)
    else:
        found = tx.rows(WAITING, run=run, nodes=nodes)
    given = signal_rows.given(tx, [run], [path or "" for _, path in found])
    concluded = {}
    for id, at in found:
        value = given.get((run, name, at or ""), given.get((run, name, "")))
        if value is not None:
            concluded[id] = WaitResult(JobStatus.SUCCEEDED, value)
    return finish_waiting(tx, concluded)


def time_out(engine_state: EngineState, tx: Transaction, run: str, job: str, node: str) -> list[EndedStep]:
    """A step has waited long enough: it has its default, or fails. To be followed by `confirm`.

    If the signal was given in time and no process came to deliver it, as after an outage, the signal counts.
    """
    tx.stage("wait_timeout")
    view = views(engine_state, tx, [run]).get(run)
    if view is None:
        return []
    name, wait = view.wiring.places[node].node.target, view.wiring.places[node].node.wait
    assert wait is not None
    given = _given_to(tx, run, job, name)
    if given is not None:
        return finish_waiting(tx, {job: WaitResult(JobStatus.SUCCEEDED, given)})
    if wait.default is not None:
        return finish_waiting(tx, {job: WaitResult(JobStatus.SUCCEEDED, wait.default)})
    error = f"no signal {name!r} within {wait.timeout:g} s"
    return finish_waiting(tx, {job: WaitResult(JobStatus.FAILED, None, Reason.WAIT_TIMED_OUT, error)})


def confirm(
    engine_state: EngineState, tx: Transaction, run: str, node: str, ended: Sequence[EndedStep]
) -> None:
    """The last statements of a timeout.

    Giving a signal locks the run's row: we see the signal, or it comes too late.
    """
    tx.stage("confirm_timeout")
    view = views(engine_state, tx, [run]).get(run)
    if view is None or not ended or tx.row(LOCK_RUN, id=run) is None:
        return
    tx.certify(CERTIFY, ids=[run])
    given = _given_to(tx, run, ended[0].job_id, view.wiring.places[node].node.target)
    if given is not None and given != ended[0].output:
        raise Overtaken


def _given_to(tx: Transaction, run: str, job: str, name: str) -> str | None:
    row = tx.row(PATH, job=job)
    return signal_rows.find(tx, run, name, str(row[0] or "")) if row is not None else None
