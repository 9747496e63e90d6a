"""The tables of reconcilers, as version 1 made them. Frozen: a change to the tables is a migration of its own."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, Integer, MetaData, Table

from penstock.schema.types import identifier, micros, name, text
from penstock.values.parse import KEY_LENGTH


def define(metadata: MetaData, prefix: str) -> None:
    """Add the tables of reconcilers."""
    Table(
        f"{prefix}row_failures",
        metadata,
        Column("reconciler", name(), primary_key=True),
        Column("row_key", name(KEY_LENGTH), primary_key=True),
        Column("attempts", Integer, nullable=False),
        Column("error_type", name()),
        Column("error", text()),
        Column("traceback", text()),
        Column("failed_at", micros(), nullable=False),
    )
    Table(
        f"{prefix}reconciler_counts",
        metadata,
        Column("reconciler", name(), primary_key=True),
        Column("process_id", identifier(), primary_key=True),
        Column("processed", BigInteger, nullable=False),
        Column("failed", BigInteger, nullable=False),
        Column("lost", BigInteger, nullable=False),
        Column("rate", Float, nullable=False),
        Column("updated_at", micros(), nullable=False),
    )
