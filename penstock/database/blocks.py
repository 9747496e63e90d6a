"""The blocks in which statements run: `with database.transaction()` and `with database.reading()`.

Classes and not generators: these are entered for every transaction there is, and a generator costs more than a
statement's own bookkeeping.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import TYPE_CHECKING

from penstock.database import trouble
from penstock.database.links import Link
from penstock.database.transaction import Transaction
from penstock.telemetry import points

if TYPE_CHECKING:
    from penstock.database.engine import Database


class Block(ABC):
    """A connection for the time of a block, and a transaction on it."""

    __slots__ = ("database", "link", "single", "tx")

    tx: Transaction

    def __init__(self, database: Database, link: Link | None, single: bool = False) -> None:
        self.database = database
        self.link = link or Link(database, brief=True)
        self.single = single

    @abstractmethod
    def begin(self, driver: object) -> object:
        """What the dialect opens on it."""

    def __enter__(self) -> Transaction:
        crossing = self.database.crossing
        if crossing is None:
            return self._enter()
        crossing.enter()
        try:
            return self._enter()
        except BaseException:
            crossing.leave()
            raise

    def _enter(self) -> Transaction:
        driver = self.link.take()
        try:
            tx = self.tx = self.database.on(driver, own=True)
            tx.opened = self.begin(driver)
        except BaseException as error:
            self.link.let_go_after(error)
            raise
        return tx

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.leave(error)
        finally:
            if self.database.crossing is not None:
                self.database.crossing.leave()

    @abstractmethod
    def leave(self, error: BaseException | None) -> None:
        """The end of the block, and perhaps why."""

    def rollback(self) -> None:
        trouble.quietly(self.database.dialect.rollback, self.tx.driver, self.tx.opened)


class Writing(Block):
    """Committed at the end, rolled back by an exception."""

    __slots__ = ()

    def begin(self, driver: object) -> object:
        dialect = self.database.dialect
        return dialect.begin_single(driver) if self.single else dialect.begin(driver)

    def leave(self, error: BaseException | None) -> None:
        tx = self.tx
        if error is not None:
            self.rollback()
            self.link.let_go_after(error)
            return
        try:
            if points.watched:
                tx.reach("commit")
            self.database.dialect.commit(tx.driver, tx.opened, tx.farewells)
        except BaseException as refused:
            self.rollback()
            self.link.let_go_after(refused)
            raise
        self.link.let_go()
        if points.watched:
            tx.reach("committed")
        tx.committed()


class Reading(Block):
    """Rolled back whatever comes: nothing was written."""

    __slots__ = ()

    def begin(self, driver: object) -> object:
        return self.database.dialect.begin_reading(driver)

    def leave(self, error: BaseException | None) -> None:
        self.rollback()
        if error is None:
            self.link.let_go()
        else:
            self.link.let_go_after(error)
