"""Connections of one app: a store of idle connections, and handles that take one for a transaction or keep it for a
loop.

`ConnectionStore` holds every idle connection for our own statements. SQLAlchemy's pool is for statements of
users and reconcilers; once that is in use, new connections of ours come from it too (see `Database.engine`).

A *fairy* is what SQLAlchemy calls a connection that its pool has given out: closed, it goes back to the pool;
invalidated, it is gone. Those that we open ourselves have the same shape.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from penstock.database import error_advice

if TYPE_CHECKING:
    from penstock.database.database import Database
    from penstock.database.dialect import Dialect


class IdleConnections:
    """Connections between two brief transactions. To ask the pool for one costs as much as a small statement."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._idle: deque[Any] = deque()
        self._inherited: list[deque[Any]] = []

    def take(self) -> Any | None:
        """The connection that was used last: the caches of its server process are warm."""
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def keep(self, fairy: Any) -> bool:
        if len(self._idle) >= self.most:
            return False
        self._idle.append(fairy)
        return True

    def close(self) -> None:
        while (fairy := self.take()) is not None:
            error_advice.ignore_errors(fairy.invalidate)

    def reset_after_fork(self) -> None:
        """In a forked child: keep a reference to the parent's connections, because dropping it would close them."""
        self._inherited.append(self._idle)
        self._idle = deque()


class OwnConnection:
    """A connection of our own, in the shape of a fairy."""

    __slots__ = ("_dialect", "driver_connection")

    def __init__(self, dialect: Dialect, driver: Any) -> None:
        self._dialect = dialect
        self.driver_connection = driver

    def close(self) -> None:
        self._dialect.close(self.driver_connection)

    invalidate = close


class ConnectionStore:
    """The connections of an app that are not in use, and the handles that keep one.

    A borrowed connection comes back by `give_back`, or is invalidated by the handle that had it.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.spares = IdleConnections(0)
        """Between two brief transactions."""
        self.dedicated = IdleConnections(1)
        """Dedicated connections, for the queue's own statements only."""
        self.handles: WeakSet[ConnectionHandle] = WeakSet()
        """The handles of loops, each of which keeps its connection."""
        self.close_count = 0
        """How often the store was closed."""
        self.is_bare = True
        """True until the first use of SQLAlchemy."""

    def begin(self, spares: int) -> None:
        """Serve the app's present database; connections to another one are closed."""
        self.spares = IdleConnections(spares)
        self.is_bare = True

    def borrow(self) -> Any:
        """An idle connection of ours, or a new one; the caller returns it with `give_back`."""
        spare = self.spares.take()
        if spare is None:
            return self._opened() or self.database.engine.raw_connection()
        self.database.dialect.on_checkout(spare.driver_connection)
        return spare

    def _opened(self) -> OwnConnection | None:
        """Open a connection without SQLAlchemy, if that is not in use yet and the URL needs none of its features."""
        dialect = self.database.dialect
        driver = dialect.open(self.database.url, self.database.settings) if self.is_bare else None
        if driver is None:
            return None
        opened = OwnConnection(dialect, driver)
        try:
            dialect.connected(driver)
        except BaseException:
            error_advice.ignore_errors(opened.close)
            raise
        return opened

    def give_back(self, fairy: Any, close_count: int | None = None) -> None:
        """Return a working connection without an open transaction. One from before a `close()` is closed for good."""
        if close_count is not None and close_count != self.close_count:
            error_advice.ignore_errors(fairy.invalidate)
            return
        outdated = not self.is_bare and isinstance(fairy, OwnConnection)
        if outdated or not self.spares.keep(fairy):
            fairy.close()

    def go_through_sqlalchemy(self) -> None:
        """Take all further connections from SQLAlchemy's pool, which prepares them for users' column types."""
        self.is_bare = False
        self.spares.close()

    def drop(self) -> None:
        """Close idle connections: after one was lost, the others may be lost too."""
        self.spares.close()
        self.dedicated.close()

    def drop_kept(self) -> None:
        """Close the connections that loops keep; none may be in use."""
        for handle in list(self.handles):
            handle.close()

    def close(self) -> None:
        """Close idle connections; one in use is closed when it comes back."""
        self.close_count += 1
        self.drop()

    def reset_after_fork(self) -> None:
        """In a forked child: the parent's connections are not ours to use or to close."""
        self.spares.reset_after_fork()
        self.dedicated.reset_after_fork()


class ConnectionHandle:
    """A connection taken from the pool: for one transaction, or kept by a loop that never shares it.

    A dedicated one is for the queue's own statements only, and need not go back to the pool. It may have less patience
    than others: a heartbeat gives up sooner than a claim.
    """

    def __init__(
        self,
        database: Database,
        *,
        brief: bool = False,
        dedicated: bool = False,
        patience: float | None = None,
    ) -> None:
        self.database = database
        self.brief = brief
        self.dedicated = dedicated
        self.patience = patience
        self.kept: Any = None
        self._driver: Any = None
        self._is_dedicated = False
        self.is_unusable = False
        """True if a transaction on it could not be ended."""
        self._close_count = 0
        if not brief:
            database.connections.handles.add(self)

    def take(self) -> Any:
        """The driver's connection, until `release`."""
        if self.kept is None:
            store = self.database.connections
            self._close_count = store.close_count
            self.is_unusable = False
            is_plain = self.dedicated and self.patience is None
            fairy = store.dedicated.take() if is_plain else None
            self._is_dedicated = fairy is not None
            self.kept = fairy or store.borrow()
            if self.dedicated and fairy is None:
                self._dedicate(self.kept)
            self._driver = self.kept.driver_connection
        return self._driver

    def _dedicate(self, fairy: Any) -> None:
        self._is_dedicated = True  # also if an exception interrupts this
        try:
            self._is_dedicated = self.database.dialect.dedicate(fairy.driver_connection, self.patience)
        except BaseException as error:
            self.release_after_error(error)
            raise

    def release(self) -> None:
        """Return the connection after success; one that is unusable is closed."""
        if self.brief or self.is_unusable:
            fairy, self.kept = self.kept, None
            if self.is_unusable:
                error_advice.ignore_errors(fairy.invalidate)
            else:
                self.database.connections.give_back(fairy, self._close_count)

    def release_after_error(self, error: BaseException) -> None:
        dialect, fairy = self.database.dialect, self.kept
        in_order = not self.brief and not self.is_unusable and dialect.is_failed_assumption(error)
        if fairy is None or in_order:
            return  # closed meanwhile; or rolled back, and about to be used again
        self.kept = None
        if dialect.is_disconnect(error):
            error_advice.ignore_errors(fairy.invalidate)
            self.database.drop_connections()
        elif self.is_unusable or getattr(fairy.driver_connection, "closed", False):
            # A wait was broken off, or a transaction stayed open: no other caller may have this connection.
            error_advice.ignore_errors(fairy.invalidate)
        else:
            self._give_back(fairy)

    def close(self) -> None:
        fairy, self.kept = self.kept, None
        if fairy is not None:
            self._give_back(fairy)

    def keep_idle(self) -> None:
        """Keep a healthy dedicated connection idle for the next caller: a new connection is expensive for the
        server."""
        store = self.database.connections
        is_plain = self._is_dedicated and self.patience is None and self._close_count == store.close_count
        if self.kept is not None and is_plain and store.dedicated.keep(self.kept):
            self.kept = None
        self.close()

    def _give_back(self, fairy: Any) -> None:
        error_advice.ignore_errors(fairy.invalidate if self._is_dedicated else fairy.close)
