"""Old runs go, oldest end first, a batch of steps at a time; the run's row last.

A run stays as long as somebody who has not ended may need it: one that follows it, or one that was revived from
it, or from the run that it is a child of.
"""

from __future__ import annotations

from penstock.database.transaction import Transaction
from penstock.pipelines import revivals
from penstock.queue.retention import REMOVALS

BATCH = 1000

OLDEST = """
SELECT r.id, r.pipeline, r.run_key FROM {runs} r WHERE r.ended_at < {now} - :age
  AND NOT EXISTS (SELECT 1 FROM {chains} c JOIN {runs} d ON d.id = c.downstream_id
    WHERE c.upstream_id = r.id AND d.ended_at IS NULL)
  AND NOT EXISTS (SELECT 1 FROM {runs} d WHERE d.revived_from IN (r.id, r.parent_run_id) AND d.ended_at IS NULL)
ORDER BY r.ended_at, r.id LIMIT 1
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
    """Remove one batch: how many runs are gone for good, and whether there is more to do."""
    tx.stage("prune_runs")
    row = tx.row(OLDEST, age=int(age * 1_000_000))
    if row is None:
        return 0, False
    run, pipeline, key = row
    ids = [str(id) for (id,) in tx.rows(STEPS, run=run, limit=BATCH)]
    if ids:
        for removal in REMOVALS:
            tx.run(removal, ids=ids)
        return 0, True
    if key is not None:
        tx.run(FORGET_KEY, pipeline=pipeline, run=run, key=key)
    tx.run(FORGET_REVIVAL, pipeline=pipeline, key=revivals.key_of(str(run)))
    for removal in OF_A_RUN:
        tx.run(removal, run=run)
    return 1, True
