"""The tables of jobs, as version 1 made them. Frozen: a change to the tables is a migration of its own."""

from __future__ import annotations

from typing import Literal

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Identity,
    Index,
    Integer,
    MetaData,
    Table,
)
from sqlalchemy import (
    text as sql,
)

from penstock.schema.types import identifier, micros, name, path, sequence, text, word
from penstock.values.parse import KEY_LENGTH

HOT_ROWS = {
    "fillfactor": "50",
    "autovacuum_vacuum_scale_factor": "0",
    "autovacuum_vacuum_threshold": "20000",
    "autovacuum_vacuum_cost_delay": "0",
    "autovacuum_analyze_scale_factor": "0.2",
    "vacuum_truncate": "off",
}
QUEUE_ROWS = {k: v for k, v in HOT_ROWS.items() if k != "fillfactor"}


def define(metadata: MetaData, prefix: str, dialect: str) -> None:
    """Add them."""
    _jobs(metadata, prefix)
    _job_states(metadata, prefix)
    _ready(metadata, prefix, dialect)
    _waiting_and_held(metadata, prefix)
    _history(metadata, prefix)
    _notes(metadata, prefix)
    _processes(metadata, prefix)


def _jobs(metadata: MetaData, prefix: str) -> None:
    jobs = Table(
        f"{prefix}jobs",
        metadata,
        Column("id", identifier(), primary_key=True),
        Column("task", name(), nullable=False),
        Column("queue", name(), nullable=False),
        Column("priority", Integer, nullable=False),
        Column("payload", text(), nullable=False),
        Column("options", text()),
        Column("max_crashes", Integer),
        Column("job_key", name(KEY_LENGTH)),
        Column("origin_id", identifier()),
        Column("run_id", identifier()),
        Column("node", name()),
        Column("path", path()),
        Column("created_at", micros(), nullable=False),
    )
    is_step = sql("run_id IS NOT NULL")
    Index(
        f"{prefix}jobs_step",
        jobs.c.run_id,
        jobs.c.node,
        jobs.c.path,
        unique=True,
        postgresql_where=is_step,
        sqlite_where=is_step,
    )
    Table(
        f"{prefix}job_keys",
        metadata,
        Column("task", name(), primary_key=True),
        Column("job_key", name(KEY_LENGTH), primary_key=True),
        Column("job_id", identifier(), nullable=False),
    )


def _job_states(metadata: MetaData, prefix: str) -> None:
    Table(
        f"{prefix}job_states",
        metadata,
        Column("job_id", identifier(), primary_key=True),
        Column("status", word(), nullable=False),
        Column("token", BigInteger),
        Column("process_id", identifier()),
        Column("generation", BigInteger, nullable=False),
        Column("retry_count", Integer, nullable=False),
        Column("crash_count", Integer, nullable=False),
        Column("cancel_requested", Boolean(create_constraint=False), nullable=False),
        Column("reason", word()),
        Column("due_at", micros()),
        Column("claimed_at", micros()),
        Column("finished_at", micros()),
        info={"storage": HOT_ROWS},
    )


def _ready(metadata: MetaData, prefix: str, dialect: str) -> None:
    one_index = dialect == "postgresql"
    identity = [Identity()] if one_index else []
    # In a key of several columns one that counts by itself would come first, and lanes would not be found by it.
    counts: Literal["auto", True] = "auto" if one_index else True
    availabilities = Table(
        f"{prefix}availabilities",
        metadata,
        Column("queue", name(), nullable=False, primary_key=one_index),
        Column("tier", Integer, nullable=False, primary_key=one_index, autoincrement=False),
        Column("seq", sequence(), *identity, primary_key=True, autoincrement=counts),
        Column("job_id", identifier(), nullable=False),
        Column("task", name(), nullable=False),
        info={"storage": QUEUE_ROWS},
        sqlite_autoincrement=True,
    )
    if not one_index:
        Index(
            f"{prefix}availabilities_order",
            availabilities.c.queue,
            availabilities.c.tier,
            availabilities.c.seq,
        )


def _waiting_and_held(metadata: MetaData, prefix: str) -> None:
    Table(
        f"{prefix}scheduled",
        metadata,
        Column("due_at", micros(), primary_key=True, autoincrement=False),
        Column("job_id", identifier(), primary_key=True),
        Column("queue", name(), nullable=False),
        Column("tier", Integer, nullable=False),
        Column("task", name(), nullable=False),
        info={"storage": QUEUE_ROWS},
    )
    Table(
        f"{prefix}claims",
        metadata,
        Column("token", BigInteger, primary_key=True, autoincrement=False),
        Column("process_id", identifier(), nullable=False),
        Column("job_ids", text(), nullable=False),
        Column("claimed_at", micros(), nullable=False),
        info={"storage": QUEUE_ROWS},
    )


def _history(metadata: MetaData, prefix: str) -> None:
    Table(
        f"{prefix}executions",
        metadata,
        Column("job_id", identifier(), primary_key=True),
        Column("generation", BigInteger, primary_key=True, autoincrement=False),
        Column("process_id", identifier()),
        Column("started_at", micros(), nullable=False),
        Column("finished_at", micros(), nullable=False),
        Column("outcome", word(), nullable=False),
        Column("output", text()),
        Column("error_type", name()),
        Column("error", text()),
        Column("traceback", text()),
    )
    dead = Table(
        f"{prefix}dead_letters",
        metadata,
        Column("job_id", identifier(), primary_key=True),
        Column("task", name(), nullable=False),
        Column("queue", name(), nullable=False),
        Column("reason", word(), nullable=False),
        Column("failed_at", micros(), nullable=False),
    )
    Index(f"{prefix}dead_letters_failed_at", dead.c.failed_at)


def _notes(metadata: MetaData, prefix: str) -> None:
    Table(
        f"{prefix}markers",
        metadata,
        Column("idempotency_key", identifier(), primary_key=True),
        Column("name", name(), primary_key=True),
        Column("value", text(), nullable=False),
        Column("created_at", micros(), nullable=False),
    )
    Table(
        f"{prefix}progress",
        metadata,
        Column("job_id", identifier(), primary_key=True),
        Column("fraction", Float, nullable=False),
        Column("message", text(), nullable=False),
        Column("updated_at", micros(), nullable=False),
        info={"storage": {"fillfactor": "50"}},
    )


def _processes(metadata: MetaData, prefix: str) -> None:
    Table(
        f"{prefix}processes",
        metadata,
        Column("id", identifier(), primary_key=True),
        Column("host", name(), nullable=False),
        Column("pid", Integer, nullable=False),
        Column("role", word(), nullable=False),
        Column("supervisor_id", identifier()),
        Column("details", text(), nullable=False),
        Column("started_at", micros(), nullable=False),
        Column("heartbeat_at", micros(), nullable=False),
        info={"storage": HOT_ROWS},
    )
    Table(
        f"{prefix}cancellations",
        metadata,
        Column("process_id", identifier(), primary_key=True),
        Column("job_id", identifier(), primary_key=True),
    )
    Table(
        f"{prefix}leases",
        metadata,
        Column("name", name(), primary_key=True),
        Column("holder", identifier(), nullable=False),
        Column("expires_at", micros(), nullable=False),
    )
