"""A run that takes too long is halted, what still runs in it is told to stop, and its children are cancelled.

What has not stopped after a grace is given up on, as in a cancellation: a deadline ends its run. The run's row is
written first, in a transaction that locks nothing else; telling the steps is another one.
"""

from __future__ import annotations

from functools import partial

from penstock.database.transaction import Transaction
from penstock.pipelines import stopping, timers
from penstock.pipelines.closing import follow
from penstock.pipelines.desk import Desk
from penstock.pipelines.runs import wiring_for
from penstock.queue.control import cancel
from penstock.values.jsontext import dumps, loads
from penstock.values.status import Reason

LOCK = """
SELECT mode, reasons, definition, {now} - started_at FROM {runs} WHERE id = :id AND ended_at IS NULL {lock}
"""
HALT = "UPDATE {runs} SET mode = :mode, failed = failed + 1, halted = true, reasons = :reasons WHERE id = :id"
RUNNING = """
SELECT j.id FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id WHERE j.run_id = :run AND s.status = 'running'
"""


def exceed(desk: Desk, tx: Transaction, run: str) -> None:
    """The deadline of a run has come, unless the definition that it has now says otherwise."""
    tx.stage("deadline")
    row = tx.row(LOCK, id=run)
    if row is None:
        return
    mode, reasons, definition, age = row
    limit = wiring_for(desk, tx, definition).definition.deadline
    if limit is None or age is None or age < int(limit * 1_000_000):
        return
    known = loads(reasons)
    assert isinstance(known, list)
    tx.run(
        HALT,
        id=run,
        mode="halted" if mode == "running" else mode,
        reasons=dumps([*known, Reason.DEADLINE_EXCEEDED.value]),
    )
    timers.set(tx, timers.SWEEP, run)
    stopping.tell(tx, run)


def interrupt(desk: Desk, tx: Transaction, run: str) -> None:
    """Tell the steps that are running to stop."""
    running = [str(id) for (id,) in tx.rows(RUNNING, run=run)]
    if running:
        cancel(tx, running, partial(follow, desk))
