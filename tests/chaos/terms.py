"""What every chaos run runs with. Short, so that many faults fit into minutes; printed with every report."""

import os
from dataclasses import dataclass, field
from time import time_ns

HOSTS = 3
CHILDREN = 2
CONCURRENCY = 8
HEARTBEAT = 0.5
REAP_AFTER = 4.0
LEASE = 4.0
"""Of reconciled rows."""
SHUTDOWN = 4.0
PACE = 6.0
"""Operations of the producer in a second; each is a job, several, a run, or something about a row."""

WORKER_SETTINGS = {
    "heartbeat_interval": HEARTBEAT,
    "reap_after": REAP_AFTER,
    "poll_interval": 0.2,
    "sweep_interval": 1,
    "housekeeping_interval": 0.25,
    "shutdown_timeout": SHUTDOWN,
    "statement_timeout": 2,
    "lock_timeout": 2,
    "connect_timeout": 2,
    "inline_fanout": 8,
    "executor_processes": 1,
}

LEDGER = "PENSTOCK_TEST_LEDGER"
HOST = "PENSTOCK_TEST_HOST"
CLOCK = "PENSTOCK_TEST_CLOCK"
SHARED_MEMORY = "PENSTOCK_TEST_HEARTH"
SEED = "PENSTOCK_TEST_SEED"
MARK = "PENSTOCK_TEST_CHAOS"
"""In the environment of every process of a run, so that none is left behind unnoticed."""


def environment() -> dict[str, str]:
    return {f"PENSTOCK_{name.upper()}": str(value) for name, value in WORKER_SETTINGS.items()}


@dataclass(frozen=True, slots=True)
class Terms:
    """One chaos run."""

    database: str = "postgres"
    minutes: float = 5.0
    seed: int = field(default_factory=lambda: time_ns() // 1_000_000 % 1_000_000)
    network: str = "namespaces"
    """How hosts are cut off: in namespaces, where the machine allows it; "proxy": by their proxies alone."""
    hosts: int = HOSTS
    pace: float = PACE
    drain_seconds: float = 120.0

    @classmethod
    def from_environment(cls) -> "Terms":
        said = {
            name: os.environ[name.upper()]
            for name in ("database", "minutes", "seed", "network")
            if os.environ.get(name.upper())
        }
        readers = {"database": str, "minutes": float, "seed": int, "network": str}
        return cls(**{name: readers[name](text) for name, text in said.items()})
