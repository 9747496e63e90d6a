"""SQLite: one file with full durability; one process, and four that share it."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing

from bench.driver import Bench
from bench.workloads.base import Figures, Workload

JOBS = 20_000
UNFINISHED = "SELECT count(*) FROM penstock_job_states WHERE status IN ('available', 'running')"
PATIENCE = 120


def one(bench: Bench) -> Figures:
    figures, _ = _drain(bench, 1)
    return figures


def four(bench: Bench) -> Figures:
    """How evenly four processes share the file, and the longest time one of them went without a job."""
    figures, waits = _drain(bench, 4)
    counts = bench.marks.counts[:4]
    return {
        **figures,
        "least": min(counts) / sum(counts) * 100,
        "most": max(counts) / sum(counts) * 100,
        "wait": max(waits) * 1000,
    }


def _drain(bench: Bench, processes: int) -> tuple[Figures, list[float]]:
    url = f"sqlite:///{bench.folder}/bench.db"
    bench.do("install", at=url)
    count = bench.size(JOBS)
    filled = bench.do("fill", at=url, count=count)["seconds"]
    agents = [bench.start("work", at=url, slot=slot) for slot in range(processes)]
    for agent in agents:
        agent.go()
    waits = [0.0] * processes
    seen, moved = [0] * processes, [time.monotonic()] * processes

    def done() -> bool:
        now = time.monotonic()
        for slot, number in enumerate(bench.marks.counts[:processes]):
            if number != seen[slot]:
                waits[slot] = max(waits[slot], now - moved[slot] if seen[slot] else 0.0)
                seen[slot], moved[slot] = number, now
        return sum(seen) >= count

    bench.wait(done, PATIENCE, pause=0.001)
    with closing(sqlite3.connect(f"{bench.folder}/bench.db")) as connection:
        bench.wait(lambda: connection.execute(UNFINISHED).fetchone()[0] == 0, PATIENCE, pause=0.01)
    seconds = time.monotonic() - bench.marks.first
    return {"jobs": count / seconds, "rows": count / filled}, waits


WORKLOADS = (
    Workload(
        "sqlite-1",
        "SQLite, synchronous=FULL, 1 process",
        one,
        {"jobs": "jobs/s", "rows": "bulk enqueue rows/s"},
        ("penstock",),
    ),
    Workload(
        "sqlite-4",
        "SQLite, 4 processes on one file",
        four,
        {
            "jobs": "jobs/s",
            "least": "% of the jobs, least",
            "most": "% of the jobs, most",
            "wait": "ms longest wait",
        },
        ("penstock",),
    ),
)
