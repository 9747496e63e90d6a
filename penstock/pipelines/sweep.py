"""Sweeping a run that starts nothing more: what is available, delayed or waiting ends unstarted; so the run can end.

It is done batch by batch, and again with growing pauses until the run has ended: a step may have been created by a
settle that still saw the run going on, or wait for its next retry. What somebody is just claiming is passed over; the
claim itself notices the mode.
"""

from __future__ import annotations

from penstock.database.transaction import Transaction
from penstock.pipelines import timers
from penstock.pipelines.changes import RunMode
from penstock.pipelines.hydrate import not_started
from penstock.queue.jobs import Ended

BATCH = 500
LONGEST_PAUSE = 60.0

RUN = "SELECT mode FROM {runs} WHERE id = :id AND ended_at IS NULL"
CANDIDATES = """
SELECT j.id, j.run_id, j.node, j.path FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id
WHERE j.run_id = :run AND (s.status IN ('available', 'scheduled') OR (s.status = 'waiting' AND s.generation = 0))
LIMIT :limit
"""
LOCK = """
SELECT job_id FROM {job_states} {by_key} WHERE job_id {among:ids:uuid}
AND (status IN ('available', 'scheduled') OR (status = 'waiting' AND generation = 0)) ORDER BY job_id {lock_skip}
"""


def sweep(tx: Transaction, run: str, pause: str | None) -> list[Ended]:
    """One batch of a run's steps that have not started; the timer is set anew until the run has ended."""
    tx.stage("sweep")
    row = tx.row(RUN, id=run)
    if row is None or row[0] == RunMode.RUNNING:
        return []
    found = {str(step[0]): step for step in tx.rows(CANDIDATES, run=run, limit=BATCH)}
    mine = [str(id) for (id,) in tx.rows(LOCK, ids=sorted(found))] if found else []
    ended = not_started(tx, RunMode(row[0]), [(id, run, found[id][2], found[id][3] or "") for id in mine])
    wait = 0.0 if len(found) == BATCH and mine else min(2 * float(pause or 0.25), LONGEST_PAUSE)
    timers.set(tx, timers.SWEEP, run, after=wait, data=f"{wait:g}" if wait else None)
    return ended
