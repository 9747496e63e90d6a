"""Tables of limits: what there is a limit on, who counts against it, and who waits for it.

All three are empty where no task has limits, and shrink to nothing when such tasks rest.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, Table

from penstock.schema.types import identifier, micros, name, text
from penstock.values.lengths import KEY_LENGTH


def define(metadata: MetaData, prefix: str, storage: dict[str, str]) -> None:
    """Add the tables of limits."""
    Table(
        f"{prefix}limits",
        metadata,
        Column("limit_key", name(KEY_LENGTH), primary_key=True),
        Column("most", Integer, nullable=False),
    )
    slots = Table(
        f"{prefix}slots",
        metadata,
        Column("job_id", identifier(), primary_key=True),
        Column("limit_key", name(KEY_LENGTH), primary_key=True),
        Column("token", BigInteger, primary_key=True, autoincrement=False),
        Column("until", micros(), nullable=False),
        Column("place", BigInteger, nullable=False),
        info={"storage": storage},
    )
    Index(f"{prefix}slots_key", slots.c.limit_key, slots.c.until)
    Index(f"{prefix}slots_until", slots.c.until)
    parked = Table(
        f"{prefix}parked",
        metadata,
        Column("limit_key", name(KEY_LENGTH), primary_key=True),
        Column("tier", Integer, primary_key=True, autoincrement=False),
        Column("place", BigInteger, primary_key=True, autoincrement=False),
        Column("job_id", identifier(), primary_key=True),
        Column("queue", name(), nullable=False),
        Column("task", name(), nullable=False),
        Column("demands", text(), nullable=False),
        Column("parked_at", micros(), nullable=False),
        info={"storage": storage},
    )
    Index(f"{prefix}parked_job", parked.c.job_id)
