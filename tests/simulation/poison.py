"""Poison: rows that nothing can be made of, of jobs, runs and processes that there are not; and hints that say nothing.

They are ghosts: the history is not told of them, and they are taken away before the tables are judged. They must only
keep nothing else from coming to an end.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

    from tests.simulation.hosts import Host

GHOST = "dead0000-0000-7000-8000-"
EARLIEST, LATEST = -(2**63), 2**63 - 1
UNREADABLE = ["nope", "5", '["x"]', "null", "{}", "[[1]]", ""]
HINTS = [
    "ready\tdefault\tzzz",
    "ready\t\t",
    "zzz",
    "ready\tnowhere\t9" + "9" * 40,
    "\x00",
    "ready\tnowhere\t-7",
]
TABLES = {
    "claims": "process_id",
    "job_states": "job_id",
    "timers": "id",
    "availabilities": "job_id",
    "scheduled": "job_id",
    "leases": "holder",
}
KINDS = ("receipt", "receipt", "lost job", "lost job", "timer", "timer", "place", "time", "lease", "hint")


def is_ghost(facts: tuple[object, ...]) -> bool:
    return any(isinstance(fact, str) and fact.startswith(GHOST) for fact in facts)


def poison(rng: random.Random, connection: sqlite3.Connection, now: int, hosts: list[Host]) -> str:
    """Do something of the kind; what it was."""
    kind = rng.choice(KINDS)
    one, other = (f"{GHOST}{rng.randrange(16**12):012x}" for _ in range(2))
    token = 10**15 + rng.randrange(10**9)
    match kind:
        case "receipt":
            _insert(connection, "claims", token, other, rng.choice(UNREADABLE), now)
        case "lost job":
            columns = (
                "job_id, status, token, process_id, generation, retry_count, crash_count, cancel_requested"
            )
            values = (one, "running", token, other, 1, 0, 0, 0)
            marks = ", ".join("?" * len(values))
            connection.execute(f"INSERT INTO penstock_job_states ({columns}) VALUES ({marks})", values)
            _insert(connection, "claims", token, other, f'["{one}"]', now)
        case "timer":
            _insert(connection, "timers", 1, one, rng.choice(["zzz", "signal"]), other, None, "nope")
        case "place":
            row = ("default", 0, one, "quick")
            connection.execute(
                "INSERT INTO penstock_availabilities (queue, tier, job_id, task) VALUES (?, ?, ?, ?)", row
            )
        case "time":
            _insert(connection, "scheduled", EARLIEST, one, "default", 0, "quick")
        case "lease":
            name = rng.choice(["retention", "runs"])
            lease = (name, one, LATEST)
            connection.execute("INSERT OR REPLACE INTO penstock_leases VALUES (?, ?, ?)", lease)
        case _:
            for host in hosts:
                if (worker := getattr(host, "worker", None)) is not None and host.alive:
                    worker.waker.wake(rng.choice(HINTS))
    return kind


def clean(connection: sqlite3.Connection) -> None:
    """Take all of it away."""
    for table, column in TABLES.items():
        connection.execute(f"DELETE FROM penstock_{table} WHERE {column} LIKE '{GHOST}%'")


def _insert(connection: sqlite3.Connection, table: str, *values: object) -> None:
    marks = ", ".join("?" * len(values))
    connection.execute(f"INSERT INTO penstock_{table} VALUES ({marks})", values)
