"""Version 12: stacks of processes, asked for and answered. Frozen, like every version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Column, MetaData, Table

from penstock.schema.migrations.making import make
from penstock.schema.migrations.names import Names
from penstock.schema.types import identifier, micros, name, text

if TYPE_CHECKING:
    from alembic.operations import Operations


def upgrade(op: Operations, names: Names) -> None:
    """Create the table; if it is there already it is left, so that this can be repeated."""
    metadata = MetaData(schema=names.schema)
    Table(
        f"{names.prefix}stack_dumps",
        metadata,
        Column("process_id", identifier(), primary_key=True),
        Column("asked_at", micros(), nullable=False),
        Column("asked_by", name(), nullable=False),
        Column("answered_at", micros()),
        Column("stacks", text()),
    )
    make(op, names, metadata)
