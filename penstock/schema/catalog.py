"""Tells a database which tables it has."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from sqlalchemy import MetaData
from sqlalchemy.dialects import postgresql

from penstock.database.engine import Database
from penstock.schema import tables


@dataclass(frozen=True, slots=True)
class Catalog:
    """Tables, and the types of their columns by table; apps that name them alike share one, and nobody changes it."""

    metadata: MetaData
    column_types: dict[str, dict[str, str]]


def describe(database: Database) -> MetaData:
    """Define the tables and teach the database their names and column types."""
    catalog = _catalog(database.prefix, database.schema, database.dialect.name)
    database.tables = list(catalog.column_types)
    database.column_types = catalog.column_types
    return catalog.metadata


@lru_cache(maxsize=16)
def _catalog(prefix: str, schema: str | None, dialect_name: str) -> Catalog:
    metadata = tables.define(prefix, schema, dialect_name)
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    column_types = {
        table.name.removeprefix(prefix): {
            column.name: column.type.compile(dialect=dialect).partition(" COLLATE")[0]
            for column in table.columns
        }
        for table in metadata.tables.values()
    }
    return Catalog(metadata, column_types)
