"""The line of a pipeline with `max_running`: which of its runs are under way, and which wait for room.

A run has a row in `run_places` from the moment it is due; its number is its place in the line. Nothing is counted up or
down: a run counts if its row says that it was admitted and the run has not ended, whatever ends it.

One transaction decides, `admit`, under the lock on the pipeline's row in `run_lines`; on a cluster with several
writers, which does not replicate locks, that row is written as well. A timer does it, never a caller: a caller that
keeps its transaction open would block the others. It starts no run itself, but sets a timer for each that it lets in:
one that cannot be started is in no other's way. Every run that joins the line, and every end of one, sets a timer to
admit, in the transaction in which that happens; now and then all lines are looked at (see `chores`).

Child runs do not count, and never wait here: the parent that waits for one may be of the same pipeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.database.transaction import Transaction
from penstock.pipelines.advance import timers
from penstock.pipelines.model.definition import Definition

BATCH = 100
"""The most runs that one transaction admits."""

OWN_PLACE = "SELECT admitted FROM {run_places} WHERE run_id = :run"
KNOWN = "SELECT 1 FROM {run_lines} WHERE pipeline = :pipeline"
LAST = "SELECT most FROM {run_places} WHERE pipeline = :pipeline ORDER BY seq DESC LIMIT 1"
LOCK = "SELECT most FROM {run_lines} WHERE pipeline = :pipeline {lock}"
CERTIFY = "UPDATE {run_lines} SET lock_count = COALESCE(lock_count, 0) + 1 WHERE pipeline = :pipeline"
CHANGE = "UPDATE {run_lines} SET most = :most WHERE pipeline = :pipeline"
ADMITTED = """
SELECT p.run_id, r.id IS NULL OR r.ended_at IS NOT NULL FROM {run_places} p LEFT JOIN {runs} r ON r.id = p.run_id
WHERE p.pipeline = :pipeline AND p.admitted = true
"""
FIRST = """
SELECT p.run_id, r.id IS NULL OR r.ended_at IS NOT NULL FROM {run_places} p LEFT JOIN {runs} r ON r.id = p.run_id
WHERE p.pipeline = :pipeline AND p.admitted = false ORDER BY p.seq LIMIT :limit
"""
ADMIT = "UPDATE {run_places} SET admitted = true WHERE run_id {among:ids:uuid}"
LEAVE = "DELETE FROM {run_places} WHERE run_id {among:ids:uuid}"
WAITED_FOR = "SELECT DISTINCT pipeline FROM {run_places} WHERE admitted = false ORDER BY pipeline"
PLACE = """
SELECT p.pipeline, COALESCE((SELECT l.most FROM {run_lines} l WHERE l.pipeline = p.pipeline), 0), p.admitted,
  (SELECT COUNT(*) FROM {run_places} a JOIN {runs} r ON r.id = a.run_id
   WHERE a.pipeline = p.pipeline AND a.admitted = true AND r.ended_at IS NULL),
  (SELECT COUNT(*) FROM {run_places} b JOIN {runs} r ON r.id = b.run_id
   WHERE b.pipeline = p.pipeline AND b.admitted = false AND b.seq < p.seq AND r.ended_at IS NULL)
FROM {run_places} p WHERE p.run_id = :run
"""

UNLIMITED = 0
"""Stored as `most` when the newest code has no limit any more."""


class Place(NamedTuple):
    """Where a run stands in the line of its pipeline."""

    pipeline: str
    most: int
    """How many may be under way; 0 while that is not decided."""
    admitted: bool
    under_way: int
    before: int
    """How many runs wait before it."""


def join(tx: Transaction, runs: Sequence[tuple[str, Definition]]) -> None:
    """Put runs that are due at the end of their lines, in this order."""
    rows = [
        {"run_id": run, "pipeline": definition.name, "most": definition.max_running, "admitted": False}
        for run, definition in runs
    ]
    tx.insert("run_places", rows)
    for pipeline, run in {definition.name: run for run, definition in runs}.items():
        timers.set(tx, timers.ADMIT, run, data=pipeline)


def is_admitted(tx: Transaction, run: str, definition: Definition) -> bool:
    """True if a run, whose row is locked, may start. One that is not in the line yet joins it."""
    row = tx.row(OWN_PLACE, run=run)
    if row is None:
        join(tx, [(run, definition)])
    return row is not None and bool(row[0])


def admit(tx: Transaction, pipeline: str, most: int | None) -> None:
    """Admit as many runs as there is room for, in the order of the line.

    `most`: how many may be under way by the code of this process, 0 for any number; None: it does not know the
    pipeline. Then the number counts that was decided by last, or that the last in line was triggered with.
    """
    tx.stage("admit")
    most = _lock(tx, pipeline, most)
    admitted = tx.rows(ADMITTED, pipeline=pipeline)
    leaving = [str(run) for run, is_over in admitted if is_over]
    room = BATCH if most == UNLIMITED else min(BATCH, most - (len(admitted) - len(leaving)))
    first = tx.rows(FIRST, pipeline=pipeline, limit=room) if room > 0 else []
    going = [str(run) for run, is_over in first if not is_over]
    leaving += [str(run) for run, is_over in first if is_over]
    if leaving:
        tx.run(LEAVE, ids=sorted(leaving))
    if going:
        tx.run(ADMIT, ids=sorted(going))
    for run in going:
        timers.set(tx, timers.START, run)
    if len(first) == room and (room == BATCH or len(going) < room):
        timers.set(tx, timers.ADMIT, str(first[0][0]), data=pipeline)


def waited_for(tx: Transaction) -> list[str]:
    """The pipelines whose runs wait in line."""
    return [str(pipeline) for (pipeline,) in tx.rows(WAITED_FOR)]


def place_of(tx: Transaction, run: str) -> Place | None:
    """Where a run stands in its line, if it is in one."""
    row = tx.row(PLACE, run=run)
    return None if row is None else Place(str(row[0]), int(row[1]), bool(row[2]), int(row[3]), int(row[4]))


def _lock(tx: Transaction, pipeline: str, most: int | None) -> int:
    """Lock the line; how many may be under way."""
    if tx.row(KNOWN, pipeline=pipeline) is None:
        last = tx.row(LAST, pipeline=pipeline) if most is None else (most,)
        row = {"pipeline": pipeline, "most": UNLIMITED if last is None else last[0]}
        tx.insert("run_lines", [row], ignore_duplicates=True)
    locked = tx.row(LOCK, pipeline=pipeline)
    assert locked is not None
    tx.certify(CERTIFY, pipeline=pipeline)
    if most is None or most == int(locked[0]):
        return int(locked[0])
    tx.run(CHANGE, pipeline=pipeline, most=most)
    return most
