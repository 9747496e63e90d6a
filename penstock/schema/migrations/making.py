"""Making tables in a migration: what is there already is left, so that it can be repeated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, MetaData, inspect

from penstock.schema.migrations.names import Names
from penstock.schema.types import stored

if TYPE_CHECKING:
    from alembic.operations import Operations


def make(op: Operations, names: Names, metadata: MetaData) -> None:
    """Create tables and their indexes."""
    for table in metadata.sorted_tables:
        op.create_table(
            table.name,
            *[column._copy() for column in table.columns],
            schema=table.schema,
            if_not_exists=True,
            **table.dialect_kwargs,
        )
        if names.dialect == "postgresql" and "storage" in table.info:
            op.execute(stored(table))
        for index in table.indexes:
            index.create(op.get_bind(), checkfirst=True)


def add_columns(op: Operations, names: Names, table: str, columns: Sequence[Column[Any]]) -> None:
    """Add columns that may be null: that costs nothing, and an older version goes on writing rows."""
    name = f"{names.prefix}{table}"
    known: set[str] = set()
    if not op.get_context().as_sql:
        known = {str(column["name"]) for column in inspect(op.get_bind()).get_columns(name, names.schema)}
    for column in columns:
        if column.name not in known:
            op.add_column(name, column, schema=names.schema)
