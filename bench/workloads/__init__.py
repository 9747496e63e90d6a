"""Everything that is measured."""

from bench.workloads import (
    ballast,
    drain,
    enqueue,
    herd,
    idle,
    latency,
    memory,
    pipelines,
    pooled,
    recovery,
    sqlite,
)
from bench.workloads.base import Workload

ALL: tuple[Workload, ...] = (
    *enqueue.WORKLOADS,
    *drain.WORKLOADS,
    *latency.WORKLOADS,
    *pipelines.WORKLOADS,
    *recovery.WORKLOADS,
    *idle.WORKLOADS,
    *herd.WORKLOADS,
    *ballast.WORKLOADS,
    *memory.WORKLOADS,
    *pooled.WORKLOADS,
    *sqlite.WORKLOADS,
)
