"""Transactions that belong to somebody else: write on the caller's connection, commit when the caller does.

Every kind of connection is brought to one shape: something with a `cursor()` that takes SQL and parameters. Async
connections are driven from a greenlet, so that the storage functions stay what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.database.as_text import as_text
from penstock.database.engine import Database
from penstock.database.template import ParamStyle
from penstock.database.transaction import Transaction
from penstock.database.trouble import quietly
from penstock.errors import ConfigurationError
from penstock.later import Later

if TYPE_CHECKING:
    import sqlalchemy
    from psycopg import pq, rows
    from sqlalchemy import util as greenlets

    from penstock.database import text_cursor
else:
    pq, rows, text_cursor = Later("psycopg.pq"), Later("psycopg.rows"), Later("penstock.database.text_cursor")
    sqlalchemy, greenlets = Later("sqlalchemy"), Later("sqlalchemy.util")

IN_TRANSACTION = 1
"""What MySQL's server status says while a transaction is open."""
KINDS = (
    "a SQLAlchemy Session or Connection (or their async twins), a psycopg, asyncpg, sqlite3 or PyMySQL connection, "
    "or Django's connection"
)


class Alone(NamedTuple):
    """How to open and end a transaction on a connection that has none."""

    begin: Callable[[], object]
    commit: Callable[[], object]
    rollback: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Foreign:
    """The caller's connection in our shape."""

    driver: Any
    style: ParamStyle
    is_async: bool
    backend: str | None
    alone: Alone | None = None
    """Set where the connection commits every statement by itself: then we must keep ours together."""

    @contextmanager
    def kept_together(self) -> Iterator[None]:
        """All that is written inside, or none of it; in the caller's transaction, if they have opened one."""
        if self.alone is None:
            yield
            return
        try:
            self.alone.begin()
            yield
            self.alone.commit()
        except BaseException:
            # Whoever is cancelled does not hear whether it has begun: the connection must be as it was.
            quietly(self.alone.rollback)
            raise

    def transaction(self, database: Database) -> Transaction:
        if self.backend is not None and self.backend != database.dialect.name:
            raise ConfigurationError(
                f"connection= is a {self.backend} connection, but the app's database is {database.dialect.name}. "
                "Pass a connection to the app's own database."
            )
        return Transaction(
            self.driver, database.dialect, database.renderer(self.style), database.column_types
        )


def recognize(connection: Any) -> Foreign:
    """Which kind of connection this is; by its class, so that no driver need be installed."""
    connection = _unwrapped(connection)
    names = {f"{cls.__module__}.{cls.__qualname__}" for cls in type(connection).__mro__}
    match _kind(names, connection):
        case "sqlalchemy":
            return _sqlalchemy(connection)
        case "psycopg":
            alone = _by_statements(connection.execute) if _psycopg_is_alone(connection) else None
            return Foreign(_Plain(connection, _psycopg_cursor), "pyformat", False, "postgresql", alone)
        case "psycopg-async":
            alone = _by_statements(_awaited(connection.execute)) if _psycopg_is_alone(connection) else None
            return Foreign(_Awaiting(connection), "pyformat", True, "postgresql", alone)
        case "asyncpg":
            alone = None if connection.is_in_transaction() else _by_statements(_awaited(connection.execute))
            return Foreign(_Asyncpg(connection), "numbered", True, "postgresql", alone)
        case "sqlite3":
            alone = _by_statements(connection.execute) if _sqlite_is_alone(connection) else None
            return Foreign(_Plain(connection, _sqlite_cursor), "named", False, "sqlite", alone)
        case "pymysql":
            alone = Alone(connection.begin, connection.commit, connection.rollback)
            inside = not connection.get_autocommit() or connection.server_status & IN_TRANSACTION
            driver = _Plain(connection, _pymysql_cursor)
            return Foreign(driver, "pyformat", False, "mysql", None if inside else alone)
        case "django":
            alone = _django_alone(connection) if connection.get_autocommit() else None
            return Foreign(connection, "pyformat", False, connection.vendor, alone)
        case _:
            raise ConfigurationError(f"connection= is a {type(connection).__name__}. Pass {KINDS}.")


def _unwrapped(connection: Any) -> Any:
    """What stands behind SQLAlchemy's proxies: a session of the scope, a connection lent by the pool."""
    match type(connection).__name__:
        case "async_scoped_session":
            return connection.registry()
        case "_ConnectionFairy":
            return connection.driver_connection
    return connection


def _psycopg_is_alone(connection: Any) -> bool:
    return bool(connection.autocommit) and connection.info.transaction_status == pq.TransactionStatus.IDLE


def _sqlite_is_alone(connection: Any) -> bool:
    by_itself = connection.isolation_level is None or getattr(connection, "autocommit", None) is True
    return by_itself and not connection.in_transaction


def _by_statements(execute: Callable[[str], object]) -> Alone:
    return Alone(lambda: execute("BEGIN"), lambda: execute("COMMIT"), lambda: execute("ROLLBACK"))


def _awaited(execute: Callable[[str], Any]) -> Callable[[str], object]:
    return lambda sql: greenlets.await_only(execute(sql))


def _django_alone(connection: Any) -> Alone:
    def end(how: Callable[[], object]) -> None:
        how()
        connection.set_autocommit(True)

    return Alone(
        lambda: connection.set_autocommit(False),
        lambda: end(connection.commit),
        lambda: end(connection.rollback),
    )


def _kind(names: set[str], connection: Any) -> str:
    starts = {name.split(".")[0] for name in names} - {"builtins", "typing", "abc"}
    if "sqlalchemy" in starts:
        return "sqlalchemy"
    if not hasattr(connection, "cursor"):  # such as a cursor of one of these drivers
        return ""
    if "psycopg" in starts:
        return "psycopg-async" if any("Async" in name for name in names) else "psycopg"
    if "asyncpg" in starts:
        return "asyncpg" if hasattr(connection, "is_in_transaction") else ""
    if "sqlite3" in starts or "sqlite3.Connection" in names:
        return "sqlite3"
    if "pymysql" in starts:
        return "pymysql"
    return "django" if hasattr(connection, "vendor") and hasattr(connection, "ensure_connection") else ""


def _sqlalchemy(connection: Any) -> Foreign:
    sync = getattr(connection, "sync_session", None) or getattr(connection, "sync_connection", None)
    inner = sync if sync is not None else connection
    bound = inner.get_bind() if hasattr(inner, "get_bind") else inner
    if not hasattr(inner, "execute"):
        raise ConfigurationError(f"connection= is a {type(connection).__name__}. Pass {KINDS}.")
    return Foreign(
        _Sqlalchemy(inner), "named", sync is not None, bound.dialect.name.replace("mariadb", "mysql")
    )


@dataclass(frozen=True, slots=True)
class _Plain:
    """A driver's connection whose cursors give rows as tuples, whatever the caller likes for their own."""

    connection: Any
    opened: Callable[[Any], Any]

    def cursor(self) -> Any:
        return self.opened(self.connection)


def _psycopg_cursor(connection: Any) -> Any:
    return connection.cursor(row_factory=rows.tuple_row)


def _pymysql_cursor(connection: Any) -> Any:
    return connection.cursor(text_cursor.TupleCursor if connection.use_unicode else text_cursor.TextCursor)


def _sqlite_cursor(connection: Any) -> Any:
    cursor = connection.cursor()
    cursor.row_factory = None if connection.text_factory is str else as_text
    return cursor


class _Cursor:
    """A cursor's shape: `execute`, `executemany`, `fetchall`, `rowcount`."""

    rowcount = -1
    _rows: Sequence[Any] = ()

    def execute(self, sql: str, parameters: Mapping[str, object] | None = None) -> None: ...

    def executemany(self, sql: str, rows: Sequence[Mapping[str, object]]) -> None:
        for row in rows:
            self.execute(sql, row)

    def fetchall(self) -> Sequence[Any]:
        return self._rows


class _Sqlalchemy:
    """Through SQLAlchemy itself, so that any driver of the caller's will do."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def cursor(self) -> _Cursor:
        connection = self.connection

        class Cursor(_Cursor):
            def execute(self, sql: str, parameters: Mapping[str, object] | None = None) -> None:
                self._keep(connection.execute(sqlalchemy.text(sql), dict(parameters or {})))

            def executemany(self, sql: str, rows: Sequence[Mapping[str, object]]) -> None:
                self._keep(connection.execute(sqlalchemy.text(sql), [dict(row) for row in rows]))

            def _keep(self, result: Any) -> None:
                self.rowcount = result.rowcount
                self._rows = [tuple(row) for row in result] if result.returns_rows else []

        return Cursor()


class _Awaiting:
    """psycopg's async connection, waited for from inside a greenlet."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def cursor(self) -> _Cursor:
        connection = self.connection

        class Cursor(_Cursor):
            def execute(self, sql: str, parameters: Mapping[str, object] | None = None) -> None:
                cursor = _psycopg_cursor(connection)
                greenlets.await_only(cursor.execute(sql, parameters))
                self.rowcount = cursor.rowcount
                self._rows = greenlets.await_only(cursor.fetchall()) if cursor.description else []

        return Cursor()


class _Asyncpg:
    """asyncpg, whose parameters are numbered in the order in which a statement names them."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def cursor(self) -> _Cursor:
        connection = self.connection

        class Cursor(_Cursor):
            def execute(self, sql: str, parameters: Mapping[str, object] | None = None) -> None:
                self._rows = [
                    tuple(row)
                    for row in greenlets.await_only(connection.fetch(sql, *(parameters or {}).values()))
                ]
                self.rowcount = len(self._rows)

        return Cursor()
