"""A worker killed with 100 jobs running, and another one there to take over."""

import os
import time
from collections import Counter
from pathlib import Path
from signal import SIGKILL

from bench.driver import Bench
from bench.marks import END
from bench.systems.base import WARM_UP
from bench.workloads.base import QUEUES, Figures, Workload

JOBS = 100
NUMBERS = JOBS - WARM_UP
"""As many are enqueued after the warm-up, which has used the first of these numbers already."""
NAP = 3.0
PATIENCE = 150


def recover(bench: Bench) -> Figures:
    """Another process is there to take over, on the same machine."""
    common = {"nap": NAP, "concurrency": JOBS, "recovery": True, "executor": "one", "batch": JOBS}
    victim = bench.start("work", slot=0, **common)
    heir = bench.start("work", slot=1, **common)
    bench.do("single", count=NUMBERS, task="nap")
    victim.go()
    bench.wait(lambda: bench.marks.stamped >= JOBS, 30)
    victim.kill()
    killed = time.monotonic()
    heir.go()
    return _until_done(bench, killed)


def recover_supervised(bench: Bench) -> Figures:
    """`penstock worker` as it is run by default: under a supervisor, which sees its child die."""
    supervisor = bench.start("supervise", nap=NAP)
    bench.do("single", count=NUMBERS, task="nap")
    supervisor.go()
    bench.wait(lambda: bench.marks.stamped >= JOBS, 30)
    children = Path(f"/proc/{supervisor.process.pid}/task/{supervisor.process.pid}/children")
    for child in children.read_text().split():
        os.kill(int(child), SIGKILL)
    return _until_done(bench, time.monotonic())


def _until_done(bench: Bench, killed: float) -> Figures:
    bench.wait(lambda: len(_ended(bench)) >= NUMBERS and bench.unfinished() == 0, PATIENCE, pause=0.02)
    seconds = time.monotonic() - killed
    starts = Counter(number for number, _ in bench.marks.stamps() if number < END)
    return {
        "seconds": seconds,
        "unfinished": float(bench.unfinished()),
        "repeated": float(sum(starts.values()) - JOBS),
    }


def _ended(bench: Bench) -> set[int]:
    return {number for number, _ in bench.marks.stamps() if number >= END}


WORKLOADS = (
    Workload(
        "recovery",
        "kill -9 with 100 running jobs, defaults",
        recover,
        {"seconds": "s to all done", "unfinished": "unfinished", "repeated": "run again"},
        QUEUES,
        most_rounds=1,
    ),
    Workload(
        "recovery-child",
        "the same, a child of the supervisor killed",
        recover_supervised,
        {"seconds": "s to all done", "unfinished": "unfinished", "repeated": "run again"},
        ("penstock",),
    ),
)
