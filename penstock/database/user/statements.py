"""SQLAlchemy statements inside a transaction of ours, for tables that are the user's own.

The hot statements are text; a user's table is known only as SQLAlchemy objects. Here those run on the very connection
our transaction is open on: SQLAlchemy compiles and converts, the transaction stays ours. Errors come out as the
driver's, so that the one place which knows what may be tried again understands them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

from sqlalchemy import (
    Boolean,
    Column,
    ColumnElement,
    Connection,
    CursorResult,
    Enum,
    Executable,
    Integer,
    String,
    Uuid,
    any_,
    bindparam,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.engine import Row
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.pool import PoolProxiedConnection
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.operators import OperatorType
from sqlalchemy.sql.visitors import InternalTraversal

from penstock.database.database import Database
from penstock.database.transaction import Transaction

Values = Mapping[str, Any]


class Statements:
    """Runs SQLAlchemy statements in one transaction."""

    def __init__(self, database: Database, tx: Transaction) -> None:
        self.tx = tx
        self.clock_shift = database.clock_shift
        self.dialect = database.engine.dialect
        self._driver: Any = self.dialect.dbapi
        self._now: int | None = None
        self._asked: Any = None
        self.read_at = 0.0
        """The monotonic time just before the database's clock was read."""
        self._borrowed = _Borrowed(tx)
        tx.dialect.use_driver_cursors(tx.opened)
        proxied = cast(PoolProxiedConnection, self._borrowed)
        if getattr(database.engine.dialect, "server_version_info", None) is None:
            database.engine.connect().close()  # SQLAlchemy has not yet asked the server for its features
        # The engine's events are about transactions, and this one is not SQLAlchemy's: it need not listen.
        self._connection = Connection(database.engine, proxied, False, False, False)
        # Neither begins a transaction nor rolls one back: that is not SQLAlchemy's to decide here.
        self._connection._transaction = cast(Any, _Ours())

    def rows(self, statement: Executable, values: Values | None = None) -> Sequence[Row[Any]]:
        """Execute and read everything."""
        answer = self._execute(statement, values, wait=True)
        try:
            return answer.all()
        except DBAPIError as error:
            raise (error.orig or error) from None

    def is_unreadable(self, error: Exception) -> bool:
        """True if the database answered, but a value could not be converted to the user's or the driver's type."""
        if not isinstance(error, self._driver.Error):
            return not isinstance(error, SQLAlchemyError)
        unsaid = isinstance(error, self._driver.DataError) and getattr(error, "sqlstate", "") is None
        return unsaid or str(error).startswith("Could not decode")

    def count(self, statement: Executable, values: Values | None = None) -> int:
        """Execute a write and wait; the number of rows it touched."""
        return self._execute(statement, values, wait=True).rowcount

    def run(self, statement: Executable, values: Values | Sequence[Values] | None = None) -> None:
        """Execute a write, or many of one shape, without waiting where the database can do that."""
        self._execute(statement, values, wait=False)

    def now(self, not_older: float | None = None) -> int:
        """The database's clock, in microseconds since 1970: one instant for everything that is done here.

        `not_older`: read it again if the last reading is older than this, in seconds.
        """
        stale = not_older is not None and time.monotonic() - self.read_at > not_older
        if self._now is None or stale:
            if self._asked is None:
                self.ask_now()
            self._now = int(self._asked.fetchall()[0][0])
            self._asked = None
        return self._now

    def ask_now(self) -> None:
        """Read the clock along with the next statement that is waited for: one round trip less."""
        self.read_at = time.monotonic()
        self._asked = self.tx.start("SELECT {now}")

    def _execute(self, statement: Executable, values: Any, *, wait: bool) -> CursorResult[Any]:
        self.tx.reach_statement()
        self._borrowed.waits = wait
        try:
            return self._connection.execute(statement, values)
        except DBAPIError as error:
            raise (error.orig or error) from None


class _Ours:
    """A transaction that SQLAlchemy did not begin, in the form that it expects."""

    is_active = True


class _Borrowed:
    """A connection as SQLAlchemy's pool would lend it."""

    is_valid = True

    def __init__(self, tx: Transaction) -> None:
        self.tx = tx
        self.waits = True
        self.dbapi_connection = self.driver_connection = tx.driver

    def cursor(self, *_: Any, **__: Any) -> Any:
        cursor = self.tx.driver.cursor()
        return _WaitingCursor(cursor, self.tx) if self.waits and self.tx.opened is not None else cursor

    def invalidate(self, *_: Any, **__: Any) -> None:
        """Does nothing: the owner of the connection finds out from the error."""

    def close(self) -> None:
        """Does nothing: the connection is not SQLAlchemy's to close."""

    def __getattr__(self, name: str) -> Any:
        """Pass on attributes of the driver's connection: after an error SQLAlchemy asks whether it is still open."""
        return getattr(self.tx.driver, name)


class _WaitingCursor:
    """Waits for the answer of each statement, which SQLAlchemy reads at once."""

    def __init__(self, cursor: Any, tx: Transaction) -> None:
        self._cursor = cursor
        self._tx = tx

    def execute(self, *args: Any) -> None:
        self._cursor.execute(*args)
        self._tx.dialect.wait(self._tx.opened)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


# `column IN (...)` for a user's column, in the fastest form of each database.
#
# PostgreSQL takes the list as one parameter: the statement stays the same for every length, so it is compiled,
# parsed and
# planned once. Elsewhere, and for types that make no arrays, it is an IN with as many parameters as there are values.


def among(column: Column[Any], values: Sequence[Any] | str) -> ColumnElement[bool]:
    """Condition: the column has one of these values, or of those that are passed under this name at execution."""
    if isinstance(values, str):
        listed = column.in_(bindparam(values, expanding=True))
        array = bindparam(values, type_=ARRAY(column.type))
    else:
        listed = column.in_(values)
        array = bindparam(None, list(values), type_=ARRAY(column.type))
    return _Among(listed, column == any_(array)) if _makes_arrays(column) else listed


class _Among(ColumnElement[bool]):
    """An `IN` condition in two forms."""

    __visit_name__ = "among"
    inherit_cache = True
    _traverse_internals = [
        ("listed", InternalTraversal.dp_clauseelement),
        ("together", InternalTraversal.dp_clauseelement),
    ]
    type = Boolean()

    def __init__(self, listed: ColumnElement[bool], together: ColumnElement[bool]) -> None:
        self.listed = listed
        self.together = together

    def self_group(self, against: OperatorType | None = None) -> _Among:
        """As it is. A truth value would be compared with 1 where there are none, and no index be used for that."""
        return self


@compiles(_Among)
def _list(element: _Among, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(element.listed, **options)


@compiles(_Among, "postgresql")
def _array_of(element: _Among, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(element.together, **options)


def _makes_arrays(column: Column[Any]) -> bool:
    return isinstance(column.type, Integer | String | Uuid) and not isinstance(column.type, Enum)
