"""The upkeep of limits: finds keys with waiting jobs and free slots, says when slots become free, removes old rows.

Correctness depends on this sweep; everything that lets jobs go sooner is a short cut. Any process may do it, at any
time, again and again.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from penstock.database.transaction import Transaction
from penstock.queue.limits.slots import NEVER, TAKE_BACK, USED

BATCH = 500
FAR = 86_400_000_000

WAITED_FOR = f"""
SELECT l.limit_key, l.most, {USED},
  (SELECT MIN(s.until) FROM {{slots}} s WHERE s.limit_key = l.limit_key AND s.until > {{now}}), {{now}}
FROM {{limits}} l
WHERE l.limit_key > :after AND EXISTS (SELECT 1 FROM {{parked}} p WHERE p.limit_key = l.limit_key)
ORDER BY l.limit_key LIMIT :limit
"""
EXPIRED = "SELECT job_id FROM {slots} WHERE until <= {now} LIMIT :limit"
REMOVE_EXPIRED = "DELETE FROM {slots} WHERE job_id {among:ids:uuid} AND until <= {now}"
# Slots of claims that are over: they do not count, and the sweep removes them.
ORPHANED = f"""
SELECT s.token, s.job_id FROM {{slots}} s WHERE s.until = {NEVER}
  AND NOT EXISTS (SELECT 1 FROM {{job_states}} j WHERE j.job_id = s.job_id AND j.token = s.token) LIMIT :limit
"""
AT_REST = """
NOT EXISTS (SELECT 1 FROM {slots} s WHERE s.limit_key = {limits}.limit_key)
  AND NOT EXISTS (SELECT 1 FROM {parked} p WHERE p.limit_key = {limits}.limit_key)
"""
RESTING = f"SELECT limit_key FROM {{limits}} WHERE {AT_REST} LIMIT :limit"
LOCK = """
SELECT limit_key FROM {limits} {by_key} WHERE limit_key {among:keys:text} ORDER BY limit_key {lock_skip}
"""
STILL_RESTING = f"SELECT limit_key FROM {{limits}} WHERE limit_key {{among:keys:text}} AND {AT_REST}"
REMOVE_RESTING = "DELETE FROM {limits} WHERE limit_key {among:keys:text}"
# A job may have moved to the line of a key that was removed in that moment.
FORGOTTEN = """
SELECT DISTINCT p.limit_key FROM {parked} p
WHERE NOT EXISTS (SELECT 1 FROM {limits} l WHERE l.limit_key = p.limit_key)
"""


class UpkeepReport(NamedTuple):
    """Keys with waiting jobs and free slots, the seconds until another key may have one, and the key to go on after."""

    free: list[str]
    next: float | None
    after: str | None


def look(tx: Transaction, after: str = "") -> UpkeepReport:
    """Read what the sweep would have to do; writes nothing."""
    rows = tx.rows(WAITED_FOR, after=after, limit=BATCH)
    free = [key for key, most, used, _, _ in rows if used < most]
    waits = [until - now for _, most, used, until, now in rows if used >= most and until is not None]
    ends = [wait for wait in waits if wait < FAR]
    following = max(0.0, min(ends) / 1_000_000) if ends else None
    return UpkeepReport(free, following, rows[-1][0] if len(rows) == BATCH else None)


def tidy(tx: Transaction) -> None:
    """Remove what counts no more, and the rows of keys at rest.

    What is to go is read first, and then removed by its key: a DELETE that asks other tables would lock what it reads
    there, on some databases, and wait for the admission of other jobs.
    """
    tx.stage("limits_tidy")
    expired = sorted({str(row[0]) for row in tx.rows(EXPIRED, limit=BATCH)})
    if expired:
        tx.run(REMOVE_EXPIRED, ids=expired)
    orphaned: dict[int, list[str]] = defaultdict(list)
    for token, job_id in tx.rows(ORPHANED, limit=BATCH):
        orphaned[token].append(str(job_id))
    for token, ids in sorted(orphaned.items()):
        tx.run(TAKE_BACK, token=token, ids=sorted(ids))
    _tidy_keys(tx)
    forgotten = [{"limit_key": key, "most": 1} for (key,) in tx.rows(FORGOTTEN)]
    tx.insert("limits", forgotten, ignore_duplicates=True)


def _tidy_keys(tx: Transaction) -> None:
    """Remove keys without slots and waiting jobs. They are read again under the lock: a claim may use them by now."""
    resting = sorted(row[0] for row in tx.rows(RESTING, limit=BATCH))
    locked = [row[0] for row in tx.rows(LOCK, keys=resting)] if resting else []
    keys = sorted(row[0] for row in tx.rows(STILL_RESTING, keys=locked)) if locked else []
    if keys:
        tx.run(REMOVE_RESTING, keys=keys)
