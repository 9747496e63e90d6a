"""The PostgreSQL of a benchmark: durable, its memory sensibly sized, everything else as it comes."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from tests.servers.postgres import Postgres
from tests.servers.versions import programs_of

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "400",
    "shared_buffers": "512MB",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "30min",
    "timezone": "UTC",
}

IDLE = 11.0
"""By then an idle connection has told what it did."""
FLUSHES = "SELECT sum(fsyncs) FROM pg_stat_io WHERE object = 'wal' AND backend_type = 'client backend'"
FLUSHES_BEFORE_18 = "SELECT wal_sync FROM pg_stat_wal"


def programs(which: str) -> Path | None:
    """The programs of a server: by version, such as 15, or the folder they are in; none: those of the tests."""
    if which.isdigit():
        return programs_of(int(which))
    return Path(which) if which else None


@contextmanager
def running(which: str = "") -> Iterator[Postgres]:
    """A server of our own, gone at the end with all its data."""
    parent = Path(tempfile.mkdtemp(prefix="bench-"))
    parent.chmod(0o711)
    try:
        with Postgres(parent / "server", SETTINGS, programs(which)) as server:
            yield server
    finally:
        shutil.rmtree(parent, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Reading:
    """The server's counters at one moment."""

    commits: int
    wal: int

    def __sub__(self, other: Reading) -> Reading:
        return Reading(self.commits - other.commits, self.wal - other.wal)


class Database:
    """One throwaway database, as the driver sees it."""

    def __init__(self, server: Postgres, name: str) -> None:
        self.server = server
        self.name = name
        server.admin.drop_database(name)
        self.url = server.create_database(name)
        self.connection = psycopg.connect(self.url, autocommit=True)

    def number(self, sql: str) -> int:
        row = self.connection.execute(sql.encode()).fetchone()
        return int(row[0]) if row else 0

    def run(self, sql: str) -> None:
        self.connection.execute(sql.encode())

    def reading(self) -> Reading:
        """A transaction gets an id with its first write: their number is that of the commits that cost something."""
        query = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text, pg_current_wal_lsn() - '0/0'"
        row: Any = self.connection.execute(query).fetchone()
        return Reading(int(row[0]), int(row[1]))

    def flushes(self) -> int:
        """How often a client has waited for the log to be on disk. Servers tell of it once they are idle for long."""
        time.sleep(IDLE)
        known = self.connection.info.server_version >= 18_00_00
        return self.number(FLUSHES if known else FLUSHES_BEFORE_18)

    def drop(self) -> None:
        self.connection.close()
        self.server.admin.drop_database(self.name)


@contextmanager
def pinned(url: str) -> Iterator[None]:
    """A snapshot held open: nothing that dies meanwhile can be vacuumed away."""
    with psycopg.connect(url) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT txid_current()")
        yield
        connection.rollback()


def cpu_seconds(server: Postgres) -> float:
    """Of all the server's processes so far, those that have ended included."""
    leader = server.process_id
    ticks = 0
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = status.read_text().rpartition(")")[2].split()
            own = status.parent.name == str(leader)
            if own or int(fields[1]) == leader:
                ticks += sum(map(int, fields[11 : 15 if own else 13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def version(server: Postgres) -> str:
    with psycopg.connect(server.url("postgres")) as connection:
        return (
            f"PostgreSQL {connection.info.server_version // 10000}.{connection.info.server_version % 10000}"
        )
