"""Measures what makes a queue slow, per kind of database.

Each kind measures what matters there: old snapshots and dead rows, undo history, the write-ahead log. A
measurement that the role has no right to read is left out.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.database import error_advice
from penstock.database.listeners import NotifyListener, hears
from penstock.values.secrets import without_secrets

if TYPE_CHECKING:
    from penstock.database.database import Database
    from penstock.database.transaction import Transaction

OLD_SNAPSHOT = 300.0
MANY_DEAD_ROWS = 1_000_000
LONG_HISTORY = 1_000_000
LARGE_LOG = 256 * 1024 * 1024
LITTLE_ROOM = 64 * 1024 * 1024
ECHO, ECHOES = 0.5, 6

HOLD_BACK = (
    "Find it and end it: as long as its snapshot is open, dead rows cannot be removed and claims get slower."
)

WRITABLE_PG = "SELECT pg_is_in_recovery(), current_setting('transaction_read_only')"
WRITABLE_MY = "SELECT @@global.read_only, @@global.innodb_read_only"
VERSION_PG = "SELECT current_setting('server_version')"
OLDEST_PG = """
SELECT EXTRACT(EPOCH FROM clock_timestamp() - xact_start), pid, COALESCE(application_name, ''), COALESCE(state, '')
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
  AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
ORDER BY xact_start LIMIT 1
"""
DEAD_PG = """
SELECT relname, n_dead_tup FROM pg_stat_user_tables WHERE relname LIKE :pattern ORDER BY n_dead_tup DESC LIMIT 1
"""
PREPARED_PG = """
SELECT COALESCE(MAX(EXTRACT(EPOCH FROM clock_timestamp() - prepared)), 0) FROM pg_prepared_xacts
WHERE database = current_database()
"""
SLOTS_PG = "SELECT slot_name FROM pg_replication_slots WHERE NOT active"
SAY_PG = "SELECT pg_notify(:channel, 'heard')"
VERSION_MY = "SELECT VERSION()"
OLDEST_MY = """
SELECT TIMESTAMPDIFF(SECOND, CONVERT_TZ(trx_started, 'SYSTEM', '+00:00'), UTC_TIMESTAMP()), trx_mysql_thread_id
FROM information_schema.innodb_trx
WHERE trx_mysql_thread_id <> CONNECTION_ID() ORDER BY trx_started LIMIT 1
"""
HISTORY_MY = """
SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'INNODB_HISTORY_LIST_LENGTH'
"""
HISTORY_MY8 = "SELECT `count` FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len'"


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measurement, in words; with advice if it is worrying."""

    name: str
    words: str
    advice: str | None = None


def version(database: Database) -> str:
    """The server's name and version."""
    match database.dialect.name:
        case "postgresql":
            return f"PostgreSQL {_first(database, VERSION_PG)}"
        case "mysql":
            found = str(_first(database, VERSION_MY))
            return found if "maria" in found.lower() else f"MySQL {found}"
        case _:
            return f"SQLite {_first(database, 'SELECT sqlite_version()')}"


def measurements(database: Database) -> list[Measurement]:
    """All measurements that this database can be asked for."""
    found: list[Measurement] = []
    for measure in MEASURES[database.dialect.name]:
        with suppress(Exception):  # no right to read it: leave it out
            found += measure(database)
    return found


def _writes(database: Database) -> list[Measurement]:
    """Check that the server takes writes: a standby answers queries and takes none."""
    row = database.read(lambda tx: tx.row(WRITABLE_PG))
    standby, read_only = row or (False, "off")
    if standby:
        return [
            Measurement("writes", "this server is a standby: nothing can be written", error_advice.STANDBY)
        ]
    return [_taken(read_only != "on")]


def _writes_my(database: Database) -> list[Measurement]:
    row = database.read(lambda tx: tx.row(WRITABLE_MY))
    return [_taken(not any(map(int, row or ())))]


def _taken(writable: bool) -> Measurement:
    if writable:
        return Measurement("writes", "the server takes writes")
    return Measurement("writes", "the server can only be read", error_advice.READ_ONLY)


def _pooler(database: Database) -> list[Measurement]:
    if not getattr(database.dialect, "pooler_noticed", False):
        return []
    advice = 'Set pooler to "transaction", or to "session" if that is its mode.'
    return [
        Measurement(
            "pooler", "a pooler stands before the database, of which the settings say nothing", advice
        )
    ]


def _oldest_snapshot(database: Database) -> list[Measurement]:
    row = database.read(lambda tx: tx.row(OLDEST_PG))
    age = float(row[0]) if row else 0.0
    if row is None or age < OLD_SNAPSHOT:
        return [Measurement("oldest snapshot", f"the oldest open transaction is {age:.0f} s old")]
    words = f"a transaction has been open for {age:.0f} s: pid {row[1]}, {row[2] or 'no application name'}, {row[3]}"
    return [Measurement("oldest snapshot", words, f"{HOLD_BACK} SELECT pg_terminate_backend({row[1]})")]


def _dead_rows(database: Database) -> list[Measurement]:
    pattern = database.prefix.replace("_", "\\_") + "%"
    row = database.read(lambda tx: tx.row(DEAD_PG, pattern=pattern))
    table, dead = (row[0], int(row[1])) if row else ("all tables", 0)
    advice = (
        f"Run VACUUM {table}; if it does not help, look for an old snapshot."
        if dead > MANY_DEAD_ROWS
        else None
    )
    return [Measurement("dead rows", f"{dead:,} dead rows in {table}", advice)]


def _prepared_transactions(database: Database) -> list[Measurement]:
    prepared, slots = database.read(_prepared_and_slots)
    found = []
    if prepared > OLD_SNAPSHOT:
        words = f"a prepared transaction is {prepared:.0f} s old"
        found.append(
            Measurement("prepared transactions", words, "Commit or roll it back (pg_prepared_xacts).")
        )
    if slots:
        words = f"inactive replication slots: {', '.join(slots)}"
        found.append(
            Measurement("replication slots", words, "Drop them, or they hold back vacuum and keep the log.")
        )
    return found


def _prepared_and_slots(tx: Transaction) -> tuple[float, list[str]]:
    row = tx.row(PREPARED_PG)
    return float(row[0]) if row else 0.0, [str(slot[0]) for slot in tx.rows(SLOTS_PG)]


def _wakeups(database: Database) -> list[Measurement]:
    """Send a wake-up and listen for it. Workers that hear none only poll, which is easy to overlook."""
    if not hears(database):
        return []
    listener, (wake, other) = NotifyListener(database, database.prefix), os.pipe()
    try:
        listener.wait(wake, 0.0)
        if listener.connected:
            database.in_transaction(lambda tx: tx.row(SAY_PG, channel=listener.own_channel))
        for _ in range(ECHOES):
            if listener.connected and listener.echoed is None:
                listener.wait(wake, ECHO)
        heard = listener.echoed is not None
    finally:
        listener.close()
        os.close(wake)
        os.close(other)
    if heard:
        return [Measurement("wake-ups", "wake-ups of other processes are heard")]
    where = without_secrets(database.settings.listen_url or database.settings.database_url)
    words = f"no wake-up arrives on a connection to {where}: workers only poll, and find new work later"
    return [Measurement("wake-ups", words, "Let listen_url lead to this database itself, past any pooler.")]


def _oldest_transaction(database: Database) -> list[Measurement]:
    row = database.read(lambda tx: tx.row(OLDEST_MY))
    age = float(row[0]) if row else 0.0
    advice = f"{HOLD_BACK} KILL {row[1]}" if row and age > OLD_SNAPSHOT else None
    return [Measurement("oldest snapshot", f"the oldest open transaction is {age:.0f} s old", advice)]


def _history(database: Database) -> list[Measurement]:
    try:
        length = int(str(_first(database, HISTORY_MY)))
    except Exception:
        length = int(str(_first(database, HISTORY_MY8)))
    advice = HOLD_BACK if length > LONG_HISTORY else None
    return [Measurement("undo history", f"the InnoDB history list has {length:,} entries", advice)]


def _journal(database: Database) -> list[Measurement]:
    mode = str(_first(database, "PRAGMA journal_mode"))
    advice = None
    if mode not in ("wal", "memory"):
        advice = (
            "Let Penstock open the file on a local disk: it switches to WAL, which readers and writers share."
        )
    return [Measurement("journal", f"the journal mode is {mode}", advice)]


def _log_size(database: Database) -> list[Measurement]:
    name = f"{database.url.database}-wal"
    size = os.path.getsize(name) if os.path.exists(name) else 0
    advice = None
    if size > LARGE_LOG:
        advice = (
            "A reader keeps the log from being written back: end it, then PRAGMA wal_checkpoint(TRUNCATE)."
        )
    return [Measurement("write-ahead log", f"the write-ahead log takes {size / 1024 / 1024:.1f} MiB", advice)]


def _room(database: Database) -> list[Measurement]:
    """Check that the disk has room and can be written: without heartbeats workers look dead."""
    name = str(database.url.database)
    free = shutil.disk_usage(name).free
    room = Measurement("disk", f"the disk of {name} has {free / 1024 / 1024:,.0f} MiB left")
    if free < LITTLE_ROOM:
        return [replace(room, advice="Make room: without any, workers cannot even say that they are alive.")]
    if not os.access(name, os.W_OK):
        words = f"{name} can only be read by this user"
        return [
            Measurement("disk", words, "Give write permission to the users that enqueue jobs or run workers.")
        ]
    return [room]


def _first(database: Database, statement: str) -> object:
    row = database.read(lambda tx: tx.row(statement))
    return row[0] if row else ""


MEASURES: dict[str, list[Callable[[Database], list[Measurement]]]] = {
    "postgresql": [_pooler, _writes, _wakeups, _oldest_snapshot, _dead_rows, _prepared_transactions],
    "mysql": [_writes_my, _oldest_transaction, _history],
    "sqlite": [_journal, _log_size, _room],
}
