"""The upkeep of limits: who waits although there is room, when there will be, and what may go.

This is what correctness rests on; everything that lets jobs go sooner is a short cut. It may be done by everybody, at
any time, again and again.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.database.transaction import Transaction
from penstock.queue.slots import USED

BATCH = 500
FAR = 86_400_000_000

WAITED_FOR = f"""
SELECT l.limit_key, l.most, {USED},
  (SELECT MIN(s.until) FROM {{slots}} s WHERE s.limit_key = l.limit_key AND s.until > {{now}}) - {{now}}
FROM {{limits}} l
WHERE l.limit_key > :after AND EXISTS (SELECT 1 FROM {{parked}} p WHERE p.limit_key = l.limit_key)
ORDER BY l.limit_key LIMIT :limit
"""
EXPIRED = "SELECT job_id FROM {slots} WHERE until <= {now} LIMIT :limit"
REMOVE_EXPIRED = "{delete_from} {slots} {gone} WHERE gone.job_id {among:ids:uuid} AND gone.until <= {now}"
# Of claims that are over, whoever ended them: they do not count, and need not lie about.
ORPHANED = """
SELECT s.job_id FROM {slots} s WHERE s.until = 4611686018427387904
  AND NOT EXISTS (SELECT 1 FROM {job_states} j WHERE j.job_id = s.job_id AND j.token = s.token) LIMIT :limit
"""
REMOVE_ORPHANED = """
{delete_from} {slots} {gone} WHERE gone.job_id {among:ids:uuid} AND gone.until = 4611686018427387904
  AND NOT EXISTS (SELECT 1 FROM {job_states} j WHERE j.job_id = gone.job_id AND j.token = gone.token)
"""
AT_REST = """
NOT EXISTS (SELECT 1 FROM {slots} s WHERE s.limit_key = gone.limit_key)
  AND NOT EXISTS (SELECT 1 FROM {parked} p WHERE p.limit_key = gone.limit_key)
"""
RESTING = f"SELECT gone.limit_key FROM {{limits}} gone WHERE {AT_REST} LIMIT :limit"
LOCK = """
SELECT limit_key FROM {limits} {by_key} WHERE limit_key {among:keys:text} ORDER BY limit_key {lock_skip}
"""
REMOVE_RESTING = f"{{delete_from}} {{limits}} {{gone}} WHERE gone.limit_key {{among:keys:text}} AND {AT_REST}"
# A job may have gone over to the line of a key that was tidied away in that moment.
FORGOTTEN = """
SELECT DISTINCT p.limit_key FROM {parked} p
WHERE NOT EXISTS (SELECT 1 FROM {limits} l WHERE l.limit_key = p.limit_key)
"""


class Prospect(NamedTuple):
    """Keys that somebody waits for and that have room, and seconds until another may have; where to go on."""

    free: list[str]
    next: float | None
    after: str | None


def look(tx: Transaction, after: str = "") -> Prospect:
    """Read only: what the sweep would find to do."""
    rows = tx.rows(WAITED_FOR, after=after, limit=BATCH)
    free = [key for key, most, used, _ in rows if used < most]
    ends = [until for _, most, used, until in rows if used >= most and until is not None and until < FAR]
    following = max(0.0, min(ends) / 1_000_000) if ends else None
    return Prospect(free, following, rows[-1][0] if len(rows) == BATCH else None)


def tidy(tx: Transaction) -> None:
    """Remove what counts no more, and the rows of keys at rest."""
    tx.stage("limits_tidy")
    for found, removal in ((EXPIRED, REMOVE_EXPIRED), (ORPHANED, REMOVE_ORPHANED)):
        ids = sorted({str(row[0]) for row in tx.rows(found, limit=BATCH)})
        if ids:
            tx.run(removal, ids=ids)
    resting = sorted(row[0] for row in tx.rows(RESTING, limit=BATCH))
    # Looked at again once they are locked: somebody may just have been admitted.
    keys = [row[0] for row in tx.rows(LOCK, keys=resting)] if resting else []
    if keys:
        tx.run(REMOVE_RESTING, keys=keys)
    forgotten = [{"limit_key": key, "most": 1} for (key,) in tx.rows(FORGOTTEN)]
    tx.insert("limits", forgotten, ignore_duplicates=True)
