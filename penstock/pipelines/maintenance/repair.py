"""Finds, reports and repairs runs that are active and that nothing would advance.

By design there are none: whatever follows from a step is written with its result. This is for other causes: rows
restored from a backup, deleted by hand, or lost to a bug. Two things are looked for. A step that is
available but has no place in the queue, in a run that is not paused and has no large expand under way (its elements
are staged without places), gets one. A run all of whose steps have ended, with no expand under way and no timer of its
own, is ended with the status that its failures give it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.database.transaction import Transaction
from penstock.pipelines.advance import advance, finish, run_rows
from penstock.pipelines.advance.state import EngineState
from penstock.queue import audit
from penstock.queue.jobs import tier_of

OLD_ENOUGH = 60.0
WHY = "it was active, and nothing was queued, held, delayed or waiting"

ACTIVE = """
SELECT r.id FROM {runs} r
WHERE r.ended_at IS NULL AND r.started_at IS NOT NULL AND r.started_at < {now} - :age AND r.id > :after
ORDER BY r.id LIMIT :limit
"""
MOVING = """
SELECT 1 FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id
WHERE j.run_id = :run AND s.status IN ('available', 'scheduled', 'running', 'waiting') LIMIT 1
"""
EXPANDING = "SELECT 1 FROM {advancements} WHERE run_id = :run LIMIT 1"
TIMED = """
SELECT 1 FROM {timers} WHERE run_id = :run AND kind NOT IN ('deadline', 'sweep', 'give_up', 'remind', 'remind_signed')
LIMIT 1
"""
LOST = """
SELECT j.id, j.task, j.queue, j.priority FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id
WHERE j.run_id = :run AND s.status = 'available'
  AND NOT EXISTS (SELECT 1 FROM {availabilities} a WHERE a.job_id = j.id)
  AND NOT EXISTS (SELECT 1 FROM {parked} p WHERE p.job_id = j.id)
  AND NOT EXISTS (SELECT 1 FROM {advancements} x WHERE x.run_id = j.run_id)
  AND NOT EXISTS (SELECT 1 FROM {timers} t WHERE t.run_id = j.run_id AND t.kind = 'requeue') LIMIT 500
"""
GOES_ON = "SELECT 1 FROM {runs} WHERE id = :id AND mode = 'running' AND paused_at IS NULL"
"""Steps of a run that does not go on are ended by a sweep, or wait for the resume: they need no place."""
LOCK = "SELECT ended_at FROM {runs} WHERE id = :id {lock}"


class Stuck(NamedTuple):
    """A run that would not have advanced again, and its repair."""

    run: str
    repair: str


def look(tx: Transaction, after: str, limit: int, age: float = OLD_ENOUGH) -> list[str]:
    """The next runs to look at, by id."""
    rows = tx.rows(ACTIVE, age=int(age * 1_000_000), after=after, limit=limit)
    return [str(id) for (id,) in rows]


def is_stuck(tx: Transaction, run: str) -> bool:
    """True if no step of this run is queued, held, delayed or waiting."""
    return not any(tx.rows(probe, run=run) for probe in (MOVING, EXPANDING, TIMED))


def repair(engine_state: EngineState, tx: Transaction, run: str) -> Stuck | None:
    """Check one run and repair it."""
    tx.stage("repair")
    lost = tx.rows(LOST, run=run) if tx.row(GOES_ON, id=run) is not None else []
    if lost:
        _queue(tx, lost)
        return _repaired(tx, run, f"{len(lost)} available steps had no place in the queue and got one")
    if not is_stuck(tx, run):
        return None
    # The run may have ended or advanced while it was not locked: check it again under the lock.
    locked = tx.row(LOCK, id=run)
    if locked is None or locked[0] is not None or not is_stuck(tx, run):
        return None
    found = run_rows.views(engine_state, tx, [run]).get(run)
    if found is None:
        return None
    application = advance.Advance(engine_state, tx)
    application.runs[run] = found
    application.changes[run] = advance.RunChange(ended=True)
    finish.finish(application)
    return _repaired(tx, run, "all its steps had ended; the run was ended too")


def _repaired(tx: Transaction, run: str, repair: str) -> Stuck:
    audit.of_run(tx, "repair", run, WHY, repair=repair)
    return Stuck(run, repair)


def _queue(tx: Transaction, lost: Sequence[Sequence[object]]) -> None:
    rows = [
        {"job_id": job, "task": task, "queue": queue, "tier": tier_of(int(str(priority)))}
        for job, task, queue, priority in lost
    ]
    tx.insert("availabilities", rows)
