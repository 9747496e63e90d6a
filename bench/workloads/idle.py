"""What an idle worker costs the database."""

import time

from bench.counting import relay
from bench.driver import Bench
from bench.workloads.base import QUEUES, Figures, Workload

SETTLE = 30.0
"""Some look again and again for a while before they calm down."""
SECONDS = 60.0


def idle(bench: Bench) -> Figures:
    with relay(bench.server.port) as counter:
        bench.port = counter.port
        bench.start("work").go()
        share = min(1, bench.scale)
        time.sleep(max(3.0, SETTLE * share))
        before = counter.statements
        seconds = max(5.0, SECONDS * share)
        time.sleep(seconds)
        return {"statements": (counter.statements - before) / seconds}


WORKLOADS = (
    Workload(
        "idle",
        "idle worker",
        idle,
        {"statements": "statements/s"},
        QUEUES,
        most_rounds=1,
    ),
)
