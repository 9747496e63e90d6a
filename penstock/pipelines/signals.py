"""Waiting for a signal, and giving it. A signal may come before, while or after a step waits for it.

Recording a signal and beginning to wait both lock the run's row, so one of the two sees the other. The signal is
recorded in a transaction that locks nothing else, together with a timer that says it is to be delivered; delivery is
a transaction of its own, done at once by whoever gave the signal and, should that process die, by the timer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.database.transaction import Transaction
from penstock.errors import ActionRefused
from penstock.pipelines import lineage, timers
from penstock.pipelines.apply import Application
from penstock.pipelines.definition import Kind
from penstock.pipelines.desk import Desk
from penstock.pipelines.paths import path_text
from penstock.pipelines.runs import RunView, views
from penstock.pipelines.steps import NewStep
from penstock.pipelines.waiting import Conclusion, conclude
from penstock.queue import audit
from penstock.queue.jobs import Ended
from penstock.queue.read import LAST_ERROR
from penstock.values.status import JobStatus, Reason

SIGNALS = "SELECT run_id, name, value FROM {signals} WHERE run_id {among:ids:uuid}"
LOCK_RUN = "SELECT ended_at FROM {runs} WHERE id = :id {lock}"
KNOWN = "SELECT value FROM {signals} WHERE run_id = :run AND name = :name"
WAITING = """
SELECT j.id FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id
WHERE j.run_id = :run AND j.node {among:nodes:text} AND s.status = 'waiting'
"""


def arrange(application: Application, waits: Mapping[str, Sequence[NewStep]]) -> list[Ended]:
    """New steps that wait, their runs locked: set their timers, and end those whose signal is there already."""
    if not waits:
        return []
    tx = application.tx
    given = {(run, name): value for run, name, value in tx.rows(SIGNALS, ids=sorted(waits))}
    concluded: dict[str, Conclusion] = {}
    for run, steps in waits.items():
        places = application.runs[run].wiring.places
        over = _over_before(application, application.runs[run], steps)
        for step in steps:
            node = places[step.node].node
            if step.id in over:
                concluded[step.id] = over[step.id]
            elif (run, node.target) in given:
                concluded[step.id] = Conclusion(JobStatus.SUCCEEDED, given[run, node.target])
            elif node.wait is not None and node.wait.timeout is not None:
                timers.set(tx, timers.WAIT, run, after=node.wait.timeout, job=step.id, data=step.node)
                application.desk.tell_chores(tx)
    return conclude(tx, concluded)


def _over_before(application: Application, run: RunView, steps: Sequence[NewStep]) -> dict[str, Conclusion]:
    """Waits that ended in the run this one was revived from are over; also those that ended with their default."""
    if run.revived_from is None:
        return {}
    tx = application.tx
    places = {step.id: (step.node, path_text(step.path)) for step in steps}
    before = lineage.before(application.desk, tx, run, places.values())
    outputs = lineage.outputs(tx, before.values())
    over: dict[str, Conclusion] = {}
    for job, place in places.items():
        known = before.get(place)
        if known is None:
            continue
        if known.succeeded in outputs:
            over[job] = Conclusion(JobStatus.SUCCEEDED, outputs[known.succeeded])
        elif known.failed is not None and run.only not in (None, place[0]):
            reason = Reason(known.failed[1]) if known.failed[1] else None
            error = tx.row(LAST_ERROR, id=known.failed[0])
            over[job] = Conclusion(JobStatus.FAILED, None, reason, error[1] if error is not None else None)
    return over


def record(tx: Transaction, run: str, name: str, value: str) -> bool:
    """Write a signal down. False: it was given before, and the first one stands."""
    tx.stage("signal")
    row = tx.row(LOCK_RUN, id=run)
    if row is None:
        raise ActionRefused(f"there is no run {run}")
    if tx.row(KNOWN, run=run, name=name) is not None:
        return False
    if row[0] is not None:
        raise ActionRefused(f"run {run} has ended: nothing in it waits for a signal any more")
    tx.insert("signals", [{"run_id": run, "name": name, "value": value}], signalled_at="{now}")
    timers.set(tx, timers.SIGNAL, run, data=name)
    audit.of_run(tx, "signal", run, signal=name)
    return True


def deliver(desk: Desk, tx: Transaction, run: str, name: str) -> list[Ended]:
    """End the steps that wait for a signal which has been recorded; what is to follow."""
    tx.stage("deliver")
    known = tx.row(KNOWN, run=run, name=name)
    view = views(desk, tx, [run]).get(run)
    if known is None or view is None:
        return []
    nodes = [
        node.key for node in view.wiring.definition.nodes if node.kind is Kind.WAIT and node.target == name
    ]
    if not nodes:
        return []
    ids = [id for (id,) in tx.rows(WAITING, run=run, nodes=nodes)]
    return conclude(tx, {id: Conclusion(JobStatus.SUCCEEDED, known[0]) for id in ids})


def time_out(desk: Desk, tx: Transaction, run: str, job: str, node: str) -> list[Ended]:
    """A step has waited long enough: it has its default, or fails.

    Unless the signal was given in time and nobody came to deliver it, as after an outage: then that counts.
    """
    tx.stage("wait_timeout")
    view = views(desk, tx, [run]).get(run)
    if view is None:
        return []
    wait = view.wiring.places[node].node.wait
    assert wait is not None
    given = tx.row(KNOWN, run=run, name=view.wiring.places[node].node.target)
    if given is not None:
        return conclude(tx, {job: Conclusion(JobStatus.SUCCEEDED, given[0])})
    if wait.default is not None:
        return conclude(tx, {job: Conclusion(JobStatus.SUCCEEDED, wait.default)})
    error = f"no signal {view.wiring.places[node].node.target!r} within {wait.timeout:g} s"
    return conclude(tx, {job: Conclusion(JobStatus.FAILED, None, Reason.WAIT_TIMED_OUT, error)})
