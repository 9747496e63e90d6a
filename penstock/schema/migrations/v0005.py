"""Version 5: signals for single elements of an expand. Frozen: a change to the table is a migration of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Column, MetaData, Table

from penstock.schema.migrations.making import make
from penstock.schema.migrations.names import Names
from penstock.schema.types import identifier, micros, name, path, text

if TYPE_CHECKING:
    from alembic.operations import Operations


def upgrade(op: Operations, names: Names) -> None:
    """Create the table; if it is there already it is left, so that this can be repeated."""
    metadata = MetaData(schema=names.schema)
    Table(
        f"{names.prefix}element_signals",
        metadata,
        Column("run_id", identifier(), primary_key=True),
        Column("name", name(), primary_key=True),
        Column("path", path(), primary_key=True),
        Column("value", text(), nullable=False),
        Column("signalled_at", micros(), nullable=False),
    )
    make(op, names, metadata)
