"""Version 4: limits. Frozen: a change to the tables is a migration of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, Table

from penstock.schema.migrations.making import make
from penstock.schema.migrations.names import Names
from penstock.schema.types import identifier, micros, name, text
from penstock.values.parse import KEY_LENGTH

if TYPE_CHECKING:
    from alembic.operations import Operations

STORAGE = {
    "autovacuum_vacuum_scale_factor": "0",
    "autovacuum_vacuum_threshold": "20000",
    "autovacuum_vacuum_cost_delay": "0",
    "autovacuum_analyze_scale_factor": "0.2",
    "vacuum_truncate": "off",
}


def upgrade(op: Operations, names: Names) -> None:
    """Create the tables; those that are there already are left, so that this can be repeated."""
    metadata = MetaData(schema=names.schema)
    Table(
        f"{names.prefix}limits",
        metadata,
        Column("limit_key", name(KEY_LENGTH), primary_key=True),
        Column("most", Integer, nullable=False),
    )
    slots = Table(
        f"{names.prefix}slots",
        metadata,
        Column("job_id", identifier(), primary_key=True),
        Column("limit_key", name(KEY_LENGTH), primary_key=True),
        Column("token", BigInteger, primary_key=True, autoincrement=False),
        Column("until", micros(), nullable=False),
        Column("place", BigInteger, nullable=False),
        info={"storage": STORAGE},
    )
    Index(f"{names.prefix}slots_key", slots.c.limit_key, slots.c.until)
    Index(f"{names.prefix}slots_until", slots.c.until)
    parked = Table(
        f"{names.prefix}parked",
        metadata,
        Column("limit_key", name(KEY_LENGTH), primary_key=True),
        Column("tier", Integer, primary_key=True, autoincrement=False),
        Column("place", BigInteger, primary_key=True, autoincrement=False),
        Column("job_id", identifier(), primary_key=True),
        Column("queue", name(), nullable=False),
        Column("task", name(), nullable=False),
        Column("demands", text(), nullable=False),
        Column("parked_at", micros(), nullable=False),
        info={"storage": STORAGE},
    )
    Index(f"{names.prefix}parked_job", parked.c.job_id)
    make(op, names, metadata)
