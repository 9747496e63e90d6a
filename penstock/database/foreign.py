"""Transactions that belong to somebody else: write on the caller's connection, commit when the caller does.

Every kind of connection is brought to one shape: something with a `cursor()` that takes SQL and parameters. Async
connections are driven from a greenlet, so that the storage functions stay what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.database import foreign_cursors as cursors
from penstock.database.engine import Database
from penstock.database.template import ParamStyle
from penstock.database.transaction import Transaction
from penstock.database.trouble import quietly
from penstock.errors import ConfigurationError
from penstock.lazy import Lazy

if TYPE_CHECKING:
    from psycopg import pq
    from sqlalchemy import util as greenlets
else:
    pq, greenlets = Lazy("psycopg.pq"), Lazy("sqlalchemy.util")

IN_TRANSACTION = 1
"""What MySQL's server status says while a transaction is open."""
NO_TABLE = ("no such table", "UndefinedTable", "doesn't exist")
"""What drivers say, or call the error."""
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
    look: Callable[[], Alone | None] | None = None
    """Where that can only be seen on a connection that is yet to be opened."""

    @contextmanager
    def kept_together(self) -> Iterator[None]:
        """All that is written inside, or none of it; in the caller's transaction, if they have opened one."""
        alone = self.alone if self.look is None else self.look()
        try:
            if alone is not None:
                alone.begin()
            yield
            if alone is not None:
                alone.commit()
        except BaseException as error:
            # Whoever is cancelled does not hear whether it has begun: the connection must be as it was.
            if alone is not None:
                quietly(alone.rollback)
            if any(words in f"{type(error).__name__}: {error}" for words in NO_TABLE):
                raise ConfigurationError(
                    "connection= leads to where Penstock's tables are not. Pass a connection to the app's own "
                    f"database, with the same schema ({error})"
                ) from error
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
    match _kind(connection):
        case "sqlalchemy":
            return _sqlalchemy(connection)
        case "penstock":
            return Foreign(cursors.Apart(connection), "named", True, None)
        case "psycopg":
            alone = _by_statements(connection.execute) if _psycopg_is_alone(connection) else None
            return Foreign(
                cursors.Plain(connection, cursors.psycopg_cursor), "pyformat", False, "postgresql", alone
            )
        case "psycopg-async":
            alone = _by_statements(_awaited(connection.execute)) if _psycopg_is_alone(connection) else None
            return Foreign(cursors.Awaiting(connection), "pyformat", True, "postgresql", alone)
        case "asyncpg":
            alone = None if connection.is_in_transaction() else _by_statements(_awaited(connection.execute))
            return Foreign(cursors.Asyncpg(connection), "numbered", True, "postgresql", alone)
        case "sqlite3":
            alone = _by_statements(connection.execute) if _sqlite_is_alone(connection) else None
            return Foreign(cursors.Plain(connection, cursors.sqlite_cursor), "named", False, "sqlite", alone)
        case "pymysql":
            alone = Alone(connection.begin, connection.commit, connection.rollback)
            driver = cursors.Plain(connection, cursors.pymysql_cursor)
            return Foreign(
                driver, "pyformat", False, "mysql", alone if _pymysql_is_alone(connection) else None
            )
        case "django":
            alone = _django_alone(connection) if connection.get_autocommit() else None
            return Foreign(cursors.Django(connection), "pyformat", False, connection.vendor, alone)
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


def _pymysql_is_alone(connection: Any) -> bool:
    return bool(connection.get_autocommit()) and not connection.server_status & IN_TRANSACTION


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


def _kind(connection: Any) -> str:
    names = {f"{cls.__module__}.{cls.__qualname__}" for cls in type(connection).__mro__}
    starts = {name.split(".")[0] for name in names} - {"builtins", "typing", "abc"}
    if "sqlalchemy" in starts:
        return "sqlalchemy"
    if "penstock.async_connection.AsyncConnection" in names:
        return "penstock"
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
    backend = bound.dialect.name.replace("mariadb", "mysql")
    return Foreign(
        cursors.Sqlalchemy(inner), "named", sync is not None, backend, look=lambda: _sqlalchemy_alone(inner)
    )


def _sqlalchemy_alone(inner: Any) -> Alone | None:
    """Whether its isolation level is AUTOCOMMIT. Who begins by an event of their own has done so after a statement."""
    connection = inner.connection() if hasattr(inner, "get_bind") else inner
    if _driver_is_alone(connection.connection):
        connection.exec_driver_sql("SELECT 1")
        if _driver_is_alone(connection.connection):
            return _by_statements(connection.exec_driver_sql)
    return None


def _driver_is_alone(pooled: Any) -> bool:
    driver = pooled.driver_connection
    match _kind(driver):
        case "psycopg" | "psycopg-async":
            return _psycopg_is_alone(driver)
        case "asyncpg":  # SQLAlchemy begins only when there is something to execute
            level = getattr(pooled.dbapi_connection, "isolation_level", None)
            return level == "autocommit" and not driver.is_in_transaction()
        case "sqlite3":
            return _sqlite_is_alone(driver)
        case "pymysql":
            return _pymysql_is_alone(driver)
    return False
