"""Groups dead letters: the same task, the same exception, at the same place of the user's code.

The newest dead letters are looked at, up to a limit. Each has had its fingerprint since the job failed, so grouping
reads narrow rows and no traceback. Letters from before there were fingerprints are grouped by task and reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.database.transaction import Transaction
from penstock.queue.job_records import LAST_ERROR

MOST_LETTERS = 10_000
MOST_GROUPS = 100
BUCKETS = 24
HOUR = 3_600_000_000

NEWEST = """(SELECT task, queue, reason, error_type, place, fingerprint, failed_at FROM {dead_letters}
  WHERE failed_at >= :since ORDER BY failed_at DESC LIMIT :most) newest"""
GROUPS = f"""
SELECT fingerprint, task, reason, error_type, place, COUNT(*), MIN(failed_at), MAX(failed_at) FROM {NEWEST}
GROUP BY fingerprint, task, reason, error_type, place ORDER BY COUNT(*) DESC, task LIMIT :limit
"""
OVER_TIME = f"""
SELECT fingerprint, task, reason, ({{now}} - failed_at) - ({{now}} - failed_at) % {HOUR}, COUNT(*) FROM {NEWEST}
GROUP BY fingerprint, task, reason, ({{now}} - failed_at) - ({{now}} - failed_at) % {HOUR}
"""
TOTAL = f"SELECT COUNT(*) FROM {NEWEST}"
SAMPLES = "SELECT job_id, task, reason, fingerprint FROM {dead_letters} WHERE failed_at = :at LIMIT 100"


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Dead letters of one kind. `hours`: how many failed in each of the last 24 hours, the latest last."""

    fingerprint: str | None
    task: str
    reason: str
    error_type: str | None
    place: str | None
    count: int
    first_at: int
    last_at: int
    hours: list[int] = field(default_factory=list)
    sample_id: str | None = None
    """The job that failed last."""
    error: str | None = None
    """Its message."""


@dataclass(frozen=True, slots=True)
class Failures:
    """Groups of dead letters, the most frequent first."""

    groups: list[FailureGroup]
    total: int
    limit: int
    """So many of the newest were looked at."""


def failures(tx: Transaction, since: int = 0, most: int = MOST_LETTERS) -> Failures:
    """Dead letters that failed since an instant, in groups."""
    rows = tx.rows(GROUPS, since=since, most=most, limit=MOST_GROUPS)
    hours: dict[tuple[str | None, str, str], list[int]] = {}
    for fingerprint, task, reason, back, count in tx.rows(OVER_TIME, since=since, most=most):
        hour = int(back) // HOUR
        if 0 <= hour < BUCKETS:
            hours.setdefault((fingerprint, task, reason), [0] * BUCKETS)[BUCKETS - 1 - hour] += int(count)
    groups = [_group(tx, row, hours.get((row[0], row[1], row[2]), [0] * BUCKETS)) for row in rows]
    total = tx.row(TOTAL, since=since, most=most)
    return Failures(groups, int(total[0]) if total else 0, most)


def _group(tx: Transaction, row: tuple[object, ...], hours: list[int]) -> FailureGroup:
    fingerprint, task, reason, error_type, place, count, first, last = row
    # Many may have failed at the same moment; if this kind is not among the first of them, there is no sample.
    kind = (task, reason, fingerprint)
    id = next((str(job) for job, *found in tx.rows(SAMPLES, at=last) if tuple(found) == kind), None)
    error = tx.row(LAST_ERROR, id=id) if id else None
    return FailureGroup(
        fingerprint if fingerprint is None else str(fingerprint),
        str(task),
        str(reason),
        error_type if error_type is None else str(error_type),
        place if place is None else str(place),
        int(str(count)),
        int(str(first)),
        int(str(last)),
        hours,
        id,
        str(error[1]) if error and error[1] is not None else None,
    )
