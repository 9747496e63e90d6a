"""Poison: rows that nothing can be made of, of jobs, runs and processes that there are not; and hints that say nothing.

They are ghosts: the history is not told of them, and they are taken away before the tables are judged. They must only
keep nothing else from coming to an end.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from penstock.queue.wakeups import TIERS
from penstock.values.parse import is_queue

if TYPE_CHECKING:
    import random

    from tests.simulation.hosts import Host

TASK = "plain"
"""A task that every worker of the simulation of tasks knows."""
GHOST = "dead0000-0000-7000-8000-"
EARLIEST, LATEST = -(2**63), 2**63 - 1
UNREADABLE = ["nope", "5", '["x"]', "null", "{}", "[[1]]", ""]
HINTS = [
    "ready\tdefault\tzzz",
    "ready\t\t",
    "zzz",
    "ready\tnowhere\t9" + "9" * 40,
    "ready\tdefault\t9999999999",
    "ready\tno queue;--\t0",
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
    "jobs": "id",
    "schedules": "id",
    "queue_controls": "changed_by",
}
KINDS = (
    "receipt",
    "receipt",
    "lost job",
    "lost job",
    "timer",
    "timer",
    "place",
    "time",
    "lease",
    "hint",
    "unclaimable job",
    "schedule",
    "schedule",
    "control",
    "outcome",
    "outcome",
)
REFUSE = f"""
CREATE TRIGGER sim_unclaimable BEFORE UPDATE ON penstock_job_states
WHEN OLD.job_id LIKE '{GHOST}%' AND NEW.status = 'running' BEGIN SELECT RAISE(ABORT, 'it cannot be claimed'); END
"""
REFUSED = "CREATE TABLE sim_refused (job_id TEXT PRIMARY KEY, until INTEGER)"
REFUSE_OUTCOME = """
CREATE TRIGGER sim_refused_outcome BEFORE UPDATE ON penstock_job_states
WHEN OLD.status = 'running' AND NEW.status <> 'running'
  AND EXISTS (SELECT 1 FROM sim_refused WHERE job_id = NEW.job_id AND until > sim_now())
BEGIN SELECT RAISE(ABORT, 'this outcome cannot be written'); END
"""
RUNNING = f"""
SELECT id FROM penstock_jobs JOIN penstock_job_states ON job_id = id
WHERE status = 'running' AND run_id IS NULL AND id NOT LIKE '{GHOST}%' ORDER BY id
"""
SECONDS = (1.0, 4.0, 12.0)
"""For so long an outcome is refused, in every form."""
SCHEDULES: list[dict[str, object]] = [
    {"every": 0},
    {"every": -1},
    {"missed": "zzz"},
    {"backfills": '["last", nope]'},
]


def prepare(connection: sqlite3.Connection) -> None:
    """Have the database refuse the claim of a ghost, and outcomes that are named in a table."""
    for statement in (REFUSE, REFUSED, REFUSE_OUTCOME):
        connection.execute(statement)


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
            row = ("default", 0, one, TASK)
            connection.execute(
                "INSERT INTO penstock_availabilities (queue, tier, job_id, task) VALUES (?, ?, ?, ?)", row
            )
        case "time":
            _insert(connection, "scheduled", EARLIEST, one, "default", 0, TASK)
        case "unclaimable job":
            _unclaimable(connection, one, now)
        case "schedule":
            _damaged_schedule(connection, one, now, rng.choice(SCHEDULES))
        case "control":
            _insert(connection, "queue_controls", "workers", one, "mail:x", LATEST, now, one, "")
        case "outcome":
            for (id,) in connection.execute(RUNNING).fetchall():
                until = now + int(rng.choice(SECONDS) * 1_000_000)
                connection.execute("INSERT OR REPLACE INTO sim_refused VALUES (?, ?)", (id, until))
                hosts[0].world.record("refused", id)
        case "lease":
            name = rng.choice(["retention", "runs"])
            lease = (name, one, LATEST)
            connection.execute("INSERT OR REPLACE INTO penstock_leases VALUES (?, ?, ?)", lease)
        case _:
            for host in hosts:
                if (worker := getattr(host, "worker", None)) is not None and host.alive:
                    worker.waker.wake(rng.choice(HINTS))
    return kind


def _unclaimable(connection: sqlite3.Connection, id: str, now: int) -> None:
    job = {"id": id, "payload": "{}", "task": TASK, "queue": "default", "priority": 0, "created_at": now}
    counts = {"generation": 0, "retry_count": 0, "crash_count": 0, "cancel_requested": 0}
    _insert_named(connection, "jobs", job)
    _insert_named(connection, "job_states", {"job_id": id, "status": "available", **counts})
    _insert_named(connection, "availabilities", {"queue": "default", "tier": 0, "job_id": id, "task": TASK})


def _damaged_schedule(connection: sqlite3.Connection, id: str, now: int, damage: dict[str, object]) -> None:
    when = {"every": 1_000_000, "zone": "UTC", "missed": "latest", "missed_limit": 10, "overlap": "queue"}
    target = {"kind": "task", "target": "ticking", "payload": "{}", "options": "{}", "jitter": 0}
    state = {
        "id": id,
        "name": id,
        "next_at": 1,
        "due_at": 1,
        "source": "api",
        "revision": "",
        "superseded": "[]",
    }
    times = {"created_at": now, "updated_at": now}
    _insert_named(connection, "schedules", {**when, **target, **state, **times, **damage})


def _insert_named(connection: sqlite3.Connection, table: str, row: dict[str, object]) -> None:
    marks = ", ".join("?" * len(row))
    connection.execute(f"INSERT INTO penstock_{table} ({', '.join(row)}) VALUES ({marks})", [*row.values()])


def strange_lanes(hosts: list[Host]) -> list[str]:
    """Lanes that a worker looks at for a hint that named none: on other databases their numbers stop every claim."""
    workers = [worker for host in hosts if (worker := getattr(host, "worker", None)) is not None]
    lanes = {lane for worker in workers for lane in worker.source.lanes.floors}
    return [
        f"a worker looks at the lane {lane}"
        for lane in lanes
        if not is_queue(lane[0]) or lane[1] not in TIERS
    ]


def clean(connection: sqlite3.Connection) -> None:
    """Take all of it away."""
    for table, column in TABLES.items():
        connection.execute(f"DELETE FROM penstock_{table} WHERE {column} LIKE '{GHOST}%'")


def _insert(connection: sqlite3.Connection, table: str, *values: object) -> None:
    marks = ", ".join("?" * len(values))
    connection.execute(f"INSERT INTO penstock_{table} VALUES ({marks})", values)
