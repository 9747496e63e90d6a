"""Reads charts from the roll-ups: attempts, failures and lag over an hour, a day or a week.

A chart reads the roll-ups of its time and the tallies that are not folded yet, both bounded; never the history.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from penstock.database.transaction import Transaction
from penstock.queue.tallies import RollupSpan

MOST_TALLIES = 5000
TOP = 20

CLOCK = "SELECT {now}"
ROLLED = """
SELECT begins_at, outcome, SUM(attempts), SUM(failed), SUM(run_micros), MAX(longest) FROM {rollups}
WHERE span = :span AND begins_at >= :since"""
GROUPED = " GROUP BY begins_at, outcome"
UNFOLDED = """
SELECT tallied_at, outcome, attempts, failed, run_micros, longest FROM {tallies} WHERE tallied_at >= :since"""
NEWEST = " ORDER BY seq DESC LIMIT :limit"
TASKS = """
SELECT task, SUM(attempts), SUM(failed), SUM(run_micros), MAX(longest),
  SUM(CASE WHEN outcome IN ('errored', 'timed_out', 'crashed') THEN attempts ELSE 0 END)
FROM {rollups} WHERE span = :span AND begins_at >= :since GROUP BY task ORDER BY SUM(attempts) DESC LIMIT :limit
"""
SAMPLES = """
SELECT begins_at, MAX(lag), SUM(available) FROM {queue_samples} WHERE span = :span AND begins_at >= :since"""
BAD = frozenset({"errored", "timed_out", "crashed"})


class Period(StrEnum):
    """The time that a chart shows."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"

    @property
    def span(self) -> RollupSpan:
        """How long one point of the chart is."""
        spans = {"hour": RollupSpan.MINUTE, "day": RollupSpan.TEN_MINUTES, "week": RollupSpan.HOUR}
        return spans[self.value]

    @property
    def points(self) -> int:
        return {"hour": 60, "day": 144, "week": 168}[self.value]


@dataclass(slots=True)
class ChartPoint:
    """One moment of a chart. `errors` counts attempts that did not end well, `failed` jobs that were given up."""

    begins_at: int
    succeeded: int = 0
    errors: int = 0
    other: int = 0
    failed: int = 0
    run_seconds: float = 0.0
    longest: float = 0.0
    lag: float = 0.0
    available: int = 0

    def add(self, outcome: str, attempts: int, failed: int, run_micros: int, longest: int) -> None:
        if outcome == "succeeded":
            self.succeeded += attempts
        elif outcome in BAD:
            self.errors += attempts
        else:
            self.other += attempts
        self.failed += failed
        self.run_seconds += run_micros / 1e6
        self.longest = max(self.longest, longest / 1e6)


@dataclass(frozen=True, slots=True)
class TaskShare:
    """One task's part of a period."""

    task: str
    attempts: int
    errors: int
    failed: int
    mean: float
    """Seconds that an attempt took, on average."""
    longest: float


@dataclass(frozen=True, slots=True)
class Chart:
    """Points in order of time, all of the same length, the last of which is still going on."""

    period: Period
    seconds: int
    """Length of a point."""
    points: list[ChartPoint]


def chart(tx: Transaction, period: Period, task: str | None = None, queue: str | None = None) -> Chart:
    """Attempts, failures and lag over a period; of one task or one queue, if given."""
    span = period.span
    row = tx.row(CLOCK)
    assert row is not None
    last = span.begin(int(row[0]))
    begins = [last - span.micros * back for back in reversed(range(period.points))]
    points = {begin: ChartPoint(begin) for begin in begins}
    given = {name: value for name, value in (("task", task), ("queue", queue)) if value is not None}
    where = "".join(f" AND {name} = :{name}" for name in given)
    for begin, outcome, *sums in tx.rows(ROLLED + where + GROUPED, span=span.value, since=begins[0], **given):
        if int(begin) in points:
            points[int(begin)].add(str(outcome), *map(int, sums))
    for at, outcome, *sums in tx.rows(
        UNFOLDED + where + NEWEST, since=begins[0], limit=MOST_TALLIES, **given
    ):
        if (begin := span.begin(int(at))) in points:
            points[begin].add(str(outcome), *map(int, sums))
    _add_samples(tx, points, span, begins[0], queue)
    return Chart(period, span.micros // 1_000_000, list(points.values()))


def top_tasks(tx: Transaction, period: Period, limit: int = TOP) -> list[TaskShare]:
    """The tasks with the most attempts in a period; what is not folded yet is left out."""
    row = tx.row(CLOCK)
    assert row is not None
    since = period.span.begin(int(row[0])) - period.span.micros * period.points
    return [
        TaskShare(
            str(task), int(attempts), int(bad), int(failed), run / 1e6 / max(1, int(attempts)), longest / 1e6
        )
        for task, attempts, failed, run, longest, bad in [
            (task, attempts, failed, float(run), float(longest), bad)
            for task, attempts, failed, run, longest, bad in tx.rows(
                TASKS, span=period.span.value, since=since, limit=limit
            )
        ]
    ]


def _add_samples(
    tx: Transaction, points: dict[int, ChartPoint], span: RollupSpan, since: int, queue: str | None
) -> None:
    where = "" if queue is None else " AND queue = :queue"
    given = {} if queue is None else {"queue": queue}
    template = SAMPLES + where + " GROUP BY begins_at"
    for begin, lag, available in tx.rows(template, span=span.value, since=since, **given):
        if (point := points.get(int(begin))) is not None:
            point.lag, point.available = float(lag) / 1e6, int(available)
