"""Version 1: the first schema."""

from __future__ import annotations

from alembic.operations import Operations
from sqlalchemy import MetaData

from penstock.schema.migrations.names import Names
from penstock.schema.migrations.v0001 import jobs, rows, runs
from penstock.schema.types import stored


def upgrade(op: Operations, names: Names) -> None:
    """Create everything; what is there already is left, so that it can be repeated."""
    metadata = MetaData(schema=names.schema)
    jobs.define(metadata, names.prefix, names.dialect)
    runs.define(metadata, names.prefix)
    rows.define(metadata, names.prefix)
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
