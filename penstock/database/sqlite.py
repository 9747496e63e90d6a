"""SQLite: WAL, full durability, one writer at a time, and a gate that shares the file fairly between processes.

SQLite's own busy handler favours the process that has just released the file: of four processes one got a single job
through while another did thousands. So writers queue at a lock file beside the database first. The gate is only for
fairness: what keeps two writers apart is `BEGIN IMMEDIATE`.
"""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from penstock.database import cursor_dialect
from penstock.database.cursor_dialect import ByCursor
from penstock.database.dialect import BatchWrite, Parameters
from penstock.database.templates import ListType, ParamStyle, Renderer
from penstock.errors import DatabaseError
from penstock.values.fork_safety import register_reset_after_fork

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has no flock; there the busy handler alone has to do
    HAS_FLOCK = False
else:
    HAS_FLOCK = True

if TYPE_CHECKING:
    from penstock.database.transaction import Transaction
    from penstock.database.url import Url
    from penstock.settings import Settings

NESTED = (
    "this thread has a transaction open already, and SQLite has one writer: a second one would wait for the first for "
    "ever. Inside job.transaction(), enqueue with connection=, and call once() before the block."
)
GATE = "-penstock"
PRIVATE = 0o600
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)  # Windows has neither links nor locks of this kind
BLOCKED_GATE_WAIT = 0.05
"""Seconds that a writer waits at a gate that was blocked when it was last tried."""
STEPS = 20_000
"""Steps of SQLite's virtual machine between two checks of the time limit."""
BUSY_CODES = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})


class Gate:
    """A queue of writers for one database file: first among the threads, then among the processes."""

    def __init__(self, path: str | None, timeout: float) -> None:
        self.path = path
        self.timeout = timeout
        self.threads = threading.RLock()
        self.depth = 0
        self.handle: int | None = None
        self.blocked = False
        """True if the last wait timed out: a process froze inside the gate. The next writers wait only briefly, since
        the gate is for fairness and the file's own lock decides."""
        register_reset_after_fork(self)

    def reset_after_fork(self) -> None:
        """In a forked child: close the inherited file handle, or the parent's file lock would last as long as the
        child."""
        if self.handle is not None:
            os.close(self.handle)
        self.threads = threading.RLock()
        self.depth = 0
        self.handle = None

    def enter(self, patience: float | None = None) -> None:
        """Wait for the gate. `patience`: the longest wait in seconds, if it is shorter than the timeout."""
        longest = self.timeout if patience is None else min(patience, self.timeout)
        deadline = time.monotonic() + longest
        if not self.threads.acquire(timeout=longest):
            raise sqlite3.OperationalError("database is locked: another thread kept it for too long")
        self.depth += 1
        try:
            if self.depth == 1:
                self._lock_file(longest if patience is None else deadline - time.monotonic())
        except BaseException:  # Ctrl-C during the wait: do not enter
            self.leave()
            raise

    def leave(self) -> None:
        self.depth -= 1
        if self.depth == 0 and self.handle is not None:
            fcntl.flock(self.handle, fcntl.LOCK_UN)
        self.threads.release()

    def _lock_file(self, longest: float) -> None:
        if self.path is None or not HAS_FLOCK:
            return
        if self.handle is None:
            with contextlib.suppress(OSError):
                self.handle = _open_gate(self.path)
        deadline = time.monotonic() + (min(BLOCKED_GATE_WAIT, longest) if self.blocked else longest)
        wait = 0.0002
        while self.handle is not None:
            try:
                fcntl.flock(self.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.blocked = False
                return
            except OSError:
                if time.monotonic() >= deadline:
                    break
                time.sleep(wait * random.uniform(0.5, 1.5))
                wait = min(wait * 1.5, 0.004)
        self.blocked = self.blocked or longest >= self.timeout


def _open_gate(path: str) -> int | None:
    """The lock file; None if it cannot be trusted, since a process that can open it can keep all writers waiting.

    Only users who may write to the database may open it. A link, or the file of another user, is not trusted.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | NO_FOLLOW, PRIVATE)
    try:
        gate, base = os.fstat(handle), os.stat(path.removesuffix(GATE))
        writers = base.st_mode & 0o022
        mode = PRIVATE | writers | writers << 1
        ours = os.geteuid()
        if stat.S_ISREG(gate.st_mode) and gate.st_uid in (ours, base.st_uid):
            if stat.S_IMODE(gate.st_mode) != mode and gate.st_uid == ours:
                os.fchmod(handle, mode)
            return handle
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    return None


def create_privately(path: str) -> None:
    """A database file that is not there yet is made so that only this user can read it; SQLite's others follow it."""
    if os.path.isdir(path):
        raise sqlite3.OperationalError(f"unable to open database file: {path} is a folder")
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE))


File = tuple[int, int] | None


def _file(path: str) -> File:
    """Device and inode, which tell a file from another of the same name; None: there is no file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _stamp_of(path: str) -> str:
    try:
        found = os.stat(path)
    except OSError:
        return "-"
    return f"{found.st_size}.{found.st_mtime_ns}"


class Sqlite(ByCursor):
    """SQLite 3.35 and newer."""

    name = "sqlite"
    style: ParamStyle = "named"
    own_style: ParamStyle = "named"
    now = (
        "(CAST(strftime('%s', 'now') AS INTEGER) * 1000000"
        " + CAST(substr(strftime('%f', 'now'), 4, 3) AS INTEGER) * 1000)"
    )
    lock = ""
    lock_skip = ""
    by_key = ""
    quote = '"'
    pushes_wakeups = False
    keeps_dead_rows = False
    locks_on_one_node = False
    undoes_for_others = False
    one_writer = True

    def __init__(self, path: str | None, timeout: float) -> None:
        """`path` is None for a database in memory: it exists on one connection, which the threads use in turn."""
        self.in_memory = path is None
        self.path = None if path is None or path.startswith("file:") else path
        self.gate = Gate(f"{path}{GATE}" if path else None, timeout)
        self.timeout = timeout
        self.inside: set[int] = set()
        """Connections that are inside the gate."""
        self.files: dict[int, File] = {}
        """Which file each connection has open."""
        register_reset_after_fork(self)

    def reset_after_fork(self) -> None:
        """In a forked child: no connection is inside the gate, and the child never uses the parent's connections."""
        self.inside = set()
        self.files = {}

    def open(self, url: Url, settings: Settings) -> Any:
        if self.in_memory or url.query or url.database is None:
            return None
        ours = self.engine_options(url, settings)["connect_args"]
        create_privately(url.database)
        return sqlite3.connect(url.database, **ours)

    def connect(self, *args: Any, **named: Any) -> Any:
        if self.path is not None:
            create_privately(self.path)
        return super().connect(*args, **named)

    def close(self, driver: Any) -> None:
        """Close a connection, and leave the gate whatever has become of its transaction."""
        try:
            self.rollback(driver)
        finally:
            driver.close()

    def engine_options(self, url: Url, settings: Settings) -> dict[str, Any]:
        return {"connect_args": {"check_same_thread": False, "timeout": settings.lock_timeout}}

    def connected(self, driver: Any) -> None:
        driver.isolation_level = None
        self._set_busy_timeout(driver, self.timeout)
        if not self.in_memory:
            self._use_wal(driver)
        if self.path is not None:
            self.files[id(driver)] = _file(self.path)
        driver.execute("PRAGMA synchronous = FULL")
        driver.execute("PRAGMA temp_store = MEMORY")

    def _use_wal(self, driver: Any) -> None:
        if driver.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
            return
        with self.writing():
            driver.execute("PRAGMA journal_mode = WAL")

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        self.gate.enter()
        try:
            yield
        finally:
            self.gate.leave()

    def among(self, parameter: str, kind: ListType) -> str:
        return f"IN (SELECT value FROM json_each({parameter}))"

    def list_value(self, values: Sequence[object], kind: ListType) -> object:
        return to_json(list(values)).decode()

    def _refuse_lost_file(self, driver: Any) -> None:
        """Refuse a file that was removed or replaced: it accepts writes that no other process will ever see."""
        if self.path is None:
            return
        there = _file(self.path)
        if there is None:
            raise sqlite3.OperationalError(f"unable to open database file: {self.path} was removed")
        if there != self.files.get(id(driver), there):
            raise sqlite3.ProgrammingError(f"closed: {self.path} is another file by now")

    def begin(self, driver: Any, patience: float | None = None) -> None:
        """Begin a write. `patience`: the longest wait for the gate and the file, in seconds."""
        self._refuse_lost_file(driver)
        began = time.monotonic()
        self.gate.enter(patience)
        if self.gate.depth > 1:
            self.gate.leave()
            raise DatabaseError(NESTED)
        self.inside.add(id(driver))
        try:
            if patience is not None:
                self._set_busy_timeout(driver, min(self.timeout, patience + began - time.monotonic()))
            driver.execute("BEGIN IMMEDIATE")
        except BaseException:
            self.rollback(driver)  # Ctrl-C during the wait is raised after it, when the transaction has begun
            raise
        finally:
            if patience is not None:
                self._set_busy_timeout(driver, self.timeout)

    def _set_busy_timeout(self, driver: Any, seconds: float) -> None:
        driver.execute(f"PRAGMA busy_timeout = {max(0, int(seconds * 1000))}")

    def _leave(self, driver: Any) -> None:
        """Leave the gate, whatever has become of the transaction: SQLite rolls back by itself when a disk is full."""
        if id(driver) in self.inside:
            self.inside.discard(id(driver))
            self.gate.leave()

    def begin_single(self, driver: Any) -> None:
        self.begin(driver)

    def begin_reading(self, driver: Any) -> None:
        if self.in_memory:
            self.begin(driver)
        else:
            self._refuse_lost_file(driver)

    def begin_brief_reading(self, driver: Any, seconds: float) -> None:
        self.begin_reading(driver)
        deadline = time.monotonic() + seconds
        driver.set_progress_handler(lambda: time.monotonic() > deadline, STEPS)

    def end_brief_reading(self, driver: Any) -> None:
        driver.set_progress_handler(None, 0)

    def commit_stamp(self, tx: Transaction) -> str | None:
        """The state of the files: every commit adds to the log beside the database."""
        if self.path is None:
            return None
        return " ".join([_stamp_of(f"{self.path}-wal"), _stamp_of(self.path)])

    def commit(self, driver: Any, opened: object = None) -> None:
        if driver.in_transaction:
            driver.execute("COMMIT")
            self._leave(driver)
        elif id(driver) in self.inside:
            raise sqlite3.OperationalError("cannot commit: SQLite or a statement has ended the transaction")

    def rollback(self, driver: Any, opened: object = None) -> None:
        try:
            if driver.in_transaction:
                driver.execute("ROLLBACK")
        finally:
            self._leave(driver)

    def write(
        self,
        tx: Transaction,
        renderer: Renderer,
        writes: BatchWrite,
        rows: Sequence[Parameters],
        shared: Parameters,
    ) -> None:
        full = [{**shared, **row} for row in rows] if shared else rows
        for number, write in enumerate(writes.tables):
            rendered = renderer.written.get((writes, number))
            if rendered is None:
                verb = "INSERT OR IGNORE" if write.ignore_duplicates else "INSERT"
                rendered = renderer.render(cursor_dialect.insert_template(write, verb))
                renderer.written[writes, number] = rendered
            tx.execute_many(rendered, full)

    def is_transient(self, error: BaseException) -> bool:
        code = getattr(error, "sqlite_errorcode", None)
        return isinstance(error, sqlite3.OperationalError) and (
            (code is not None and code & 0xFF in BUSY_CODES) or "locked" in str(error)
        )

    def is_disconnect(self, error: BaseException) -> bool:
        return isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error)

    def is_duplicate(self, error: BaseException) -> bool:
        return isinstance(error, sqlite3.IntegrityError)
