"""A transaction of ours on PostgreSQL, while it is open."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any

import psycopg

from penstock.database.dialect import Farewell
from penstock.database.wire import IdLoader, Wire

IDLE = psycopg.pq.TransactionStatus.IDLE


class OpenTransaction:
    """Goes by the wire; once it is lent to SQLAlchemy, through psycopg's cursors."""

    __slots__ = ("_begin", "_block", "_lent", "_pipeline", "driver", "wire")

    def __init__(self, driver: Any, wire: Wire, begin: str | None) -> None:
        self.driver = driver
        self.wire = wire
        self._block = begin is not None
        self._begin = begin
        """Sent with the first statement: a transaction without any costs nothing."""
        self._lent: ExitStack | None = None
        self._pipeline: psycopg.Pipeline | None = None

    def execute(self, sql: str, values: Sequence[object]) -> Any:
        begin, self._begin = self._begin, None
        if self._lent is not None:
            return self._with_cursors(begin, sql, values)
        if begin is not None:
            self.wire.send(begin, ())
        return self.wire.send(sql, values)

    def _with_cursors(self, begin: str | None, sql: str, values: Sequence[object]) -> Any:
        if begin is not None:
            self.driver.execute(begin)
        cursor = psycopg.RawCursor(self.driver)
        cursor.adapters.register_loader("uuid", IdLoader)
        return cursor.execute(sql, values)

    def lend(self) -> None:
        if self._lent is None:
            self.wire.leave()
            if self.wire.pgconn.transaction_status == IDLE:
                self.driver.autocommit = True  # we begin and commit, not the driver
            self._lent = ExitStack()
            self._pipeline = self._lent.enter_context(self.driver.pipeline())
        begin, self._begin = self._begin, None
        if begin is not None:
            self.driver.execute(begin)

    def wait(self) -> None:
        if self._pipeline is not None:
            self._pipeline.sync()
        else:
            self.wire.wait()

    def commit(self, farewells: Sequence[Farewell]) -> None:
        if self._block and self._begin is None:
            self.execute("COMMIT", ())
        self._begin = None
        if self._lent is not None:
            self._return()
        elif farewells and not self._block:
            self.wire.part()
        for sql, parameters in farewells:
            self.wire.send(sql, list(parameters.values()))
        self.wire.leave()

    def rollback(self) -> None:
        if self.wire.broken:
            self.driver.close()
            return
        self._begin = None
        with suppress(psycopg.Error):
            if self._lent is not None:
                self._return()
            self.wire.leave()
        if self.wire.pgconn.transaction_status != IDLE:
            self.wire.send("ROLLBACK", ())
        self.wire.leave()

    def _return(self) -> None:
        lent, self._lent, self._pipeline = self._lent, None, None
        if lent is not None:
            lent.close()
