"""The memory of a worker before a million pending jobs; slow systems get a part of them."""

from bench.driver import Bench
from bench.workloads.base import Figures, Workload

MILLION = 1_000_000
MANY = 100_000


def memory(bench: Bench) -> Figures:
    pending, many = bench.size(MILLION), bench.size(MANY)
    bench.do("fill", count=pending)
    agent = bench.start("work")
    start = agent.peak_megabytes
    agent.go()
    bench.wait(lambda: bench.marks.total >= many // 10, 120)
    early = agent.peak_megabytes
    bench.wait(lambda: bench.marks.total >= many, 120)
    late = agent.peak_megabytes
    return {"start": start, "peak": late, "growth": late - early}


WORKLOADS = (
    Workload(
        "memory",
        "worker before 1 M pending jobs",
        memory,
        {"peak": "MB peak", "growth": "MB growth, the last 90 % of 100,000"},
        most_rounds=1,
    ),
)
