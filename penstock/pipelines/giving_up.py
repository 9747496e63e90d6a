"""The grace of a cancellation, a deadline or a halt is over: what still runs is no longer waited for.

Its claim is taken away, so that whatever it still returns is refused by the fence. This is done again, with growing
pauses, until the run has ended: a claim or a child that was under way when the run was cancelled may have been
committed after everybody had looked.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.database.transaction import Transaction
from penstock.pipelines import steering, timers
from penstock.pipelines.changes import RunMode
from penstock.pipelines.definition import Running
from penstock.pipelines.desk import Desk
from penstock.pipelines.runs import wiring_for
from penstock.queue import slots
from penstock.queue.jobs import Ended
from penstock.values.jsontext import loads
from penstock.values.status import JobStatus, OutcomeKind, Reason

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0

RUN = "SELECT mode, reasons, definition FROM {runs} WHERE id = :id AND ended_at IS NULL"
HELD = """
SELECT j.id, j.node, j.path, s.generation, s.claimed_at, s.process_id FROM {jobs} j
JOIN {job_states} s ON s.job_id = j.id WHERE j.run_id = :run AND s.status = 'running' ORDER BY j.id LIMIT 500
"""
LOCK_HELD = """
SELECT job_id FROM {job_states} WHERE job_id {among:ids:uuid} AND status = 'running' ORDER BY job_id {lock}
"""
GIVE_UP = """
UPDATE {job_states} SET status = 'cancelled', reason = :reason, token = NULL, process_id = NULL,
  finished_at = {now}
WHERE job_id {among:ids:uuid}
"""


def give_up(desk: Desk, tx: Transaction, run: str, pause: str | None) -> list[Ended]:
    """Give up on what still runs; what is to follow. The timer is set anew until the run has ended."""
    tx.stage("give_up")
    reason = _reason(desk, tx, run)
    if reason is None:
        return []
    wait = float(pause or FIRST_PAUSE)
    timers.set(tx, timers.GIVE_UP, run, after=wait, data=f"{min(2 * wait, LONGEST_PAUSE):g}")
    # Whoever was not told in time is given no grace of its own.
    steering.cancel_children(tx, run, "0")
    found = {str(held[0]): held for held in tx.rows(HELD, run=run)}
    mine = [str(id) for (id,) in tx.rows(LOCK_HELD, ids=sorted(found))] if found else []
    if not mine:
        return []
    tx.run(GIVE_UP, ids=mine, reason=reason.value)
    tx.insert("executions", [_given_up(found[id], reason) for id in mine], finished_at="{now}")
    slots.vacate(tx, mine)
    return [
        Ended(id, run, found[id][1], found[id][2] or "", JobStatus.CANCELLED, reason, None) for id in mine
    ]


def _reason(desk: Desk, tx: Transaction, run: str) -> Reason | None:
    """Why nobody waits any longer; None: the run has ended, or nobody has asked for that."""
    row = tx.row(RUN, id=run)
    if row is None:
        return None
    if row[0] == RunMode.CANCELLED:
        return Reason.CANCELLED
    known = loads(row[1])
    late = isinstance(known, list) and Reason.DEADLINE_EXCEEDED.value in known
    if late:
        return Reason.DEADLINE_EXCEEDED
    strict = wiring_for(desk, tx, row[2]).definition.halt_running is Running.CANCEL
    return Reason.RUN_HALTED if strict and row[0] == RunMode.HALTED else None


def _given_up(held: Sequence[object], reason: Reason) -> dict[str, object]:
    job, _node, _path, generation, claimed_at, process = held
    what = {Reason.CANCELLED: "cancellation", Reason.RUN_HALTED: "halt"}.get(reason, "deadline")
    return {
        "job_id": job,
        "generation": generation,
        "process_id": process,
        "started_at": claimed_at,
        "outcome": OutcomeKind.CANCELLED.value,
        "error_type": "Cancelled",
        "error": f"it was still running when the grace of its run's {what} was over",
    }
