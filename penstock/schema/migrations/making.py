"""Making tables in a migration: what is there already is left, so that it can be repeated."""

from __future__ import annotations

from alembic.operations import Operations
from sqlalchemy import MetaData

from penstock.schema.migrations.names import Names
from penstock.schema.types import stored


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
