"""The tables: of jobs and processes here, the others in modules of their own.

The payload row stays as it is once its job has started; a narrow row beside it says where the job stands; a narrow
queue holds what is ready. No index covers a column that a heartbeat or a change of status moves; no foreign keys on hot
tables; nothing that is delayed or finished is ever walked over by a claim.
"""

from __future__ import annotations

from typing import Any, Literal

from sqlalchemy import (
    DDL,
    BigInteger,
    Boolean,
    Column,
    Float,
    Identity,
    Index,
    Integer,
    MetaData,
    Table,
    event,
)
from sqlalchemy import text as sql

from penstock.schema import run_tables, schedule_tables
from penstock.schema.types import identifier, micros, name, path, sequence, stored, text, word
from penstock.values.parse import KEY_LENGTH

# Tables of limits: the keys, the slots in use, and the jobs that wait.
#
# All three are empty where no task has limits, and shrink to nothing when such tasks rest.


def define_limits(metadata: MetaData, prefix: str, storage: dict[str, str]) -> None:
    """Add the tables of limits."""
    Table(
        f"{prefix}limits",
        metadata,
        Column("limit_key", name(KEY_LENGTH), primary_key=True),
        Column("most", Integer, nullable=False),
        Column("lock_count", BigInteger),
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


# The table of the audit trail.


def define_audit(metadata: MetaData, prefix: str) -> None:
    """Add the trail of acts. `run_id`: of an act on a step's job, its run; of one on a run, the run itself."""
    audits = Table(
        f"{prefix}audits",
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
    Index(f"{prefix}audits_acted_at", audits.c.acted_at, audits.c.id)
    Index(f"{prefix}audits_subject", audits.c.subject_id)
    Index(f"{prefix}audits_run", audits.c.run_id)


# Tables of reconcilers: errors of rows, and counts per process.


def define_reconcilers(metadata: MetaData, prefix: str) -> None:
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


# Counts of finished attempts, and how long queues were: for charts.


def _sums() -> list[Column[Any]]:
    return [
        Column(name, BigInteger, nullable=False) for name in ("attempts", "failed", "run_micros", "longest")
    ]


def define_rollups(metadata: MetaData, prefix: str, dialect: str, storage: dict[str, str]) -> None:
    """Add the tables of tallies and roll-ups."""
    identity = [Identity()] if dialect == "postgresql" else []
    Table(
        f"{prefix}tallies",
        metadata,
        Column("seq", sequence(), *identity, primary_key=True, autoincrement=True),
        Column("tallied_at", micros(), nullable=False),
        Column("task", name(), nullable=False),
        Column("queue", name(), nullable=False),
        Column("outcome", word(), nullable=False),
        *_sums(),
        info={"storage": storage},
        sqlite_autoincrement=True,
    )
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


HOT_ROWS = {
    "fillfactor": "50",
    "autovacuum_vacuum_scale_factor": "0",
    "autovacuum_vacuum_threshold": "20000",
    "autovacuum_vacuum_cost_delay": "0",
    "autovacuum_analyze_scale_factor": "0.2",
    "vacuum_truncate": "off",
}
QUEUE_ROWS = {k: v for k, v in HOT_ROWS.items() if k != "fillfactor"}


def define(prefix: str, schema: str | None, dialect: str) -> MetaData:
    """All tables, named `<prefix><table>`; queue tables take the shape that suits the database."""
    metadata = MetaData(schema=schema)
    _jobs(metadata, prefix)
    _job_states(metadata, prefix)
    _ready(metadata, prefix, dialect)
    _waiting_and_held(metadata, prefix)
    _history(metadata, prefix)
    _notes(metadata, prefix)
    _processes(metadata, prefix)
    _labels_followers_controls(metadata, prefix)
    run_tables.define(metadata, prefix, dialect)
    define_reconcilers(metadata, prefix)
    define_audit(metadata, prefix)
    schedule_tables.define(metadata, prefix)
    define_limits(metadata, prefix, QUEUE_ROWS)
    define_rollups(metadata, prefix, dialect, QUEUE_ROWS)
    for table in metadata.tables.values():
        if "storage" in table.info:
            keep = DDL(stored(table)).execute_if(dialect="postgresql")  # type: ignore[no-untyped-call]
            event.listen(table, "after_create", keep)
    return metadata


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
    # MySQL needs an auto-increment column first in a key; then lanes could not be found by that key.
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
        Column("error_type", name()),
        Column("place", name()),
        Column("fingerprint", word()),
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
        Column("reap_after", micros()),
        info={"storage": HOT_ROWS},
    )
    Table(
        f"{prefix}cancellations",
        metadata,
        Column("process_id", identifier(), primary_key=True),
        Column("job_id", identifier(), primary_key=True),
    )
    Table(
        f"{prefix}stack_dumps",
        metadata,
        Column("process_id", identifier(), primary_key=True),
        Column("asked_at", micros(), nullable=False),
        Column("asked_by", name(), nullable=False),
        Column("answered_at", micros()),
        Column("stacks", text()),
    )
    Table(
        f"{prefix}leases",
        metadata,
        Column("name", name(), primary_key=True),
        Column("holder", identifier(), nullable=False),
        Column("expires_at", micros(), nullable=False),
    )


def _labels_followers_controls(metadata: MetaData, prefix: str) -> None:
    """Add tables that most installations leave empty. A job without labels and followers has no rows here."""
    labels = Table(
        f"{prefix}job_labels",
        metadata,
        Column("label", name(), primary_key=True),
        Column("job_id", identifier(), primary_key=True),
    )
    Index(f"{prefix}job_labels_job", labels.c.job_id)
    Table(
        f"{prefix}job_followers",
        metadata,
        Column("job_id", identifier(), primary_key=True),
        Column("id", identifier(), primary_key=True),
        Column("outcome", word(), nullable=False),
        Column("spec", text(), nullable=False),
        Column("created_at", micros(), nullable=False),
    )
    Table(
        f"{prefix}queue_controls",
        metadata,
        Column("kind", word(), primary_key=True),
        Column("name", name(), primary_key=True),
        Column("value", text()),
        Column("revision", BigInteger, nullable=False),
        Column("changed_at", micros(), nullable=False),
        Column("changed_by", name(), nullable=False),
        Column("why", text(), nullable=False),
    )
