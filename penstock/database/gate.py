"""SQLAlchemy connections to SQLite, too, take the writers' queue and say BEGIN IMMEDIATE."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine, event

from penstock.database.dialect import Dialect
from penstock.database.trouble import quietly


def write_through_the_gate(engine: Engine, dialect: Dialect) -> None:
    """Whatever becomes of a transaction or its connection, the next writer gets its turn."""

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        dialect.begin(connection.connection.driver_connection)

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
