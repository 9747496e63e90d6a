"""Listeners hear wake-ups from other processes. They are hints only: a process that hears none polls.

PostgreSQL tells by NOTIFY. Beside a SQLite file lies its write-ahead log, which every commit touches: looking at
it costs no statement and takes no lock.
"""

from __future__ import annotations

import math
import os
import select
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from penstock.database.database import Database
from penstock.database.url import for_libpq, parse
from penstock.values.ids import new_token
from penstock.values.lazy_import import Lazy

if TYPE_CHECKING:
    import psycopg

    from penstock.database.postgres import pipeline
else:
    psycopg, pipeline = Lazy("psycopg"), Lazy("penstock.database.postgres.pipeline")

LOOK_INTERVAL = 0.005
"""Between two looks at the log of a SQLite file: they cost no statement."""
RECONNECT_AFTER = 1.0
GIVEN_UP_AFTER = 25_000
"""Milliseconds until a connection on which nothing comes back, not even to keepalives, counts as lost."""


class Listener(Protocol):
    """Waits on something of its own, and on a file descriptor by which the owner can end the wait."""

    def wait(self, wake: int, timeout: float) -> list[str]:
        """Wait until told, woken or out of time; the subjects heard of."""

    def close(self) -> None: ...


class ProvableListener(Listener, Protocol):
    """A listener of which a process can find out whether it hears: on a channel for this one alone."""

    own_channel: str
    echoed: str | None

    @property
    def connected(self) -> bool: ...

    @property
    def connection(self) -> object | None: ...


class NoListener:
    """For databases that send no wake-ups."""

    def wait(self, wake: int, timeout: float) -> list[str]:
        _readable(timeout, wake)
        return []

    def close(self) -> None:
        """Nothing was opened."""


class WalListener:
    """Notices commits to a SQLite database, by its write-ahead log."""

    def __init__(self, path: str) -> None:
        self.path = f"{path}-wal"
        self.seen = self._mark()

    def _mark(self) -> tuple[int, int]:
        try:
            status = os.stat(self.path)
        except OSError:
            return (0, 0)
        return (status.st_size, status.st_mtime_ns)

    def wait(self, wake: int, timeout: float) -> list[str]:
        deadline = time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0:
            mark = self._mark()
            if mark != self.seen:
                self.seen = mark
                return ["written"]
            if _readable(min(left, LOOK_INTERVAL), wake):
                return []
        return []

    def close(self) -> None:
        """Nothing was opened."""


class NotifyConnection:
    """A connection that listens on channels; it is opened again when it is lost."""

    def __init__(self, database: Database, channels: Sequence[str]) -> None:
        self.database = database
        settings = database.settings
        url = parse(settings.listen_url) if settings.listen_url else database.url
        ours: dict[str, Any] = database.dialect.engine_options(url, settings)["connect_args"]
        if "tcp_user_timeout" in ours:
            ours = ours | {"tcp_user_timeout": GIVEN_UP_AFTER}
        self.arguments = for_libpq(url) | ours | {"application_name": "penstock-listen"}
        self.channels = channels
        self.connection: psycopg.Connection | None = None
        self._descriptors = Descriptors()
        self.tried = -RECONNECT_AFTER

    @property
    def connected(self) -> bool:
        return self.connection is not None

    def receive(self, wake: int, timeout: float) -> list[tuple[str, str]] | None:
        """Wait; the channel and the text of each notification. None: the connection was lost."""
        try:
            connection = self._connected()
            if connection is None:
                _readable(min(timeout, RECONNECT_AFTER), wake)
                return []
            spoken = connection.fileno() in self._descriptors.ready(timeout, wake, connection.fileno())
            return _received(connection) if spoken else []
        except (psycopg.Error, OSError, ValueError):
            self.close()
            return None

    def _connected(self) -> psycopg.Connection | None:
        if self.connection is not None:
            return self.connection
        if time.monotonic() - self.tried < RECONNECT_AFTER or not hears(self.database):
            return None
        self.tried = time.monotonic()
        connection: pipeline.TimeLimitedConnection
        if self.database.settings.listen_url:  # another way, of which nothing can be learned about ours
            connection = pipeline.TimeLimitedConnection.connect(**self.arguments)
        else:
            connection = self.database.dialect.connect(**self.arguments)
        if not hears(
            self.database
        ):  # a pooler, as it turns out: on a connection of its pool nothing is heard
            connection.close()
            return None
        connection.autocommit = True
        connection.patience = GIVEN_UP_AFTER / 1000
        connection.execute("; ".join(f'LISTEN "{channel}"' for channel in self.channels))
        self.connection = connection
        return connection

    def close(self) -> None:
        connection, self.connection = self.connection, None
        self._descriptors = Descriptors()
        if connection is not None:
            with suppress(Exception):
                connection.close()


class NotifyListener(NotifyConnection):
    """Listens on a connection of its own.

    An open connection does not prove that notifications arrive on it. So there is a second channel, for this listener
    alone: to check, a process sends a NOTIFY there, on another connection, and looks whether the listener heard it.
    The same channel carries wake-ups for this process by name; such a subject has a tab in it, and an echo has none.
    """

    def __init__(self, database: Database, channel: str, own_channel: str | None = None) -> None:
        self.own_channel = own_channel or new_channel()
        super().__init__(database, (channel, self.own_channel))
        self.echoed: str | None = None
        """The last echo heard on the own channel since the connection was opened."""

    def wait(self, wake: int, timeout: float) -> list[str]:
        told = self.receive(wake, timeout)
        if told is None:
            return ["reconnect"]
        heard = []
        for channel, text in told:
            if is_echo(channel, text, self.own_channel):
                self.echoed = text
            else:
                heard.append(text)
        return heard

    def close(self) -> None:
        super().close()
        self.echoed = None


class RelayedListener:
    """Hears what the listener of the supervisor passes on, through a pipe: one connection for all its children.

    Each message ends with a zero byte, which no notification has in it. `connection` stands for the connection of the
    supervisor: another object after each loss of it. When the pipe is closed, nothing is heard any more.
    """

    def __init__(self, pipe: int, own_channel: str) -> None:
        self.own_channel = own_channel
        self.echoed: str | None = None
        self.connection: object | None = None
        self._pipe: int | None = pipe
        self._rest = b""
        self._descriptors = Descriptors()

    @property
    def connected(self) -> bool:
        return self.connection is not None

    def wait(self, wake: int, timeout: float) -> list[str]:
        pipe = self._pipe
        if pipe is None:
            _readable(timeout, wake)
            return []
        if pipe not in self._descriptors.ready(timeout, wake, pipe):
            return []
        if not (data := os.read(pipe, MOST_READ)):
            self.close()
            return ["reconnect"]
        *messages, self._rest = (self._rest + data).split(END)
        return [subject for message in messages for subject in self._take(message)]

    def _take(self, message: bytes) -> list[str]:
        kind, text = message[:1], message[1:].decode(errors="replace")
        if kind == SUBJECT:
            return [text]
        if kind == ECHO:
            self.echoed = text
            return []
        missed = self.connected
        self.echoed, self.connection = None, object() if kind == CONNECTED else None
        return ["reconnect"] if missed else []

    def close(self) -> None:
        pipe, self._pipe = self._pipe, None
        self.echoed, self.connection = None, None
        if pipe is not None:
            os.close(pipe)


SUBJECT, ECHO, CONNECTED, LOST, END = b":", b"=", b"+", b"-", b"\0"
"""The messages of a supervisor: a subject, an echo; that it listens on a new connection, that it has lost it. Wake-ups
before either of these two may have been missed."""
MOST_READ = 65_536


def is_echo(channel: str, text: str, own_channel: str) -> bool:
    """True if this is the echo of a check, and not a wake-up by name."""
    return channel == own_channel and "\t" not in text


def _received(connection: psycopg.Connection) -> list[tuple[str, str]]:
    told = []
    pq = connection.pgconn
    pq.consume_input()
    while (notify := pq.notifies()) is not None:
        told.append((notify.relname.decode(errors="replace"), notify.extra.decode(errors="replace")))
    return told


class Descriptors:
    """Waits for file descriptors: the same ones thousands of times."""

    def __init__(self) -> None:
        self._watched: tuple[int, ...] = ()
        self._poll = select.poll()

    def ready(self, timeout: float, *descriptors: int) -> list[int]:
        """Those that can be read."""
        if self._watched != descriptors:
            self._watched, self._poll = descriptors, _poll_for(*descriptors)
        return [descriptor for descriptor, _ in self._poll.poll(math.ceil(timeout * 1000))]


def _readable(timeout: float, *descriptors: int) -> bool:
    return bool(_poll_for(*descriptors).poll(math.ceil(timeout * 1000)))


def _poll_for(*descriptors: int) -> select.poll:
    """Not select: a worker may have more files open than that can count."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return poll


def new_channel() -> str:
    """The name of a channel for one listener alone."""
    return f"penstock_echo_{new_token():x}"


def listener_for(database: Database, channel: str, own_channel: str | None = None) -> Listener:
    """The listener that fits this database and its settings."""
    dialect = database.dialect
    if dialect.name == "sqlite":
        path = database.url.database
        return NoListener() if dialect.in_memory or path is None else WalListener(path)
    return NotifyListener(database, channel, own_channel) if hears(database) else NoListener()


def hears(database: Database) -> bool:
    """Whether other processes can tell us something, beside what we see of their writing."""
    settings = database.settings
    direct = settings.listen_url is not None or not database.dialect.is_pooled
    return database.dialect.pushes_wakeups and settings.listen and direct
