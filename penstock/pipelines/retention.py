"""Old runs go, oldest end first, each with all its steps at once unless it is very large; the run's row last.

A run stays as long as somebody may need it who is still there. A run that was revived asks all those before it what
they made of a step, also for its idempotency key, under which `once()` remembers; so the one before it stays while it
is there. A child is continued when its parent is revived, to any depth, or the last of its own revivals is; so all of
these stay while its parent is there. And a run stays until those that follow it have ended.

The run's row is locked first, as everybody does who would build on it, and what holds it back is asked again under
that lock. Of a run so large that it goes in pieces nobody can make use any more once the first of them is gone: it
is marked as revived, by itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.database.dialect import Row
from penstock.database.transaction import Transaction
from penstock.pipelines import revivals
from penstock.queue.retention import REMOVALS

BATCH = 1000
LOOKED_AT, MOST_LOOKED_AT = 5, 500
"""So many runs are looked at first for one that may leave; more and more where those before are held back."""

FREE = """
SELECT r.id, r.pipeline, r.run_key, r.revived_from FROM {runs} r WHERE r.ended_at < {now} - :age
  AND NOT EXISTS (SELECT 1 FROM {chains} c JOIN {runs} d ON d.id = c.downstream_id
    WHERE c.upstream_id = r.id AND d.ended_at IS NULL)
  AND NOT EXISTS (SELECT 1 FROM {runs} p WHERE p.id = r.parent_run_id)
"""
OLDEST = FREE + "ORDER BY r.ended_at, r.id LIMIT :limit OFFSET :skip"
STILL_FREE = FREE + "AND r.id = :run"
LOCK = "SELECT id FROM {runs} WHERE id = :run {lock_skip}"
BEFORE = """
SELECT r.revived_from, p.id FROM {runs} r LEFT JOIN {runs} p ON p.id = r.parent_run_id WHERE r.id = :run
"""
CONTINUED = """
SELECT k.run_key, k.run_id FROM {run_keys} k JOIN {runs} d ON d.id = k.run_id
WHERE k.pipeline {among:pipelines:text} AND k.run_key {among:keys:text}
"""
STEPS = "SELECT id FROM {jobs} WHERE run_id = :run LIMIT :limit"
OF_A_RUN = (
    "DELETE FROM {joins} WHERE run_id = :run",
    "DELETE FROM {run_labels} WHERE run_id = :run",
    "DELETE FROM {signals} WHERE run_id = :run",
    "DELETE FROM {element_signals} WHERE run_id = :run",
    "DELETE FROM {tuples} WHERE run_id = :run",
    "DELETE FROM {chains} WHERE downstream_id = :run OR upstream_id = :run",
    "DELETE FROM {advancements} WHERE run_id = :run",
    "DELETE FROM {runs} WHERE id = :run",
)
FORGET_KEY = "DELETE FROM {run_keys} WHERE pipeline = :pipeline AND run_key = :key AND run_id = :run"
FORGET_REVIVAL = "DELETE FROM {run_keys} WHERE pipeline = :pipeline AND run_key = :key"


def prune(tx: Transaction, age: float) -> tuple[int, bool]:
    """Remove one run, or a batch of its steps: how many runs are gone for good, and whether there is more to do."""
    tx.stage("prune_runs")
    row = next(_leaving(tx, int(age * 1_000_000)), None)
    if row is None:
        return 0, False
    run, pipeline, key, _ = row
    ids = [str(id) for (id,) in tx.rows(STEPS, run=run, limit=BATCH)]
    if ids:
        for removal in REMOVALS:
            tx.run(removal, ids=ids)
    if len(ids) == BATCH:
        revivals.take(tx, str(pipeline), str(run), str(run))
        return 0, True
    if key is not None:
        tx.run(FORGET_KEY, pipeline=pipeline, run=run, key=key)
    tx.run(FORGET_REVIVAL, pipeline=pipeline, key=revivals.key_of(str(run)))
    for removal in OF_A_RUN:
        tx.run(removal, run=run)
    return 1, True


def _leaving(tx: Transaction, age: int) -> Iterator[Row]:
    """Those that may go, each locked, the oldest first."""
    skip, limit = 0, LOOKED_AT
    while found := tx.rows(OLDEST, age=age, limit=limit, skip=skip):
        continued = _continued(tx, found)
        for row in found:
            if str(row[0]) in continued or _is_for_a_parent(tx, row[3]):
                continue
            if tx.row(LOCK, run=row[0]) is None:
                continue
            if tx.rows(STILL_FREE, age=age, run=row[0]) and not _continued(tx, [row]):
                yield row
        skip, limit = skip + limit, min(limit * 5, MOST_LOOKED_AT)


def _is_for_a_parent(tx: Transaction, before: object) -> bool:
    """It continues a child whose parent is there: that one's revival goes on from here."""
    while before is not None and (row := tx.row(BEFORE, run=before)) is not None:
        before, parent = row
        if parent is not None:
            return True
    return False


def _continued(tx: Transaction, found: list[Row]) -> set[str]:
    """Those from which a run was revived that is there. One that is marked as its own revival is half gone."""
    runs = {revivals.key_of(str(row[0])): str(row[0]) for row in found}
    pipelines = sorted({str(row[1]) for row in found})
    rows = tx.rows(CONTINUED, pipelines=pipelines, keys=sorted(runs))
    return {runs[key] for key, run in rows if runs[key] != str(run)}
