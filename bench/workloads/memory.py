"""The memory of a worker before a million pending jobs."""

from bench.driver import Bench
from bench.workloads.base import Figures, Workload

MILLION = 1_000_000
MANY = 100_000


def memory(bench: Bench) -> Figures:
    pending = int(MILLION * min(1, bench.scale))
    bench.do("fill", count=pending)
    agent = bench.start("work")
    start = agent.peak_megabytes
    agent.go()
    some = min(MANY, pending) // 10
    bench.wait(lambda: bench.marks.total >= some, 120)
    early = agent.peak_megabytes
    bench.wait(lambda: bench.marks.total >= min(MANY, pending), 120)
    late = agent.peak_megabytes
    return {"start": start, "peak": late, "growth": late - early}


WORKLOADS = (
    Workload(
        "memory",
        "worker before 1 M pending jobs",
        memory,
        {"peak": "MB peak", "growth": "MB growth over 90,000 jobs"},
        ("penstock", "pgqueuer"),
        most_rounds=1,
    ),
)
