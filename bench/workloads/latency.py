"""Idle pick-up: from the commit of the enqueue, in another process, to the first line of the handler."""

from typing import Any

from bench.driver import Agent, Bench, bench
from bench.field import Contender
from bench.systems.base import WARM_UP
from bench.workloads.base import Figures, Workload, percentile

JOBS = 2000
"""Of so many the slowest hundredth are twenty: with four, as it was, one of them decided."""
GAP = 0.015
IN_TURNS = 0.02
"""Between two jobs of one system, when another has its own in the middle."""


def pick_up(place: Bench) -> Figures:
    count = max(20, int(JOBS * place.scale))
    producer, before = _begin(place, count=count, gap=GAP)
    producer.go()
    return _figures(place, producer, before, count)


def in_turns(place: Bench) -> Figures:
    """A job of ours, a job of the hand-written loop, and so on: whatever the machine does then happens to both."""
    count = max(20, int(JOBS * place.scale))
    with bench(place.server, Contender("bare", place.contender.python), place.scale) as loop:
        ours = _begin(place, count=count, gap=IN_TURNS, phase=0.0)
        theirs = _begin(loop, count=count, gap=IN_TURNS, phase=IN_TURNS / 2)
        for producer, _ in (ours, theirs):
            producer.go()
        figures = _figures(place, *ours, count)
        of_loop = _figures(loop, *theirs, count)
    ratios = {f"{name} times": figures[name] / of_loop[name] for name in ("p50", "p95", "p99")}
    return figures | {f"bare {name}": value for name, value in of_loop.items()} | ratios


def _begin(place: Bench, **options: Any) -> tuple[Agent, int]:
    """A worker that has run a few, a producer that is ready, and how many stamps there are before it begins."""
    place.start("work").go()
    producer = place.start("pick_up", **options)
    place.do("single", count=1, task="mark")  # wakes everything up once
    place.wait(lambda: place.marks.stamped >= WARM_UP + 1, 10)
    return producer, place.marks.stamped


def _figures(place: Bench, producer: Agent, before: int, count: int) -> Figures:
    told = producer.answer()
    place.wait(lambda: place.marks.stamped >= before + count, 30)
    began = dict(list(place.marks.stamps())[before:])
    commit = [(began[n] - told["commits"][n]) * 1000 for n in range(count) if n in began]
    call = [(began[n] - told["calls"][n]) * 1000 for n in range(count) if n in began]
    return {
        "p50": percentile(commit, 0.5),
        "p95": percentile(commit, 0.95),
        "p99": percentile(commit, 0.99),
        "call p50": percentile(call, 0.5),
        "call p95": percentile(call, 0.95),
        "call p99": percentile(call, 0.99),
        "missing": float(count - len(began)),
    }


WORKLOADS = (
    Workload(
        "pick-up",
        "idle pick-up, commit to handler",
        pick_up,
        {"p50": "ms p50", "p95": "ms p95", "p99": "ms p99", "call p50": "ms p50 from the call"},
    ),
    Workload(
        "pick-up-turns",
        "the same, with a job of the hand-written loop after each",
        in_turns,
        {
            "p50": "ms p50",
            "bare p50": "ms p50, the loop",
            "p99": "ms p99",
            "bare p99": "ms p99, the loop",
            "call p99": "ms p99 from the call",
            "bare call p99": "ms p99 from the call, the loop",
        },
        ("penstock",),
    ),
)
