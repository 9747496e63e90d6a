"""Connections in use: taken for one transaction, or kept by a loop.

A *fairy* is what SQLAlchemy calls a connection that its pool has given out: closed, it goes back to the pool;
invalidated, it is gone. Those that we open ourselves have the same shape.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from penstock.database import trouble

if TYPE_CHECKING:
    from penstock.database.dialect import Dialect
    from penstock.database.engine import Database


class Spares:
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
            trouble.quietly(fairy.invalidate)

    def forget(self) -> None:
        """In a forked child. They are not let go of either: that would close them."""
        self._inherited.append(self._idle)
        self._idle = deque()


class Opened:
    """A connection of our own, in the shape of a fairy."""

    __slots__ = ("_dialect", "driver_connection")

    def __init__(self, dialect: Dialect, driver: Any) -> None:
        self._dialect = dialect
        self.driver_connection = driver

    def close(self) -> None:
        self._dialect.close(self.driver_connection)

    invalidate = close


class Link:
    """A connection taken from the pool: for one transaction, or kept by a loop that never shares it.

    A dedicated one is for the queue's own statements only, and need not go back to the pool. It may have less patience
    than others: whoever must be heard soon gives up sooner.
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
        self._era = 0
        if not brief:
            database.kept.add(self)

    def take(self) -> Any:
        """The driver's connection, until it is let go."""
        if self.kept is None:
            self._era = self.database.era
            usual = self.dedicated and self.patience is None
            fairy = self.database.put_by.take() if usual else None
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
            self.let_go_after(error)
            raise

    def let_go(self) -> None:
        """Everything is in order."""
        if self.brief:
            fairy, self.kept = self.kept, None
            self.database.give_back(fairy, self._era)

    def let_go_after(self, error: BaseException) -> None:
        dialect, fairy = self.database.dialect, self.kept
        if fairy is None or (not self.brief and dialect.is_presumption(error)):
            return  # closed meanwhile; or it is rolled back and in order, and will be used again at once
        self.kept = None
        if dialect.is_disconnect(error):
            trouble.quietly(fairy.invalidate)
            self.database.drop_connections()
        elif getattr(fairy.driver_connection, "closed", False):
            trouble.quietly(fairy.invalidate)  # a wait was broken off: nobody else may have it
        else:
            self._give_back(fairy)

    def close(self) -> None:
        fairy, self.kept = self.kept, None
        if fairy is not None:
            self._give_back(fairy)

    def put_by(self) -> None:
        """Everything is in order, and somebody like us will soon want the like: a new one costs the server the most."""
        usual = self._unfit and self.patience is None and self._era == self.database.era
        if self.kept is not None and usual and self.database.put_by.keep(self.kept):
            self.kept = None
        self.close()

    def _give_back(self, fairy: Any) -> None:
        trouble.quietly(fairy.invalidate if self._unfit else fairy.close)
