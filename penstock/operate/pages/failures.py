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

AGE = "{now} - failed_at"
BACK = f"CASE WHEN {AGE} < {BUCKETS * HOUR} THEN ({AGE}) - ({AGE}) % {HOUR} ELSE {BUCKETS * HOUR} END"
GROUPS = f"""
SELECT fingerprint, task, reason, error_type, place, back, COUNT(*), MIN(failed_at), MAX(failed_at) FROM (
  SELECT task, reason, error_type, place, fingerprint, failed_at, {BACK} AS back FROM {{dead_letters}}
  WHERE failed_at >= :since ORDER BY failed_at DESC LIMIT :most) newest
GROUP BY fingerprint, task, reason, error_type, place, back
"""
"""Reads all groups at once, by hour; the hours of a group are added up here."""
SAMPLES = "SELECT job_id, task, reason, fingerprint FROM {dead_letters} WHERE failed_at = :at LIMIT 100"


Kind = tuple[object, ...]
"""(fingerprint, task, reason, error_type, place)"""
Row = tuple[int, int, int, int]
"""(microseconds back to the hour, how many, the first, the last)"""


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
    """How many of the newest letters were looked at."""


def failures(tx: Transaction, since: int = 0, most: int = MOST_LETTERS) -> Failures:
    """Group the dead letters that failed since an instant."""
    kinds: dict[Kind, list[Row]] = {}
    for *kind, back, count, first, last in tx.rows(GROUPS, since=since, most=most):
        kinds.setdefault(tuple(kind), []).append((int(back), int(count), int(first), int(last)))
    counts = {kind: sum(count for _, count, _, _ in rows) for kind, rows in kinds.items()}
    frequent = sorted(kinds, key=lambda kind: (-counts[kind], str(kind[1])))[:MOST_GROUPS]
    return Failures([_group(tx, kind, kinds[kind]) for kind in frequent], sum(counts.values()), most)


def _group(tx: Transaction, kind: Kind, rows: list[Row]) -> FailureGroup:
    fingerprint, task, reason, error_type, place = kind
    last = max(row[3] for row in rows)
    hours = [0] * BUCKETS
    for back, count, _, _ in rows:
        if 0 <= (hour := back // HOUR) < BUCKETS:
            hours[BUCKETS - 1 - hour] += count
    # Many jobs may have failed at the same moment. If none of the first is of this kind, there is no sample.
    known = (task, reason, fingerprint)
    id = next((str(job) for job, *found in tx.rows(SAMPLES, at=last) if tuple(found) == known), None)
    error = tx.row(LAST_ERROR, id=id) if id else None
    return FailureGroup(
        fingerprint if fingerprint is None else str(fingerprint),
        str(task),
        str(reason),
        error_type if error_type is None else str(error_type),
        place if place is None else str(place),
        sum(row[1] for row in rows),
        min(row[2] for row in rows),
        last,
        hours,
        id,
        str(error[1]) if error and error[1] is not None else None,
    )
