"""Freezing a process between two of its transactions, from outside or at a point of its own.

A process that freezes inside one keeps its locks, on SQLite the whole file: no other can write until it thaws, and
there is nothing to see of how others go on. A process has several threads that write, so a look at one of them will not
do.
"""

import os
import signal
import time
from collections.abc import Sequence
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from sqlite3 import OperationalError

import psycopg
import pymysql

from penstock import Penstock
from penstock.database.database import Database
from penstock.database.sqlite import Sqlite
from penstock.telemetry.fault_points import Watcher
from tests.waiting import eventually


def freeze(pid: int, database_url: str, probes: Sequence[str]) -> None:
    """SIGSTOP, when the statements of `probes` can be run beside it."""
    with closing(Penstock(database_url, lock_timeout=0.2, statement_timeout=1)) as impatient:

        def stopped() -> bool:
            os.kill(pid, signal.SIGSTOP)
            eventually(lambda: is_stopped(pid))
            if _can_write(impatient.database, probes):
                return True
            os.kill(pid, signal.SIGCONT)
            return False

        eventually(stopped)


def is_stopped(pid: int) -> bool:
    """All its threads: they stop one after the other."""
    tasks = Path(f"/proc/{pid}/task").glob("*/stat")
    return all(task.read_text().rpartition(")")[2].split()[0] == "T" for task in tasks)


class Tried(Exception):
    """Takes back what was only tried."""


def _can_write(database: Database, probes: Sequence[str]) -> bool:
    """At once: a process that froze at the gate before the file makes others wait in vain, and then go round it."""
    began = time.monotonic()
    with suppress(OperationalError, psycopg.Error, pymysql.MySQLError):
        try:
            with database.transaction() as tx:
                for probe in probes:
                    tx.run(probe)
                raise Tried
        except Tried:
            return time.monotonic() - began < 0.15
    return False


def between_writes(app: Penstock, strike: Watcher, wanted: str) -> Watcher:
    """A watcher that strikes at a point while no thread of this process writes; what counts on SQLite only.

    A thread that has reached the point inside a transaction of its own passes.
    """
    dialect = app.database.dialect
    turn = dialect.gate.threads if isinstance(dialect, Sqlite) else nullcontext()

    def watch(point: str) -> None:
        if point == wanted:
            with turn:
                strike(point)

    return watch
