"""A transaction that users write in. It belongs to the process that began it.

A child that is forked inside has the same socket: whatever it sent there, and be it the ROLLBACK of a block that it
leaves, would be done to its parent's transaction, and the parent would go on as if nothing had happened. So a child
refuses its statements, and never ends it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NoReturn

from sqlalchemy import Connection, event, text

from penstock.database.transaction import Transaction
from penstock.errors import DatabaseError, PenstockError
from penstock.values.fork_safety import FORKED, refuse_copy, register_reset_after_fork

if TYPE_CHECKING:
    from penstock.database.database import Database


READABLE_DATES = "SET LOCAL datestyle = ISO"
"""psycopg reads no other style."""
_inherited: list[ExitStack] = []
"""Blocks of the parent process, kept here because dropping them would end their transactions."""


class UserConnection:
    """A connection that user code has for the time of a block."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        register_reset_after_fork(self)

    def reset_after_fork(self) -> None:
        event.listen(self.connection, "before_cursor_execute", _refuse)


@contextmanager
def open_for_user(database: Database, patience: float | None) -> Iterator[tuple[Connection, Transaction]]:
    """A SQLAlchemy connection in a transaction, and our own view of the same transaction."""
    process = os.getpid()
    with ExitStack() as block:
        block.enter_context(database.fork_gate or nullcontext())
        connection = block.enter_context(database.engine.connect())
        block.enter_context(connection.execution_options(penstock_patience=patience).begin())
        if database.dialect.is_pooled:
            connection.exec_driver_sql(READABLE_DATES)  # a connection that is no pool's begins with that
        lent = UserConnection(connection)
        try:
            yield lent.connection, database.on(connection.connection.driver_connection)
        finally:
            if os.getpid() != process:
                _inherited.append(block.pop_all())
        refuse_copy(process)


def _refuse(*_: Any) -> NoReturn:
    raise DatabaseError(FORKED)


# A SQLAlchemy connection for user code: SQL may be plain text, and only the block ends the transaction.

ENDING = re.compile(
    r"\s*(COMMIT|END|ABORT|BEGIN|START\s+TRANSACTION|ROLLBACK(?!\s+((WORK|TRANSACTION)\s+)?TO\b))\b",
    re.IGNORECASE,
)
"""Statements that end a transaction or begin another."""
COMMITTING = re.compile(
    r"\s*((CREATE|DROP)(?!\s+(OR\s+REPLACE\s+)?TEMPORARY\b)|ALTER|TRUNCATE|RENAME|GRANT|REVOKE|(UN)?LOCK)\b",
    re.IGNORECASE,
)
"""MySQL and MariaDB commit before and after these, without being asked."""


def taking_text(connection: Connection) -> Connection:
    """Accept SQL as plain text too, with parameters by name or in the driver's style."""
    execute = connection.execute

    def lenient(statement: Any, parameters: Any = None, **options: Any) -> Any:
        if not isinstance(statement, str):
            return execute(statement, parameters, **options)
        by_position = isinstance(parameters, tuple | list) and not (
            parameters and isinstance(parameters[0], Mapping)
        )
        if by_position:
            return connection.exec_driver_sql(statement, tuple(parameters), **options)
        return execute(text(statement), parameters, **options)

    connection.execute = lenient  # type: ignore[method-assign]
    return connection


class Idleness:
    """Measures the longest time between two statements of user code on a connection."""

    def __init__(self, connection: Connection) -> None:
        self.longest = 0.0
        self._since = time.monotonic()
        event.listen(connection, "before_cursor_execute", self._used)
        event.listen(connection, "after_cursor_execute", self._left)

    def _used(self, *_: object) -> None:
        self.longest = max(self.longest, time.monotonic() - self._since)

    def _left(self, *_: object) -> None:
        self._since = time.monotonic()


def refuse_commits(connection: Connection) -> Connection:
    """Refuse commits and rollbacks of user code: only the block ends its transaction."""

    def refuse() -> NoReturn:
        raise PenstockError(
            "the block commits when it ends, with the job: call neither commit() nor rollback() inside. To undo "
            "everything, raise an exception; to undo a part, use connection.begin_nested()"
        )

    def look(_connection: Connection, _cursor: object, statement: str, *_: object) -> None:
        if ENDING.match(statement):
            refuse()
        if connection.dialect.name in ("mysql", "mariadb") and COMMITTING.match(statement):
            raise PenstockError(
                f"{statement.split()[0].upper()} commits on MySQL and MariaDB, but the block commits when it ends, "
                "with the job: execute it outside, on another connection"
            )

    connection.commit = connection.rollback = refuse  # type: ignore[method-assign]
    event.listen(connection, "before_cursor_execute", look)
    return connection
