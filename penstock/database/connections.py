"""Connections in use: taken for one transaction, or kept by a loop.

A *fairy* is what SQLAlchemy calls a connection that its pool has given out: closed, it goes back to the pool;
invalidated, it is gone. Those that we open ourselves have the same shape.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

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
        """The one used last: its server process is the most awake."""
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

    def forget(self) -> None:
        """In a forked child. They are not let go of either: that would close them."""
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
        self._unfit = False
        self.is_spoilt = False
        """A transaction is open on it that could not be ended."""
        self._era = 0
        if not brief:
            database.kept.add(self)

    def take(self) -> Any:
        """The driver's connection, until it is let go."""
        if self.kept is None:
            self._era = self.database.era
            self.is_spoilt = False
            usual = self.dedicated and self.patience is None
            fairy = self.database.idle_dedicated.take() if usual else None
            self._unfit = fairy is not None
            self.kept = fairy or self.database.borrow()
            if self.dedicated and fairy is None:
                self._dedicate(self.kept)
            self._driver = self.kept.driver_connection
        return self._driver

    def _dedicate(self, fairy: Any) -> None:
        self._unfit = True  # also if this is broken off half-way
        try:
            self._unfit = self.database.dialect.dedicate(fairy.driver_connection, self.patience)
        except BaseException as error:
            self.release_after_error(error)
            raise

    def release(self) -> None:
        """Everything is in order, unless it is spoilt."""
        if self.brief or self.is_spoilt:
            fairy, self.kept = self.kept, None
            if self.is_spoilt:
                error_advice.ignore_errors(fairy.invalidate)
            else:
                self.database.give_back(fairy, self._era)

    def release_after_error(self, error: BaseException) -> None:
        dialect, fairy = self.database.dialect, self.kept
        in_order = not self.brief and not self.is_spoilt and dialect.is_failed_assumption(error)
        if fairy is None or in_order:
            return  # closed meanwhile; or it is rolled back and in order, and will be used again at once
        self.kept = None
        if dialect.is_disconnect(error):
            error_advice.ignore_errors(fairy.invalidate)
            self.database.drop_connections()
        elif self.is_spoilt or getattr(fairy.driver_connection, "closed", False):
            # A wait was broken off, or a transaction stayed open: no other caller may have this connection.
            error_advice.ignore_errors(fairy.invalidate)
        else:
            self._give_back(fairy)

    def close(self) -> None:
        fairy, self.kept = self.kept, None
        if fairy is not None:
            self._give_back(fairy)

    def idle_dedicated(self) -> None:
        """Put a healthy dedicated connection aside for the next caller: a new one costs the server the most."""
        usual = self._unfit and self.patience is None and self._era == self.database.era
        if self.kept is not None and usual and self.database.idle_dedicated.keep(self.kept):
            self.kept = None
        self.close()

    def _give_back(self, fairy: Any) -> None:
        error_advice.ignore_errors(fairy.invalidate if self._unfit else fairy.close)
