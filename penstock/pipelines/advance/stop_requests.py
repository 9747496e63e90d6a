"""Telling what runs in a run to stop: its steps and its children are told at once, and given up on after a grace."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.database.transaction import Transaction
from penstock.pipelines.advance import timers
from penstock.queue.jobs import EndedStep
from penstock.values.status import JobStatus

GRACE = 10.0
"""Seconds that a step has to stop by itself, where the caller gives no number."""

# A worker that has begun to give up on steps writes into `data` when to look again; a worker that holds such a timer
# is about to.
PATIENT = """
SELECT due_at, id FROM {timers} {by_key}
WHERE run_id = :run AND kind = 'give_up' AND data IS NULL AND due_at > {now} + :wait ORDER BY due_at, id {lock_skip}
"""
LEFT_BEHIND = """
SELECT id FROM {runs} WHERE parent_run_id {among:runs:uuid} AND parent_job_id {among:jobs:uuid}
  AND ended_at IS NULL AND mode <> 'cancelled'
"""


def request_stop(tx: Transaction, run: str, grace: float = GRACE) -> None:
    """Set the timers that stop running steps: the caller holds the run's row, and locks nothing after it."""
    timers.set(tx, timers.INTERRUPT, run)
    timers.set(tx, timers.CHILDREN, run, data=f"{grace:g}")
    timers.set(tx, timers.GIVE_UP, run, after=grace)


def hurry(tx: Transaction, run: str, grace: float) -> bool:
    """Give what was told before no more than this grace from now on. False: it has no more anyway."""
    patient = tx.rows(PATIENT, run=run, wait=int(grace * 1_000_000))
    for due, id in patient:
        tx.run(timers.REMOVE, due=due, id=id)
    if patient:
        timers.set(tx, timers.GIVE_UP, run, after=grace)
    return bool(patient)


def cancel_left_behind(tx: Transaction, ended: Sequence[EndedStep]) -> None:
    """The step of a child run was cancelled by itself: no step waits for that run, so it is cancelled too."""
    cancelled = [step for step in ended if step.status is JobStatus.CANCELLED]
    if not cancelled:
        return
    runs, jobs = ({step.run_id for step in cancelled}, {step.job_id for step in cancelled})
    for (child,) in tx.rows(LEFT_BEHIND, runs=sorted(runs), jobs=sorted(jobs)):
        timers.set(tx, timers.CANCEL, str(child), data=f"{GRACE:g}")
