"""SQLAlchemy connections to SQLite, too, take the writers' queue and say BEGIN IMMEDIATE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, event

from penstock.database.trouble import quietly

if TYPE_CHECKING:
    from penstock.database.sqlite import Sqlite

PATIENCE = "penstock_patience"
"""The execution option of a connection that says how long its transaction waits for its turn, in seconds."""


def write_through_the_gate(engine: Engine, dialect: Sqlite) -> None:
    """Whatever becomes of a transaction or its connection, the next writer gets its turn."""

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
            # SQLAlchemy takes a refused commit for the end and would pool the connection as it is.
            quietly(dialect.rollback, driver, None)
            raise

    @event.listens_for(engine, "rollback")
    def rollback(connection: Connection) -> None:
        if not connection.invalidated:
            dialect.rollback(connection.connection.driver_connection, None)

    @event.listens_for(engine, "close")
    def close(driver: Any, _record: object) -> None:
        quietly(dialect.rollback, driver, None)
