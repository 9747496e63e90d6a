"""Version 10: labels and followers of jobs, and controls of queues. Frozen, like every version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Column, Index, MetaData, Table

from penstock.schema.migrations.making import make
from penstock.schema.migrations.names import Names
from penstock.schema.types import identifier, micros, name, text, word

if TYPE_CHECKING:
    from alembic.operations import Operations


def upgrade(op: Operations, names: Names) -> None:
    """Create the tables; what is there already is left, so that this can be repeated."""
    metadata = MetaData(schema=names.schema)
    labels = Table(
        f"{names.prefix}job_labels",
        metadata,
        Column("label", name(), primary_key=True),
        Column("job_id", identifier(), primary_key=True),
    )
    Index(f"{names.prefix}job_labels_job", labels.c.job_id)
    Table(
        f"{names.prefix}job_followers",
        metadata,
        Column("job_id", identifier(), primary_key=True),
        Column("id", identifier(), primary_key=True),
        Column("outcome", word(), nullable=False),
        Column("spec", text(), nullable=False),
        Column("created_at", micros(), nullable=False),
    )
    Table(
        f"{names.prefix}queue_controls",
        metadata,
        Column("kind", word(), primary_key=True),
        Column("name", name(), primary_key=True),
        Column("value", text()),
        Column("revision", BigInteger, nullable=False),
        Column("changed_at", micros(), nullable=False),
        Column("changed_by", name(), nullable=False),
        Column("why", text(), nullable=False),
    )
    make(op, names, metadata)
