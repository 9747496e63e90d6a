"""A transaction of ours on PostgreSQL, while it is open."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any

import psycopg

from penstock.database.wire import Answer, IdLoader, Wire

IDLE = psycopg.pq.TransactionStatus.IDLE


class OpenTransaction:
    """Goes by the wire; once it is lent to SQLAlchemy, through psycopg's cursors.

    What is sent in one journey is a transaction by itself. So BEGIN is sent when somebody waits before the end, and
    not before: a transaction of one journey has neither BEGIN nor COMMIT, and one without statements costs nothing.
    """

    __slots__ = ("_begun", "_block", "_lent", "_pipeline", "_unsent", "driver", "wire")

    def __init__(self, driver: Any, wire: Wire, block: bool) -> None:
        self.driver = driver
        self.wire = wire
        self._block = block
        self._begun = False
        self._unsent: list[Answer] = []
        self._lent: ExitStack | None = None
        self._pipeline: psycopg.Pipeline | None = None

    def execute(self, sql: str, values: Sequence[object]) -> Any:
        if self._lent is not None:
            return self._with_cursors(sql, values)
        answer = self.wire.write(sql, values)
        if self._begun:
            self.wire.post(answer)
        else:
            self._unsent.append(answer)
        return answer

    def _with_cursors(self, sql: str, values: Sequence[object]) -> Any:
        cursor = psycopg.RawCursor(self.driver)
        cursor.adapters.register_loader("uuid", IdLoader)
        return cursor.execute(sql, values)

    def send(self) -> None:
        """What was executed so far is on its way, and will not be all."""
        if self._unsent and self._block:
            self.wire.send("BEGIN")
            self._begun = True
        self._post()

    def _post(self) -> None:
        unsent, self._unsent = self._unsent, []
        for answer in unsent:
            self.wire.post(answer)

    def lend(self) -> None:
        if self._lent is None:
            self.send()
            self.wire.leave()
            if self.wire.pgconn.transaction_status == IDLE:
                self.driver.autocommit = True  # we begin and commit, not the driver
            self.driver.patience = self.wire.patience
            self._lent = ExitStack()
            self._pipeline = self._lent.enter_context(self.driver.pipeline())
            if self._block and not self._begun:
                self.driver.execute("BEGIN")
                self._begun = True

    def wait(self) -> None:
        if self._pipeline is not None:
            self._pipeline.sync()
        else:
            self.send()
            self.wire.wait()

    def wait_for_answers(self) -> None:
        """Wait for answers, though not for the commit, where each journey is a transaction by itself."""
        if self._block or self._lent is not None:
            self.wait()
        else:
            self.send()
            self.wire.wait_for_answers()

    def commit(self) -> None:
        self._post()
        if self._begun:
            self.execute("COMMIT", ())
        if self._lent is not None:
            self._return()
        self.wire.leave()

    def rollback(self) -> None:
        if self.wire.broken:
            self.driver.close()
            return
        self._unsent.clear()
        with suppress(psycopg.Error):
            if self._lent is not None:
                self._return()
            self.wire.leave()
        if self.wire.pgconn.transaction_status != IDLE:
            self.wire.send("ROLLBACK")
        self.wire.leave()

    def _return(self) -> None:
        lent, self._lent, self._pipeline = self._lent, None, None
        if lent is not None:
            lent.close()
