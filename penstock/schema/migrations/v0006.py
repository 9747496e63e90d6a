"""Version 6: labels of runs. Frozen: a change to the table is a migration of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Column, Index, MetaData, Table

from penstock.schema.migrations.making import make
from penstock.schema.migrations.names import Names
from penstock.schema.types import identifier, name

if TYPE_CHECKING:
    from alembic.operations import Operations


def upgrade(op: Operations, names: Names) -> None:
    """Create the table; if it is there already it is left, so that this can be repeated."""
    metadata = MetaData(schema=names.schema)
    labels = Table(
        f"{names.prefix}run_labels",
        metadata,
        Column("label", name(), primary_key=True),
        Column("run_id", identifier(), primary_key=True),
    )
    Index(f"{names.prefix}run_labels_run", labels.c.run_id)
    make(op, names, metadata)
