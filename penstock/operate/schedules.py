"""Finds schedules that are late, cannot be fired, are not declared any more, or will never fire again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.database.transaction import Transaction

LATE = (
    "SELECT name, ({now} - due_at) FROM {schedules} WHERE due_at < {now} - :age ORDER BY due_at LIMIT :limit"
)
IN_TROUBLE = "SELECT name, trouble FROM {schedules} WHERE trouble IS NOT NULL ORDER BY name LIMIT :limit"
ORPHANED = "SELECT name FROM {schedules} WHERE orphaned_at IS NOT NULL ORDER BY name LIMIT :limit"
# A schedule without an end that has no next time.
NEVER = """
SELECT name FROM {schedules} WHERE next_at IS NULL AND (end_at IS NULL OR end_at > {now}) ORDER BY name LIMIT :limit
"""
COUNT = "SELECT COUNT(*), COUNT(paused_at) FROM {schedules}"
MOST = 20


@dataclass(frozen=True, slots=True)
class Ailing:
    """Schedules that do not do what they should, by name."""

    count: int
    paused: int
    late: dict[str, float]
    """Seconds since a worker should have fired it."""
    troubled: dict[str, str]
    orphaned: list[str]
    never: list[str]


def ailing(tx: Transaction, age: float) -> Ailing:
    """Find at most a few schedules of each kind."""
    row = tx.row(COUNT)
    assert row is not None
    late = tx.rows(LATE, age=int(age * 1_000_000), limit=MOST)
    return Ailing(
        int(row[0]),
        int(row[1]),
        {str(name): float(micros) / 1_000_000 for name, micros in late},
        {str(name): str(trouble) for name, trouble in tx.rows(IN_TROUBLE, limit=MOST)},
        [str(name) for (name,) in tx.rows(ORPHANED, limit=MOST)],
        [str(name) for (name,) in tx.rows(NEVER, limit=MOST)],
    )


# The latest ticks of schedules, for pages.

LATEST = """
SELECT outcome, nominal_at, target_id FROM {schedule_ticks}
WHERE schedule_id = :id ORDER BY nominal_at DESC, kind LIMIT :limit
"""
RUN_STATUSES = "SELECT id, status FROM {runs} WHERE id {among:ids:uuid}"
JOB_STATUSES = "SELECT job_id, status FROM {job_states} WHERE job_id {among:ids:uuid}"


@dataclass(frozen=True, slots=True)
class LatestTick:
    """A tick, without its details."""

    outcome: str
    nominal_at: int
    target: str | None


def latest_outcomes(tx: Transaction, ids: Sequence[str], most: int) -> dict[str, list[LatestTick]]:
    """The latest ticks of each schedule, the oldest of them first."""
    return {id: [LatestTick(*row) for row in reversed(tx.rows(LATEST, id=id, limit=most))] for id in ids}


def statuses_of(tx: Transaction, ids: Sequence[str], are_runs: bool) -> dict[str, str]:
    """The status of jobs or runs that ticks have started; pruned ones are missing."""
    template = RUN_STATUSES if are_runs else JOB_STATUSES
    return {str(id): str(status) for id, status in tx.rows(template, ids=list(ids))} if ids else {}
