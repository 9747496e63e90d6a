"""The memory of a worker before a million pending jobs; slow systems get a part of them.

Everybody's app has the same four tasks. Ours with pipelines beside them is measured by itself.
"""

from bench.driver import Bench
from bench.workloads.base import QUEUES, Figures, Workload

MILLION = 1_000_000
MANY = 100_000
JOBS = 20_000
WORKERS = 4


def of_tasks(bench: Bench) -> Figures:
    return _before_many(bench, tasks_only=True)


def of_pipelines(bench: Bench) -> Figures:
    return _before_many(bench, tasks_only=False)


def _before_many(bench: Bench, tasks_only: bool) -> Figures:
    pending, many = bench.size(MILLION), bench.size(MANY)
    bench.do("fill", count=pending)
    agent = bench.start("work", tasks_only=tasks_only)
    start = agent.peak_megabytes
    agent.go()
    bench.wait(lambda: bench.marks.total >= many // 10, 120)
    early = agent.peak_megabytes
    bench.wait(lambda: bench.marks.total >= many, 120)
    late = agent.peak_megabytes
    return {"start": start, "peak": late, "growth": late - early}


def of_four(bench: Bench) -> Figures:
    """Four workers of one machine, after some work, each as it is run in production; shared memory counts once."""
    count = bench.size(JOBS)
    bench.do("fill", count=count)
    if bench.name == "penstock":
        agents = [bench.start("supervise", processes=WORKERS, tasks_only=True)]
    else:
        agents = [bench.start("work", slot=slot, executor=slot) for slot in range(WORKERS)]
    for agent in agents:
        agent.go()
    bench.wait(lambda: bench.unfinished() == 0, 120, pause=0.05)
    return {"all": sum(agent.megabytes for agent in agents)}


WORKLOADS = (
    Workload(
        "memory",
        "worker before 1 M pending jobs",
        of_tasks,
        {"peak": "MB peak", "growth": "MB growth, the last 90 % of 100,000"},
        most_rounds=1,
    ),
    Workload(
        "memory-pipelines",
        "the same, of an app with pipelines",
        of_pipelines,
        {"peak": "MB peak"},
        ("penstock",),
        most_rounds=1,
    ),
    Workload("memory-4", "four workers of one machine", of_four, {"all": "MB in all"}, QUEUES),
)
