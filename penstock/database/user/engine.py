"""SQLAlchemy's engine and pool for a database of ours: for users' tables and statements, and for schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import StaticPool

from penstock.database.error_advice import ignore_errors

if TYPE_CHECKING:
    from penstock.database.database import Database
    from penstock.database.sqlite import Sqlite


# SQLAlchemy connections to SQLite, too, take the writers' queue and say BEGIN IMMEDIATE.

PATIENCE = "penstock_patience"
"""The execution option of a connection that says how long its transaction waits for its turn, in seconds."""


def write_through_the_gate(engine: Engine, dialect: Sqlite) -> None:
    """Enter the gate at the begin of a transaction, and leave it when the transaction or its connection ends."""

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        patience = connection.get_execution_options().get(PATIENCE)
        dialect.begin(connection.connection.driver_connection, patience)

    @event.listens_for(engine, "commit")
    def commit(connection: Connection) -> None:
        driver = connection.connection.driver_connection
        try:
            dialect.commit(driver, None)
        except BaseException:
            # SQLAlchemy treats a refused commit as the end and would return the open transaction to the pool.
            ignore_errors(dialect.rollback, driver, None)
            raise

    @event.listens_for(engine, "rollback")
    def rollback(connection: Connection) -> None:
        if not connection.invalidated:
            dialect.rollback(connection.connection.driver_connection, None)

    @event.listens_for(engine, "close")
    def close(driver: Any, _record: object) -> None:
        ignore_errors(dialect.rollback, driver, None)


def make_engine(database: Database, size: int) -> Engine:
    """An engine whose connections are in the state that all of ours are in."""
    url, dialect = database.url, database.dialect
    # Every transaction is ended by us, so a connection comes back clean: one round trip less for each.
    options = dialect.engine_options(url, database.settings) | {"pool_reset_on_return": None}
    if dialect.in_memory:
        options["poolclass"] = StaticPool
    else:
        options |= {"pool_size": size, "max_overflow": -1, "pool_timeout": 30}
    engine = create_engine(url.as_sqlalchemy(), **options)
    event.listen(engine, "do_connect", lambda _dialect, _record, args, named: dialect.connect(*args, **named))
    event.listen(engine, "connect", lambda driver, _record: dialect.connected(driver))
    event.listen(engine, "checkout", lambda driver, _record, _proxy: dialect.on_checkout(driver))
    if dialect.name == "sqlite":
        write_through_the_gate(engine, cast("Sqlite", dialect))
    return engine
