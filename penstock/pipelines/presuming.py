"""The usual end of a run, presumed: it has gone well, nobody waits above it, and nothing follows it.

Like the settle before it (`queue.presume`), it is written without waiting for an answer, and fails the transaction
where it is not so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.database.transaction import Transaction
from penstock.pipelines.apply import RunChange
from penstock.pipelines.runs import RunView

SUCCEED = """
WITH ended AS (
  UPDATE {runs} SET status = 'succeeded', ended_at = {now}
  WHERE id {among:ids:uuid} AND mode = 'running' AND paused_at IS NULL AND ended_at IS NULL AND failed = 0
    AND NOT halted AND reserved IS NULL AND parent_job_id IS NULL
  RETURNING id)
SELECT 1 / (CASE WHEN count(*) = :expected THEN 1 ELSE 0 END) FROM ended
"""
# By a statement of its own: whoever has a run follow this one holds its row while they write that down.
NOTHING_FOLLOWS = """
SELECT 1 / (CASE WHEN EXISTS (SELECT 1 FROM {chains} WHERE upstream_id {among:ids:uuid}) THEN 0 ELSE 1 END)
"""
USUAL = RunChange(ended=True)


def all_as_usual(runs: Mapping[str, RunView], changes: Mapping[str, RunChange]) -> bool:
    """Nothing that is known here speaks against it."""
    return all(change == USUAL and not runs[id].is_child for id, change in changes.items())


def succeed(tx: Transaction, ids: Sequence[str]) -> None:
    """End these runs, or fail."""
    tx.run(SUCCEED, ids=sorted(ids), expected=len(ids))
    tx.run(NOTHING_FOLLOWS, ids=sorted(ids))
