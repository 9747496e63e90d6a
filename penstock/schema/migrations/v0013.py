"""Version 13: the lines of pipelines with a limit on their runs, headers of signals. Frozen, like every version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Boolean, Column, Identity, Index, Integer, MetaData, Table

from penstock.schema.migrations.making import add_columns, make
from penstock.schema.migrations.names import Names
from penstock.schema.types import identifier, name, sequence, text

if TYPE_CHECKING:
    from alembic.operations import Operations


def upgrade(op: Operations, names: Names) -> None:
    """Create the tables and the columns; what is there already is left, so that this can be repeated."""
    metadata = MetaData(schema=names.schema)
    _lines(metadata, names.prefix, names.dialect)
    make(op, names, metadata)
    for table in ("signals", "element_signals"):
        add_columns(op, names, table, [Column("headers", text())])


def _lines(metadata: MetaData, prefix: str, dialect: str) -> None:
    Table(
        f"{prefix}run_lines",
        metadata,
        Column("pipeline", name(), primary_key=True),
        Column("most", Integer, nullable=False),
        Column("lock_count", BigInteger),
    )
    identity = [Identity()] if dialect == "postgresql" else []
    places = Table(
        f"{prefix}run_places",
        metadata,
        Column("seq", sequence(), *identity, primary_key=True, autoincrement=True),
        Column("run_id", identifier(), nullable=False),
        Column("pipeline", name(), nullable=False),
        Column("most", Integer, nullable=False),
        Column("admitted", Boolean(create_constraint=False), nullable=False),
        sqlite_autoincrement=True,
    )
    Index(f"{prefix}run_places_run", places.c.run_id, unique=True)
    Index(f"{prefix}run_places_order", places.c.pipeline, places.c.admitted, places.c.seq)
