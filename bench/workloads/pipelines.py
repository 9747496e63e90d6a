"""Five sequential steps, and fan-out with fan-in. Where a system has no pipelines, jobs that enqueue the next."""

import time
from functools import partial

from bench.counting import relay
from bench.driver import Bench
from bench.systems.base import STEPS
from bench.workloads.base import QUEUES, Figures, Workload, percentile
from bench.workloads.drain import PATIENCE

RUNS = 2_000
REAL = ("penstock", "dbos")
"""Those with pipelines."""


def latency(bench: Bench) -> Figures:
    """Trigger to result, one after the other; in DBOS called directly, which is its fastest way.

    Of the hand-written loop it is one job, whose worker commits the output of each step before it begins the next.
    """
    if bench.name != "dbos":
        bench.start("work").go()
    time.sleep(0.5)
    return _timed(bench, chained=bench.name not in (*REAL, "bare"))


def commits(bench: Bench) -> Figures:
    """Five commits in one process and nothing else: so much of five steps is the disk."""
    return _timed(bench, chained=False, commits=True)


def _timed(bench: Bench, **options: bool) -> Figures:
    seconds = bench.do("pipelines", count=max(10, int(60 * bench.scale)), **options)["seconds"]
    milliseconds = [1000 * value for value in seconds]
    return {"p50": percentile(milliseconds, 0.5), "p95": percentile(milliseconds, 0.95)}


def throughput(bench: Bench) -> Figures:
    runs = bench.size(RUNS)
    bench.do("start_pipelines", count=runs, chained=bench.name not in REAL)
    agent = bench.start("work")
    began = time.monotonic()
    agent.go()
    bench.wait(lambda: bench.marks.total >= runs, PATIENCE)
    bench.wait(lambda: bench.unfinished() == 0, PATIENCE, pause=0.01)
    return {"steps": bench.marks.total * STEPS / (time.monotonic() - began)}


def count_statements(bench: Bench, directly: bool = False) -> Figures:
    """What a step costs the database when one run at a time goes through an idle worker; nothing is timed."""
    runs = max(10, int(100 * min(1, bench.scale)))
    with relay(bench.server.port) as counter:
        bench.port = counter.port
        if not directly:
            bench.start("work").go()
        producer = bench.start("pipelines", count=runs, chained=bench.name not in REAL, queued=not directly)
        flushes = bench.database.flushes()
        statements, commits = counter.statements, bench.database.reading().commits
        producer.go()
        producer.answer()
        statements = counter.statements - statements
        steps = (runs + 5) * STEPS
        return {
            "flushes": (bench.database.flushes() - flushes) / steps,
            "statements": statements / steps,
            "commits": (bench.database.reading().commits - commits) / steps,
        }


def fan(bench: Bench) -> Figures:
    bench.start("work").go()
    time.sleep(0.5)
    width = 1_000 if bench.scale >= 1 else max(50, int(1000 * bench.scale))
    return {"seconds": bench.do("fan", width=width)["seconds"]}


WORKLOADS = (
    Workload("steps", "5 sequential steps, idle", latency, {"p50": "ms p50", "p95": "ms p95"}),
    Workload("commits", "5 commits, nothing else", commits, {"p50": "ms p50", "p95": "ms p95"}, ("bare",)),
    Workload("runs", "2,000 runs of 5 steps, 1 process", throughput, {"steps": "steps/s"}, QUEUES),
    Workload(
        "step-cost",
        "one run at a time, a worker elsewhere",
        count_statements,
        {"statements": "per step", "commits": "commits/step", "flushes": "waits for the disk/step"},
        QUEUES,
        most_rounds=1,
    ),
    Workload(
        "step-cost-direct",
        "the same, called in the process that does it",
        partial(count_statements, directly=True),
        {"statements": "per step", "commits": "commits/step", "flushes": "waits for the disk/step"},
        ("dbos",),
        most_rounds=1,
    ),
    Workload("fan", "1 → 1,000 → 1", fan, {"seconds": "s"}, REAL),
)
