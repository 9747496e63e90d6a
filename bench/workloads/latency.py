"""Idle pick-up: from the commit of the enqueue, in another process, to the first line of the handler."""

from bench.driver import Bench
from bench.systems.base import WARM_UP
from bench.workloads.base import Figures, Workload, percentile

JOBS = 400
GAP = 0.03


def pick_up(bench: Bench) -> Figures:
    count = max(20, int(JOBS * bench.scale))
    bench.start("work").go()
    producer = bench.start("pick_up", count=count, gap=GAP)
    bench.do("single", count=1, task="mark")  # wakes everything up once
    bench.wait(lambda: bench.marks.stamped >= WARM_UP + 1, 10)
    before = bench.marks.stamped
    producer.go()
    told = producer.answer()
    bench.wait(lambda: bench.marks.stamped >= before + count, 30)
    began = dict(list(bench.marks.stamps())[before:])
    commit = [(began[n] - told["commits"][n]) * 1000 for n in range(count) if n in began]
    call = [(began[n] - told["calls"][n]) * 1000 for n in range(count) if n in began]
    return {
        "p50": percentile(commit, 0.5),
        "p95": percentile(commit, 0.95),
        "p99": percentile(commit, 0.99),
        "call p50": percentile(call, 0.5),
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
)
