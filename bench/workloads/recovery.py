"""A worker killed with 100 jobs running, and another one there to take over."""

import time
from collections import Counter

from bench.driver import Bench
from bench.marks import END
from bench.workloads.base import EVERYBODY, Figures, Workload

JOBS = 100
NAP = 1.0
PATIENCE = 150
QUEUES = tuple(name for name in EVERYBODY if name != "bare")


def recover(bench: Bench) -> Figures:
    common = {"nap": NAP, "concurrency": JOBS, "recovery": True, "executor": "one", "batch": JOBS}
    victim = bench.start("work", slot=0, **common)
    heir = bench.start("work", slot=1, **common)
    bench.do("single", count=JOBS - 20, task="nap")
    victim.go()
    bench.wait(lambda: bench.marks.stamped >= JOBS, 30)
    victim.kill()
    killed = time.monotonic()
    heir.go()
    bench.wait(lambda: len(_ended(bench)) >= JOBS_KINDS and bench.unfinished() == 0, PATIENCE, pause=0.02)
    seconds = time.monotonic() - killed
    starts = Counter(number for number, _ in bench.marks.stamps() if number < END)
    return {
        "seconds": seconds,
        "unfinished": float(bench.unfinished()),
        "repeated": float(sum(starts.values()) - JOBS),
    }


JOBS_KINDS = JOBS - 20
"""The first twenty numbers are used twice: by the warm-up of the producer, and by the rest."""


def _ended(bench: Bench) -> set[int]:
    return {number for number, _ in bench.marks.stamps() if number >= END}


WORKLOADS = (
    Workload(
        "recovery",
        "kill -9 with 100 running jobs, defaults",
        recover,
        {"seconds": "s to all done", "unfinished": "lost", "repeated": "run again"},
        QUEUES,
        most_rounds=1,
    ),
)
