"""SQLAlchemy's engine and pool for a database of ours: for users' tables and statements, and for schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.pool import StaticPool

from penstock.database.gate import write_through_the_gate

if TYPE_CHECKING:
    from penstock.database.engine import Database
    from penstock.database.sqlite import Sqlite


def make_engine(database: Database, size: int) -> Engine:
    """An engine whose connections are in the state that all of ours are in."""
    url, dialect = database.url, database.dialect
    # Every transaction is ended by us, so a connection comes back clean: one journey less for each.
    options = dialect.engine_options(url, database.settings) | {"pool_reset_on_return": None}
    if dialect.in_memory:
        options["poolclass"] = StaticPool
    else:
        options |= {"pool_size": size, "max_overflow": -1, "pool_timeout": 30}
    engine = create_engine(url.as_sqlalchemy(), **options)
    event.listen(engine, "do_connect", lambda _dialect, _record, args, named: dialect.connect(*args, **named))
    event.listen(engine, "connect", lambda driver, _record: dialect.connected(driver))
    event.listen(engine, "checkout", lambda driver, _record, _proxy: dialect.checked_out(driver))
    if dialect.name == "sqlite":
        write_through_the_gate(engine, cast("Sqlite", dialect))
    return engine
