"""Version 9: schedules and their ticks, and the nominal time of a run. Frozen, like every version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, Table

from penstock.schema.migrations.making import add_columns, make
from penstock.schema.migrations.names import Names
from penstock.schema.types import identifier, micros, name, text, word

if TYPE_CHECKING:
    from alembic.operations import Operations


def upgrade(op: Operations, names: Names) -> None:
    """Create the tables and the column; what is there already is left, so that this can be repeated."""
    metadata = MetaData(schema=names.schema)
    _schedules(metadata, names.prefix)
    _ticks(metadata, names.prefix)
    make(op, names, metadata)
    add_columns(op, names, "runs", [Column("scheduled_for", micros())])


def _schedules(metadata: MetaData, prefix: str) -> None:
    schedules = Table(
        f"{prefix}schedules",
        metadata,
        Column("id", identifier(), primary_key=True),
        *_said(),
        *_state_columns(),
        info={"storage": {"fillfactor": "70"}},
    )
    Index(f"{prefix}schedules_name", schedules.c.name, unique=True)
    Index(f"{prefix}schedules_due", schedules.c.due_at, schedules.c.id)


def _ticks(metadata: MetaData, prefix: str) -> None:
    ticks = Table(
        f"{prefix}schedule_ticks",
        metadata,
        Column("schedule_id", identifier(), primary_key=True),
        Column("nominal_at", micros(), primary_key=True, autoincrement=False),
        Column("kind", word(), primary_key=True),
        Column("outcome", word(), nullable=False),
        Column("target_id", identifier()),
        Column("first_at", micros(), nullable=False),
        Column("number", Integer, nullable=False),
        Column("lateness", BigInteger),
        Column("decided_at", micros(), nullable=False),
    )
    Index(f"{prefix}schedule_ticks_decided", ticks.c.decided_at)


def _said() -> list[Column[Any]]:
    """The columns that define a schedule."""
    return [
        Column("name", name(), nullable=False),
        Column("kind", word(), nullable=False),
        Column("target", name(), nullable=False),
        Column("definition", name(64)),
        Column("payload", text(), nullable=False),
        Column("options", text(), nullable=False),
        Column("cron", name()),
        Column("every", BigInteger),
        Column("zone", name(), nullable=False),
        Column("missed", word(), nullable=False),
        Column("missed_window", BigInteger),
        Column("missed_limit", Integer, nullable=False),
        Column("overlap", word(), nullable=False),
        Column("jitter", BigInteger, nullable=False),
        Column("start_at", micros()),
        Column("end_at", micros()),
    ]


def _state_columns() -> list[Column[Any]]:
    """The columns for the state of a schedule."""
    return [
        Column("next_at", micros()),
        Column("due_at", micros()),
        Column("waiting_at", micros()),
        Column("last_id", identifier()),
        Column("backfills", text()),
        Column("paused_at", micros()),
        Column("paused_by", name()),
        Column("pause_why", text()),
        Column("source", word(), nullable=False),
        Column("revision", word(), nullable=False),
        Column("superseded", text(), nullable=False),
        Column("declared_at", micros()),
        Column("orphaned_at", micros()),
        Column("trouble", text()),
        Column("created_at", micros(), nullable=False),
        Column("updated_at", micros(), nullable=False),
    ]
