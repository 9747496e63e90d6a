"""The first schema."""

from __future__ import annotations

from alembic.operations import Operations
from sqlalchemy import MetaData


def upgrade(op: Operations, metadata: MetaData) -> None:
    for table in metadata.sorted_tables:
        op.create_table(
            table.name,
            *[c._copy() for c in table.columns],
            schema=table.schema,
            if_not_exists=True,
            **table.dialect_kwargs,
        )
        for index in table.indexes:
            index.create(op.get_bind(), checkfirst=True)
