"""The longer recipes among the faults."""

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from signal import SIGCONT, SIGTERM

import psycopg
import pymysql

from penstock.database.transaction import Transaction
from penstock.database.url import for_libpq
from penstock.values.ids import new_id
from tests.chaos.hosts import UNREACHABLE, Host
from tests.chaos.world import World

STOP_SECONDS = 0.3
STOP_LIMIT = 40
"""How long a host may take to stop. In an outage it cannot give anything back, and leaves all the same."""
FILLING_SECONDS = 2
BATCH = 250


def thaw(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, SIGCONT)


def starter(world: World, host: Host) -> Callable[[], bool]:
    """Starts a host again when it has come to its end, in order and in time."""
    stopped = host.worker
    give_up = time.monotonic() + STOP_LIMIT

    def start() -> bool:
        assert stopped is not None
        if stopped.running and time.monotonic() < give_up:
            return False
        if stopped.running:
            world.oddities.append(f"{host.name} did not stop within {STOP_LIMIT} s of SIGTERM")
            host.kill()
        # The latter two: it was told before it was ready, or without a database.
        elif stopped.code not in (0, -SIGTERM, UNREACHABLE):
            world.oddities.append(f"{host.name} was stopped and ended with code {stopped.code}")
        host.start()
        return True

    return start


def fill(world: World) -> None:
    """Finished jobs with their states and executions, written as any client would."""
    with suppress(Exception):  # the database may be away just now
        end = time.monotonic() + FILLING_SECONDS
        while time.monotonic() < end:
            with world.app.database.transaction() as tx:
                _write_finished(tx)


def _write_finished(tx: Transaction) -> None:
    ids = [new_id() for _ in range(BATCH)]
    jobs = {"task": "filler", "queue": "filler", "priority": 0, "payload": "{}", "max_crashes": None}
    tx.insert("jobs", [{"id": id, **jobs} for id in ids], created_at="{now}")
    state = {
        "status": "succeeded",
        "generation": 1,
        "retry_count": 0,
        "crash_count": 0,
        "cancel_requested": False,
    }
    tx.insert("job_states", [{"job_id": id, **state} for id in ids], finished_at="{now}")
    done = {"generation": 1, "outcome": "succeeded", "output": "null"}
    tx.insert("executions", [{"job_id": id, **done} for id in ids], started_at="{now}", finished_at="{now}")


def snapshot(world: World) -> Callable[[], None]:
    """Open one; what closes it."""
    url = world.app.database.url
    try:
        match world.terms.database:
            case "postgres":
                postgres = psycopg.connect(**for_libpq(url), connect_timeout=2)
                postgres.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                postgres.execute("select count(*) from penstock_jobs")
                return _closing(postgres)
            case "mariadb":
                maria = pymysql.connect(
                    host="127.0.0.1", port=url.port or 0, user="root", database=url.database
                )
                maria.cursor().execute("start transaction with consistent snapshot")
                return _closing(maria)
            case _:
                file = sqlite3.connect(str(url.database), isolation_level=None, check_same_thread=False)
                file.execute("begin")
                file.execute("select count(*) from penstock_jobs").fetchall()
                return _closing(file)
    except Exception:  # the database is away just now: nothing was held
        return lambda: None


def write_lock(world: World) -> Callable[[], None]:
    """Hold SQLite's own lock, without a place in the writers' queue."""
    file = sqlite3.connect(
        str(world.app.database.url.database), isolation_level=None, timeout=5, check_same_thread=False
    )
    with suppress(sqlite3.OperationalError):
        file.execute("begin immediate")
    return _closing(file)


def _closing(
    connection: "psycopg.Connection | pymysql.connections.Connection | sqlite3.Connection",
) -> Callable[[], None]:
    def close() -> None:
        with suppress(Exception):  # it may have been killed meanwhile
            connection.close()

    return close
