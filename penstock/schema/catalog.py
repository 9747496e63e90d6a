"""Tells a database which tables it has."""

from __future__ import annotations

from sqlalchemy import MetaData
from sqlalchemy.dialects import postgresql

from penstock.database.engine import Database
from penstock.schema import tables


def describe(database: Database) -> MetaData:
    """Define the tables and teach the database their names and column types."""
    metadata = tables.define(database.prefix, database.schema, database.dialect.name)
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    for table in metadata.tables.values():
        name = table.name.removeprefix(database.prefix)
        database.tables.append(name)
        database.column_types[name] = {
            column.name: column.type.compile(dialect=dialect).partition(" COLLATE")[0]
            for column in table.columns
        }
    return metadata
