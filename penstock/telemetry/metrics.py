"""Metrics: what happened in this process, counted from its events, in the text format that Prometheus reads.

    metrics = Metrics(app.events)
    ...
    return Response(metrics.text(), media_type="text/plain; version=0.0.4")

Nothing is counted unless the program asks for it, so a process without metrics pays nothing. Counts are of one process;
`penstock worker --metrics-port` adds up those of a supervisor's children. What is true of all processes together, such
as the length of a queue, is in the database: `penstock status --prometheus`.
"""

from __future__ import annotations

import json
import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from penstock.telemetry import events
from penstock.telemetry.events import Event, Stream
from penstock.telemetry.metric_values import LocalNumbers, MetricNumbers
from penstock.telemetry.prometheus_text import Family, Labels, expose, labelled
from penstock.values.fork_safety import register_reset_after_fork

SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0)
PREFIX = "penstock_"


class Metrics:
    """Counters and histograms over the events of one app, in one process."""

    def __init__(self, stream: Stream, numbers: MetricNumbers | None = None) -> None:
        self.reset_after_fork()
        self.numbers: MetricNumbers = LocalNumbers() if numbers is None else numbers
        self._stops = [stream.on(kind, self._heard(count)) for kind, count in COUNTING.items()]
        register_reset_after_fork(self)

    def reset_after_fork(self) -> None:
        """In a forked child: replace the lock, which a thread of the parent may hold."""
        self._lock = threading.Lock()

    def text(self) -> str:
        """Everything counted so far."""
        return expose(families(self.read()))

    def read(self) -> Mapping[str, float]:
        """The numbers by key, to be added to those of other processes; `families` makes metrics of them."""
        with self._lock:
            return self.numbers.read()

    def put(self, key: str, value: float) -> None:
        """Set a gauge."""
        with self._lock:
            self.numbers.put(key, value)

    def stop(self) -> None:
        """Stop counting."""
        for stop in self._stops:
            stop()

    def count(self, name: str, by: float = 1.0, **labels: object) -> None:
        self.numbers.add(_key(name, "", labelled(labels)), by)

    def observe(self, name: str, seconds: float, **labels: object) -> None:
        told = labelled(labels)
        self.numbers.add(_key(name, str(bisect_left(SECONDS, seconds)), told), 1.0)
        self.numbers.add(_key(name, "sum", told), seconds)

    def _heard(self, count: Counting) -> Callable[[Event], None]:
        def heard(event: Event) -> None:
            with self._lock:
                count(self, event)

        return heard


@lru_cache(4096)
def _key(name: str, part: str, labels: Labels) -> str:
    """The key of one number. `part`: of a histogram, which bucket, or the sum."""
    return json.dumps([name, part, labels])


def families(numbers: Mapping[str, float]) -> list[Family]:
    """Numbers of one process, or of several added up, as metrics."""
    found: dict[str, dict[Labels, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for key, value in numbers.items():
        name, part, labels = json.loads(key)
        found[name][tuple([(label, text) for label, text in labels])][part] = value
    made = []
    for name, meaning in COUNTERS.items():
        samples = [("", labels, parts[""]) for labels, parts in sorted(found[name].items())]
        made.append(Family(f"{PREFIX}{name}", "counter", meaning, samples))
    for name, meaning in HISTOGRAMS.items():
        buckets = [
            each for labels, parts in sorted(found[name].items()) for each in _histogram(labels, parts)
        ]
        made.append(Family(f"{PREFIX}{name}", "histogram", meaning, buckets))
    return made


def _histogram(labels: Labels, parts: Mapping[str, float]) -> Iterable[tuple[str, Labels, float]]:
    """How often up to each bound, how much in all, and how often."""
    below = 0.0
    for index, bound in enumerate((*SECONDS, float("inf"))):
        below += parts.get(str(index), 0.0)
        yield "_bucket", (*labels, ("le", "+Inf" if bound == float("inf") else f"{bound:g}")), below
    yield "_sum", labels, parts.get("sum", 0.0)
    yield "_count", labels, below


Counting = Callable[[Metrics, Event], None]

COUNTERS = {
    "jobs_enqueued_total": "Jobs that callers enqueued in this process; steps of runs are not counted.",
    "runs_triggered_total": "Runs of pipelines triggered by this process.",
    "jobs_claimed_total": "Jobs claimed by this process.",
    "attempts_total": "Attempts settled by this process, by outcome.",
    "jobs_ended_total": "Jobs that ended in this process, by status.",
    "jobs_crashed_total": "Jobs that this process took back from dead ones.",
    "results_dropped_total": "Results that came too late: their claim was lost.",
    "handlers_overdue_total": "Threads that went on after their timeout.",
    "places_freed_total": "Places of this process that were taken by nothing, and freed.",
    "clock_steps_total": "Times this process found the database's clock to be set.",
    "children_ended_total": "Children of this supervisor that ended.",
    "rows_set_aside_total": "Times this process could not handle a row and left it alone, by the kind of row.",
    "ticks_total": "Ticks of schedules that this process decided about, by outcome.",
    "schedules_failed_total": "Times a schedule could not be fired by this process.",
    "troubles_total": "Times a loop of this process got into trouble.",
}
HISTOGRAMS = {
    "attempt_seconds": "How long attempts took.",
    "claim_seconds": "How long claims took.",
    "tick_lateness_seconds": "How late ticks of schedules fired.",
}


def _claimed(metrics: Metrics, event: Event) -> None:
    assert isinstance(event, events.JobsClaimed)
    metrics.count("jobs_claimed_total", event.count)
    metrics.observe("claim_seconds", event.seconds)


def _settled(metrics: Metrics, event: Event) -> None:
    assert isinstance(event, events.AttemptSettled)
    metrics.count("attempts_total", task=event.task, queue=event.queue, outcome=event.outcome)
    metrics.observe("attempt_seconds", event.seconds, task=event.task)
    if event.status not in ("available", "scheduled"):
        metrics.count("jobs_ended_total", task=event.task, queue=event.queue, status=event.status)


def _ticked(metrics: Metrics, event: Event) -> None:
    assert isinstance(event, events.TicksDecided)
    metrics.count("ticks_total", event.count, task=event.task, outcome=event.outcome)
    if event.outcome == "fired":
        metrics.observe("tick_lateness_seconds", event.lateness, task=event.task)


def _counted(name: str, *labels: str, by: str | None = None) -> Counting:
    def count(metrics: Metrics, event: Event) -> None:
        amount = getattr(event, by) if by else 1
        metrics.count(name, amount, **{label: getattr(event, label) for label in labels})

    return count


COUNTING: dict[type[Event], Counting] = {
    events.JobsEnqueued: _counted("jobs_enqueued_total", "task", "queue", by="count"),
    events.RunsTriggered: _counted("runs_triggered_total", "pipeline", by="count"),
    events.JobsClaimed: _claimed,
    events.AttemptSettled: _settled,
    events.JobCrashed: _counted("jobs_crashed_total", "task"),
    events.ClaimLost: _counted("results_dropped_total", "task"),
    events.HandlerOverdue: _counted("handlers_overdue_total", "task"),
    events.PlaceFreed: _counted("places_freed_total", "task"),
    events.ClockStepped: _counted("clock_steps_total"),
    events.ChildEnded: _counted("children_ended_total", "expected"),
    events.RowSetAside: _counted("rows_set_aside_total", "what"),
    events.TicksDecided: _ticked,
    events.ScheduleFailed: _counted("schedules_failed_total"),
    events.TroubleBegan: _counted("troubles_total", "loop"),
}
