"""Applies migrations, safely when many processes start at once; also prints them as SQL.

The version lives in a table of its own. Where DDL is transactional, the whole upgrade is one transaction under a
transaction-level lock; MySQL commits every DDL statement by itself, so there each step can be repeated.
"""

from __future__ import annotations

import hashlib
import io
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Column, Connection, Integer, MetaData, Table, func, inspect, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateTable

from penstock.database import error_advice
from penstock.database.database import Database
from penstock.errors import ConfigurationError, DatabaseUnavailable
from penstock.schema.migrations import (
    v0001,
    v0002,
    v0003,
    v0004,
    v0005,
    v0006,
    v0007,
    v0008,
    v0009,
    v0010,
    v0011,
    v0012,
    v0013,
    v0014,
)
from penstock.schema.migrations.names import Names
from penstock.schema.version import LATEST
from penstock.values.lazy_import import Lazy

if TYPE_CHECKING:
    from alembic import migration
    from alembic import operations as verbs
    from alembic.operations import Operations
else:
    migration, verbs = Lazy("alembic.migration"), Lazy("alembic.operations")


# Alembic is imported only when there is something to migrate: it takes an eighth of a worker's memory.

LOGGERS = ("alembic.runtime.migration", "alembic.runtime.plugins")


def operations(**context: Any) -> verbs.Operations:
    """The operations that migrations are written in, for a connection or for a dialect alone."""
    with _quiet():
        return verbs.Operations(migration.MigrationContext.configure(**context))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Alembic's messages about its dialect and plugins out of the application's log."""
    thread = threading.get_ident()

    def of_others(record: logging.LogRecord) -> bool:
        return record.thread != thread or record.levelno > logging.INFO

    loggers = [logging.getLogger(name) for name in LOGGERS]
    for logger in loggers:
        logger.addFilter(of_others)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(of_others)


Upgrade = Callable[["Operations", Names], None]

MIGRATIONS: tuple[Upgrade, ...] = (
    v0001.upgrade,
    v0002.upgrade,
    v0003.upgrade,
    v0004.upgrade,
    v0005.upgrade,
    v0006.upgrade,
    v0007.upgrade,
    v0008.upgrade,
    v0009.upgrade,
    v0010.upgrade,
    v0011.upgrade,
    v0012.upgrade,
    v0013.upgrade,
    v0014.upgrade,
)

MADE_ALREADY = ((1050,), (1060,), (1061,), (1062,))
"""MySQL: this table, column, index, row is there."""
MADE_ALREADY_STATES = frozenset({"42P06", "42P07", "42701", "42710", "23505"})
"""PostgreSQL's protocol, without its advisory locks: the same, and a schema."""
MOST_MADE = 200
"""How often one upgrade tries again after that: more than there are tables, columns, indexes and versions."""


def version_table(database: Database) -> Table:
    return Table(
        f"{database.prefix}schema_versions",
        MetaData(schema=database.schema),
        Column("version", Integer, primary_key=True, autoincrement=False),
        Column("installed_at", BigInteger, nullable=False),
    )


def installed(connection: Connection, versions: Table) -> int:
    """The version found in the database; 0 when there is none."""
    if not inspect(connection).has_table(versions.name, schema=versions.schema):
        return 0
    return int(connection.execute(select(func.coalesce(func.max(versions.c.version), 0))).scalar_one())


def look(database: Database) -> int:
    """The same by SQLAlchemy, after the plain query has failed."""
    try:
        with _connected(database) as connection:
            return installed(connection, version_table(database))
    except DBAPIError as error:
        raise database.explained(error) from error


def _connected(database: Database) -> Connection:
    """Connect. A driver that refuses the URL itself raises no database error: explain that too."""
    try:
        return database.engine.connect()
    except RuntimeError as error:  # PyMySQL cannot send a password without TLS
        error_advice.raise_as(database.explained(error), error)
    except (TypeError, ValueError, OSError) as error:
        if database.is_passing(error):
            raise database.explained(error) from error
        where = database.settings.shown_url
        said = database.settings.hidden(f"{type(error).__name__}: {error}")
        raise ConfigurationError(
            f"no connection can be made by {where} ({said}). Correct what it says behind the ?"
        ) from error


def upgrade(database: Database) -> int:
    """Apply the missing migrations; returns how many."""
    versions = version_table(database)
    for again in reversed(range(MOST_MADE)):
        try:
            return database.with_retries(lambda: _upgrade(database, versions))
        except DBAPIError as error:
            if not again or not _is_made_already(database, error):
                raise
    raise AssertionError("unreachable")


def _is_made_already(database: Database, error: DBAPIError) -> bool:
    """True if another process made the table or index between our look and our statement."""
    cause = error_advice.cause_of(error)
    if database.settings.profile == "distributed":
        return getattr(cause, "sqlstate", None) in MADE_ALREADY_STATES
    return database.dialect.name == "mysql" and cause.args[:1] in MADE_ALREADY


def _upgrade(database: Database, versions: Table) -> int:
    with database.engine.connect() as connection, alone(database, connection):
        if database.schema:
            connection.execute(text(f'CREATE SCHEMA IF NOT EXISTS "{database.schema}"'))
        versions.create(connection, checkfirst=True)
        found = installed(connection, versions)
        op = operations(connection=connection)
        for number in range(found + 1, LATEST + 1):
            MIGRATIONS[number - 1](op, _names(database))
            _note(database, connection, versions, number)
        connection.commit()
    return LATEST - found


@contextmanager
def alone(database: Database, connection: Connection) -> Iterator[None]:
    """One upgrader at a time, until it has committed.

    SQLite has its write lock, PostgreSQL a lock that ends with the transaction. On MySQL every DDL statement ends
    the transaction, so the lock is the connection's. Such a lock is not known to the other nodes of a cluster, and
    a proxy may lose it: there it only saves work, and a process that finds made what it was about to make looks again.
    """
    name = hashlib.md5(f"{database.url.database}.{database.qualified('schema')}".encode()).hexdigest()
    match database.dialect.name:
        case "postgresql" if database.settings.profile == "standard":
            connection.execute(text("SELECT pg_advisory_xact_lock(hashtext(:name))"), {"name": name})
            yield
        case "mysql":
            _take(database, connection, name)
            try:
                yield
            finally:
                _give_back(connection, name)
        case _:
            yield


def _take(database: Database, connection: Connection, name: str) -> None:
    """Wait for the lock. If the server ends the wait early, it answers without an error, and the lock is not ours."""
    settings = database.settings
    ask, asked = text("SELECT GET_LOCK(:name, :seconds)"), {"name": name, "seconds": settings.lock_timeout}
    enough = time.monotonic() + settings.statement_timeout * 3
    while connection.execute(ask, asked).scalar() != 1:
        if time.monotonic() > enough:
            where = settings.shown_url
            raise DatabaseUnavailable(
                f"The tables at {where} cannot be upgraded now: another process is upgrading them. "
                "Wait until it is done, or end its connection.",
                where,
            )


def _give_back(connection: Connection, name: str) -> None:
    """Release the lock; if that fails, the connection is closed, which ends the lock too."""
    try:
        connection.rollback()
        connection.execute(text("SELECT RELEASE_LOCK(:name)"), {"name": name})
    except DBAPIError:
        connection.invalidate()


def _names(database: Database) -> Names:
    return Names(database.prefix, database.schema, database.dialect.name)


def _note(database: Database, connection: Connection, versions: Table, number: int) -> None:
    clock = text(
        database.dialect.now.replace("%", "%%")
        if database.dialect.style == "pyformat"
        else database.dialect.now
    )
    now = connection.execute(select(clock)).scalar_one()
    taken = select(versions.c.version).where(versions.c.version == number)
    if connection.execute(taken).first() is None:
        connection.execute(versions.insert().values(version=number, installed_at=now))


def as_sql(database: Database, since: int = 0) -> str:
    """The migrations as SQL, for those who run it by hand."""
    versions = version_table(database)
    dialect = database.engine.dialect
    if database.dialect.name == "mysql":
        # Only the server knows whether it is MySQL or MariaDB; their collations differ.
        with suppress(DBAPIError), database.engine.connect():
            pass
    out = io.StringIO()
    op = operations(dialect=dialect, opts={"as_sql": True, "output_buffer": out, "literal_binds": True})
    with redirect_stdout(out):
        if database.schema:
            op.execute(f'CREATE SCHEMA IF NOT EXISTS "{database.schema}"')
        if since == 0:
            out.write(f"{CreateTable(versions).compile(dialect=dialect)};\n\n".lstrip())
        for number in range(since + 1, LATEST + 1):
            MIGRATIONS[number - 1](op, _names(database))
            now = database.dialect.now
            op.execute(f"INSERT INTO {database.qualified('schema_versions')} VALUES ({number}, {now})")
    return out.getvalue()
