"""Version 11: tallies of finished attempts and their roll-ups, and what dead letters are grouped by. Frozen, like every
version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, Identity, MetaData, Table
from sqlalchemy.types import BigInteger

from penstock.schema.migrations.making import add_columns, make
from penstock.schema.migrations.names import Names
from penstock.schema.types import micros, name, sequence, word

if TYPE_CHECKING:
    from alembic.operations import Operations

QUEUE_ROWS = {
    "autovacuum_vacuum_scale_factor": "0",
    "autovacuum_vacuum_threshold": "20000",
    "autovacuum_vacuum_cost_delay": "0",
    "autovacuum_analyze_scale_factor": "0.2",
    "vacuum_truncate": "off",
}


def upgrade(op: Operations, names: Names) -> None:
    """Create the tables and the columns; what is there already is left, so that this can be repeated."""
    metadata = MetaData(schema=names.schema)
    _tallies(metadata, names)
    _rollups(metadata, names.prefix)
    make(op, names, metadata)
    add_columns(
        op,
        names,
        "dead_letters",
        [Column("error_type", name()), Column("place", name()), Column("fingerprint", word())],
    )


def _tallies(metadata: MetaData, names: Names) -> None:
    identity = [Identity()] if names.dialect == "postgresql" else []
    Table(
        f"{names.prefix}tallies",
        metadata,
        Column("seq", sequence(), *identity, primary_key=True, autoincrement=True),
        Column("tallied_at", micros(), nullable=False),
        Column("task", name(), nullable=False),
        Column("queue", name(), nullable=False),
        Column("outcome", word(), nullable=False),
        *_sums(),
        info={"storage": QUEUE_ROWS},
        sqlite_autoincrement=True,
    )


def _rollups(metadata: MetaData, prefix: str) -> None:
    Table(
        f"{prefix}rollups",
        metadata,
        Column("span", word(), primary_key=True),
        Column("begins_at", micros(), primary_key=True, autoincrement=False),
        Column("task", name(), primary_key=True),
        Column("queue", name(), primary_key=True),
        Column("outcome", word(), primary_key=True),
        *_sums(),
        info={"storage": {"fillfactor": "50"}},
    )
    Table(
        f"{prefix}queue_samples",
        metadata,
        Column("span", word(), primary_key=True),
        Column("begins_at", micros(), primary_key=True, autoincrement=False),
        Column("queue", name(), primary_key=True),
        Column("available", BigInteger, nullable=False),
        Column("lag", BigInteger, nullable=False),
        info={"storage": {"fillfactor": "50"}},
    )


def _sums() -> list[Column[Any]]:
    return [
        Column(name, BigInteger, nullable=False) for name in ("attempts", "failed", "run_micros", "longest")
    ]
