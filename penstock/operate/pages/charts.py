"""Reads charts from the roll-ups: attempts, failures and lag over an hour, a day or a week.

A chart reads the roll-ups of its time and the tallies that are not folded yet, both bounded; never the history.
Roll-ups are read in segments of a few moments, each by two statements that go along the key. A segment that is over
hardly changes any more (a fold may be late): the process of a dashboard remembers it for a minute.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from penstock.database.transaction import Transaction
from penstock.queue.tallies import RollupSpan

MOST_TALLIES = 5000
TOP = 20
SEGMENT = 12
"""How many moments a segment has."""
SETTLED = 120_000_000
"""Microseconds after its end from which a segment may be remembered."""
REMEMBERED = 60.0
"""Seconds for which a segment is remembered."""
MOST_SEGMENTS = 200

CLOCK = "SELECT {now}"
IN_SEGMENT = " FROM {rollups} WHERE span = :span AND begins_at >= :since AND begins_at < :until"
ROLLED = f"""
SELECT begins_at, outcome, SUM(attempts), SUM(failed), SUM(run_micros), MAX(longest){IN_SEGMENT}"""
GROUPED = " GROUP BY begins_at, outcome"
# Added up by the database: a busy minute has thousands of them.
UNFOLDED = """
SELECT begins_at, outcome, SUM(attempts), SUM(failed), SUM(run_micros), MAX(longest) FROM (
  SELECT tallied_at - tallied_at % {micros} AS begins_at, outcome, attempts, failed, run_micros, longest
  FROM {{tallies}} WHERE tallied_at >= :since{where} ORDER BY seq DESC LIMIT :limit) newest
GROUP BY begins_at, outcome"""
TASKS = f"""
SELECT task, SUM(attempts), SUM(failed), SUM(run_micros), MAX(longest),
  SUM(CASE WHEN outcome IN ('errored', 'timed_out', 'crashed') THEN attempts ELSE 0 END)
{IN_SEGMENT} GROUP BY task
"""
SAMPLES = """
SELECT begins_at, MAX({quote}lag{quote}), SUM(available) FROM {queue_samples}
WHERE span = :span AND begins_at >= :since"""
BAD = frozenset({"errored", "timed_out", "crashed"})

Rows = list[tuple[object, ...]]


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

    def begins(self, now: int) -> list[int]:
        """The times at which the points begin; the last point is not over."""
        last = self.span.begin(now)
        return [last - self.span.micros * back for back in reversed(range(self.points))]


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


@dataclass(slots=True)
class SegmentMemory:
    """Segments that were read not long ago, for all viewers of a process."""

    kept: OrderedDict[tuple[object, ...], tuple[float, Rows]] = field(default_factory=OrderedDict)

    def find(self, key: tuple[object, ...]) -> Rows | None:
        read_at, rows = self.kept.get(key, (float("-inf"), []))
        return rows if time.monotonic() - read_at < REMEMBERED else None

    def keep(self, key: tuple[object, ...], rows: Rows) -> None:
        self.kept[key] = (time.monotonic(), rows)
        while len(self.kept) > MOST_SEGMENTS:
            self.kept.popitem(last=False)


def chart(
    tx: Transaction,
    period: Period,
    task: str | None = None,
    queue: str | None = None,
    memory: SegmentMemory | None = None,
) -> Chart:
    """Attempts, failures and lag over a period; of one task or one queue, if one is given."""
    span, now = period.span, _now(tx)
    begins = period.begins(now)
    points = {begin: ChartPoint(begin) for begin in begins}
    given = {name: value for name, value in (("task", task), ("queue", queue)) if value is not None}
    where = "".join(f" AND {name} = :{name}" for name in given)
    for begin, outcome, *sums in _rolled(tx, period, now, ROLLED + where + GROUPED, memory, **given):
        if (point := points.get(int(str(begin)))) is not None:
            point.add(str(outcome), *[int(str(value)) for value in sums])
    unfolded = UNFOLDED.format(micros=span.micros, where=where)
    for begin, outcome, *sums in tx.rows(unfolded, since=begins[0], limit=MOST_TALLIES, **given):
        if (point := points.get(int(begin))) is not None:
            point.add(str(outcome), *[int(str(value)) for value in sums])
    _add_samples(tx, points, span, begins[0], queue)
    return Chart(period, span.micros // 1_000_000, list(points.values()))


def top_tasks(
    tx: Transaction, period: Period, limit: int = TOP, memory: SegmentMemory | None = None
) -> list[TaskShare]:
    """The tasks with the most attempts in a period. Tallies that are not folded yet are left out."""
    sums: dict[str, list[int]] = {}
    for task, *row in _rolled(tx, period, _now(tx), TASKS, memory):
        attempts, failed, run, longest, bad = [int(str(value)) for value in row]
        known = sums.setdefault(str(task), [0, 0, 0, 0, 0])
        added = [
            known[0] + attempts,
            known[1] + failed,
            known[2] + run,
            max(known[3], longest),
            known[4] + bad,
        ]
        sums[str(task)] = added
    most = sorted(sums.items(), key=lambda item: (-item[1][0], item[0]))[:limit]
    return [
        TaskShare(task, attempts, bad, failed, run / 1e6 / max(1, attempts), longest / 1e6)
        for task, (attempts, failed, run, longest, bad) in most
    ]


def _rolled(
    tx: Transaction, period: Period, now: int, template: str, memory: SegmentMemory | None, **given: str
) -> Iterator[tuple[object, ...]]:
    """Yield the rows that a statement finds in all segments of a period."""
    for since, until in _segments(period, now):
        key = (template, period, since, until, *given.values())
        found = None if memory is None else memory.find(key)
        if found is None:
            rows = tx.rows(template, span=period.span.value, since=since, until=until, **given)
            found = [tuple(row) for row in rows]
            if memory is not None and until <= now - SETTLED:
                memory.keep(key, found)
        yield from found


def _segments(period: Period, now: int) -> Iterator[tuple[int, int]]:
    """The beginnings and ends of segments. They do not depend on the time of the call, so that segments can be
    remembered."""
    begins = period.begins(now)
    since, end = begins[0], begins[-1] + period.span.micros
    length = SEGMENT * period.span.micros
    while since < end:
        until = min(since - since % length + length, end)
        yield since, until
        since = until


def _now(tx: Transaction) -> int:
    row = tx.row(CLOCK)
    assert row is not None
    return int(row[0])


def _add_samples(
    tx: Transaction, points: dict[int, ChartPoint], span: RollupSpan, since: int, queue: str | None
) -> None:
    where = "" if queue is None else " AND queue = :queue"
    given = {} if queue is None else {"queue": queue}
    template = SAMPLES + where + " GROUP BY begins_at"
    for begin, lag, available in tx.rows(template, span=span.value, since=since, **given):
        if (point := points.get(int(begin))) is not None:
            point.lag, point.available = float(lag) / 1e6, int(available)
