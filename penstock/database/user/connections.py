"""The caller's transactions: Penstock writes on the caller's connection, and its rows commit when the caller commits.

Every kind of connection is brought to one shape: something with a `cursor()` that takes SQL and parameters. Async
connections are driven from a greenlet, so that the storage functions stay what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.database.database import Database
from penstock.database.error_advice import ignore_errors
from penstock.database.templates import ParamStyle
from penstock.database.transaction import Transaction
from penstock.database.user import cursors, other_database
from penstock.database.user.charsets import Charset
from penstock.errors import ConfigurationError
from penstock.values.lazy_import import Lazy

if TYPE_CHECKING:
    from psycopg import pq
    from sqlalchemy import util as greenlets
else:
    pq, greenlets = Lazy("psycopg.pq"), Lazy("sqlalchemy.util")

IN_TRANSACTION = 1
"""The bit of MySQL's server status that is set while a transaction is open."""
NO_TABLE = ("no such table", "UndefinedTable", "doesn't exist")
"""Error texts, or names of error classes, by which drivers report a missing table."""
KINDS = (
    "a SQLAlchemy Session or Connection (or their async twins), a psycopg, asyncpg, sqlite3 or PyMySQL connection, "
    "or Django's connection"
)


class Alone(NamedTuple):
    """Opens and ends a transaction on a connection that has none."""

    begin: Callable[[], object]
    commit: Callable[[], object]
    rollback: Callable[[], object]


@dataclass(frozen=True, slots=True)
class CallerConnection:
    """The caller's connection in our shape."""

    driver: Any
    style: ParamStyle
    is_async: bool
    backend: str | None
    alone: Alone | None = None
    """Set if the connection is in autocommit mode: then we open a transaction for our statements."""
    look: Callable[[], Alone | None] | None = None
    """Finds `alone` later, on a connection that is not open yet."""
    leads_to: str | None = None
    """The name of its database, or the file, as far as the connection tells."""
    opened: Callable[[], Any] | None = None
    """The driver's own connection, which knows its encoding."""

    @contextmanager
    def kept_together(self) -> Iterator[None]:
        """Write all or nothing inside the block; in the caller's transaction, if one is open."""
        alone = self.alone if self.look is None else self.look()
        charset = Charset(self.opened or (lambda: None), self.backend or "", self._execute)
        try:
            if alone is not None:
                alone.begin()
            charset.change()
            yield
            charset.restore()
            if alone is not None:
                alone.commit()
        except BaseException as error:
            charset.undo()
            # A cancelled caller cannot know whether the transaction began: roll back in any case.
            if alone is not None:
                ignore_errors(alone.rollback)
            if any(words in f"{type(error).__name__}: {error}" for words in NO_TABLE):
                raise ConfigurationError(
                    "connection= leads to where Penstock's tables are not. Pass a connection to the app's own "
                    f"database, with the same schema ({error})"
                ) from error
            raise

    def _execute(self, sql: str) -> None:
        self.driver.cursor().execute(sql)

    def transaction(self, database: Database) -> Transaction:
        if self.backend is not None and self.backend != database.dialect.name:
            raise ConfigurationError(
                f"connection= is a {self.backend} connection, but the app's database is {database.dialect.name}. "
                "Pass a connection to the app's own database."
            )
        tx = Transaction(self.driver, database.dialect, database.renderer(self.style), database.column_types)
        other_database.refuse(tx, database, self.leads_to)
        return tx


def recognize(connection: Any) -> CallerConnection:
    """Recognize the kind of a connection by its class, so that no driver need be installed."""
    connection = _unwrapped(connection)
    found = _recognized(connection)
    return found if found.opened is not None else replace(found, opened=lambda: connection)


def _recognized(connection: Any) -> CallerConnection:
    match _kind(connection):
        case "sqlalchemy":
            return _sqlalchemy(connection)
        case "penstock":
            return CallerConnection(cursors.BlockConnection(connection), "named", True, None)
        case "psycopg":
            driver = cursors.Plain(connection, cursors.psycopg_cursor)
            return _psycopg(connection, driver, connection.execute, is_async=False)
        case "psycopg-async":
            execute = _awaited(connection.execute)
            return _psycopg(connection, cursors.AsyncPsycopg(connection), execute, is_async=True)
        case "asyncpg":
            alone = None if connection.is_in_transaction() else _by_statements(_awaited(connection.execute))
            name = getattr(getattr(connection, "_params", None), "database", None)
            return CallerConnection(
                cursors.Asyncpg(connection), "numbered", True, "postgresql", alone, leads_to=name
            )
        case "sqlite3":
            alone = _by_statements(connection.execute) if _sqlite_is_alone(connection) else None
            driver = cursors.Plain(connection, cursors.sqlite_cursor)
            file = other_database.sqlite_file(connection)
            return CallerConnection(driver, "named", False, "sqlite", alone, leads_to=file)
        case "pymysql":
            alone = Alone(connection.begin, connection.commit, connection.rollback)
            driver = cursors.Plain(connection, cursors.pymysql_cursor)
            alone = alone if _pymysql_is_alone(connection) else None
            name = other_database.text_of(connection.db)
            return CallerConnection(driver, "pyformat", False, "mysql", alone, leads_to=name)
        case "django":
            alone = _django_alone(connection) if connection.get_autocommit() else None
            name = other_database.text_of(connection.settings_dict.get("NAME"))
            opened = partial(getattr, connection, "connection", None)
            ours = cursors.Django(connection)
            return CallerConnection(
                ours, "pyformat", False, connection.vendor, alone, leads_to=name, opened=opened
            )
        case _:
            raise ConfigurationError(f"connection= is a {type(connection).__name__}. Pass {KINDS}.")


def _psycopg(
    connection: Any, driver: Any, execute: Callable[[str], object], *, is_async: bool
) -> CallerConnection:
    alone = _by_statements(execute) if _psycopg_is_alone(connection) else None
    name = connection.info.dbname
    return CallerConnection(driver, "pyformat", is_async, "postgresql", alone, leads_to=name)


def _unwrapped(connection: Any) -> Any:
    """The object behind SQLAlchemy's proxies: the session of the scope, or the connection of the pool."""
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
    if "penstock.async_bridge.AsyncConnection" in names:
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


def _sqlalchemy(connection: Any) -> CallerConnection:
    sync = getattr(connection, "sync_session", None) or getattr(connection, "sync_connection", None)
    inner = sync if sync is not None else connection
    bound = inner.get_bind() if hasattr(inner, "get_bind") else inner
    if not hasattr(inner, "execute"):
        raise ConfigurationError(f"connection= is a {type(connection).__name__}. Pass {KINDS}.")
    backend = bound.dialect.name.replace("mariadb", "mysql")
    return CallerConnection(
        cursors.Sqlalchemy(inner),
        "named",
        sync is not None,
        backend,
        look=lambda: _sqlalchemy_alone(inner),
        leads_to=bound.engine.url.database,
        opened=lambda: _core_connection(inner).connection.driver_connection,
    )


def _core_connection(inner: Any) -> Any:
    """The connection of a session, which opens one if need be."""
    return inner.connection() if hasattr(inner, "get_bind") else inner


def _sqlalchemy_alone(inner: Any) -> Alone | None:
    """Set if the connection is in AUTOCOMMIT. A user's event hook may begin a transaction at the first statement."""
    connection = _core_connection(inner)
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
