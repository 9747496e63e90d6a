"""Version 2: the trail of what people did. Frozen: a change to the table is a migration of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Column, Index, MetaData, Table

from penstock.schema.migrations.making import make
from penstock.schema.migrations.names import Names
from penstock.schema.types import identifier, micros, name, text, word

if TYPE_CHECKING:
    from alembic.operations import Operations


def upgrade(op: Operations, names: Names) -> None:
    """Create the table; if it is there already it is left, so that this can be repeated."""
    metadata = MetaData(schema=names.schema)
    audits = Table(
        f"{names.prefix}audits",
        metadata,
        Column("id", identifier(), primary_key=True),
        Column("acted_at", micros(), nullable=False),
        Column("actor", name(), nullable=False),
        Column("why", text(), nullable=False),
        Column("act", word(), nullable=False),
        Column("subject_kind", word(), nullable=False),
        Column("subject_id", identifier()),
        Column("run_id", identifier()),
        Column("detail", text(), nullable=False),
    )
    Index(f"{names.prefix}audits_acted_at", audits.c.acted_at, audits.c.id)
    Index(f"{names.prefix}audits_subject", audits.c.subject_id)
    Index(f"{names.prefix}audits_run", audits.c.run_id)
    make(op, names, metadata)
