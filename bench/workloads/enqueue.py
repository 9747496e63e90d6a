"""Enqueue: in bulk, and one by one with a commit each."""

from bench.driver import Bench
from bench.workloads.base import QUEUES, Figures, Workload


def bulk(bench: Bench) -> Figures:
    count = bench.size(50_000)
    return {"rows": count / bench.do("fill", count=count)["seconds"]}


def single(bench: Bench) -> Figures:
    count = bench.size(2_000)
    return {"calls": count / bench.do("single", count=count)["seconds"]}


WORKLOADS = (
    Workload("enqueue-many", "bulk enqueue", bulk, {"rows": "rows/s"}, QUEUES),
    Workload("enqueue", "single enqueue, own commit", single, {"calls": "calls/s"}),
)
