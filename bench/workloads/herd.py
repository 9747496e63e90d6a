"""One job at a time for many idle workers: how soon it begins, and what it costs all of them together.

The workers are real processes under one supervisor. Figures are taken twice: time and CPU without anything in between,
statements through a relay that counts.
"""

import time
from functools import partial

from bench.counting import relay
from bench.driver import Agent, Bench
from bench.server import cpu_seconds
from bench.workloads.base import Figures, Workload, percentile
from bench.workloads.drain import family_cpu

JOBS = 90
GAP = 0.2
CALM = 12.0
"""By then a worker with nothing to do rests, unless it is hindered."""
LOOKING = """
SELECT count(*) FROM pg_stat_activity
WHERE application_name = 'penstock' AND query LIKE '%penstock_availabilities%' AND state_change > now() - interval '4 s'
"""
IDLE = 20.0
"""The time between two idle checks, which come at the same moment in workers that were started together. The jobs take
as long, with the two seconds after the last: so both have each worker's idle check once."""


def herd(bench: Bench, workers: int) -> Figures:
    jobs = max(JOBS, int(JOBS * bench.scale))
    figures = _timed(bench, workers, jobs)
    with relay(bench.server.port) as counter:
        bench.port = counter.port
        supervisor = _start(bench, workers)
        statements = counter.statements
        _enqueue(bench, jobs)
        figures["statements"] = (counter.statements - statements) / jobs
        supervisor.kill()
    return figures


def _timed(bench: Bench, workers: int, jobs: int) -> Figures:
    supervisor = _start(bench, workers)
    before = _cpu(bench, supervisor)
    time.sleep(IDLE)
    idle = (_cpu(bench, supervisor) - before) / IDLE
    before, began = _cpu(bench, supervisor), time.monotonic()
    waits = _enqueue(bench, jobs)
    spent, seconds = _cpu(bench, supervisor) - before, time.monotonic() - began
    supervisor.kill()
    return {
        "p50": percentile(waits, 0.5),
        "p95": percentile(waits, 0.95),
        "cpu": (spent - idle * seconds) / jobs * 1000,
        "idle": idle * 1000,
        "missing": float(jobs - len(waits)),
    }


def _start(bench: Bench, workers: int) -> Agent:
    supervisor = bench.start("supervise", processes=workers, tasks_only=True)
    supervisor.go()
    registered = "SELECT count(*) FROM penstock_processes WHERE role <> 'supervisor'"
    before = bench.database.number(registered)
    bench.wait(lambda: bench.database.number(registered) >= before + workers, 60, pause=0.2)
    time.sleep(CALM)
    bench.wait(lambda: bench.database.number(LOOKING) == 0, 120, pause=0.5)
    return supervisor


def _enqueue(bench: Bench, jobs: int) -> list[float]:
    """How long each has waited, in milliseconds from its commit."""
    before = bench.marks.stamped
    told = bench.do("pick_up", count=jobs, gap=GAP)
    bench.wait(lambda: bench.marks.stamped >= before + jobs, 30)
    began = dict(list(bench.marks.stamps())[before:])
    return [(began[n] - told["commits"][n]) * 1000 for n in range(jobs) if n in began]


def _cpu(bench: Bench, supervisor: Agent) -> float:
    """Of the server and of all workers, in seconds."""
    return family_cpu(supervisor) + cpu_seconds(bench.server)


WORKLOADS = tuple(
    Workload(
        f"herd-{workers}",
        f"one job at a time, {workers} idle worker{'s' if workers > 1 else ''}",
        partial(herd, workers=workers),
        {
            "p50": "ms p50",
            "statements": "statements/job",
            "cpu": "ms CPU/job, server and workers",
            "idle": "ms CPU/s idle",
        },
        ("penstock",),
        most_rounds=1,
    )
    for workers in (1, 16, 64)
)
