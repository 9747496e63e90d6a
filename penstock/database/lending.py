"""A transaction that users write in. It belongs to the process that began it.

A child that is forked inside has the same socket: whatever it sent there, and be it the ROLLBACK of a block that it
leaves, would be done to its parent's transaction, and the parent would go on as if nothing had happened. So in a child
its statements are refused, and its end is nobody's business there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NoReturn

from sqlalchemy import Connection, event

from penstock.database.transaction import Transaction
from penstock.errors import DatabaseError
from penstock.values.forks import FORKED, forget_after_fork, refuse_copy

if TYPE_CHECKING:
    from penstock.database.engine import Database

_inherited: list[ExitStack] = []
"""Blocks of a parent. They are not let go of either: that would end them."""


class Lent:
    """A connection that a user has, for as long as the block lasts."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        forget_after_fork(self)

    def forget(self) -> None:
        event.listen(self.connection, "before_cursor_execute", _refuse)


@contextmanager
def lend(database: Database, patience: float | None) -> Iterator[tuple[Connection, Transaction]]:
    """A SQLAlchemy connection in a transaction, and our own view of the same transaction."""
    process = os.getpid()
    with ExitStack() as block:
        block.enter_context(database.crossing or nullcontext())
        connection = block.enter_context(database.engine.connect())
        block.enter_context(connection.execution_options(penstock_patience=patience).begin())
        lent = Lent(connection)
        try:
            yield lent.connection, database.on(connection.connection.driver_connection)
        finally:
            if os.getpid() != process:
                _inherited.append(block.pop_all())
        refuse_copy(process)


def _refuse(*_: Any) -> NoReturn:
    raise DatabaseError(FORKED)
