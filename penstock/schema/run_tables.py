"""Tables of runs, beside those of their jobs.

A run's row changes when a step of it fails, when it is steered, and when it ends; never for a step that simply
succeeds. A sequential run has no rows here beside its own.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Identity, Index, Integer, MetaData, Table
from sqlalchemy import text as sql

from penstock.schema.types import identifier, micros, name, path, sequence, text, word
from penstock.values.parse import KEY_LENGTH


def define(metadata: MetaData, prefix: str, dialect: str) -> None:
    """Add the tables of pipelines."""
    _definitions(metadata, prefix)
    _runs(metadata, prefix)
    _names_of_runs(metadata, prefix)
    _joins(metadata, prefix)
    _advancements(metadata, prefix)
    _timers(metadata, prefix)
    _notes(metadata, prefix)
    _lines(metadata, prefix, dialect)


def _definitions(metadata: MetaData, prefix: str) -> None:
    Table(
        f"{prefix}definitions",
        metadata,
        Column("hash", name(64), primary_key=True),
        Column("name", name(), nullable=False),
        Column("text", text(), nullable=False),
        Column("created_at", micros(), nullable=False),
    )


def _runs(metadata: MetaData, prefix: str) -> None:
    runs = Table(
        f"{prefix}runs",
        metadata,
        Column("id", identifier(), primary_key=True),
        Column("pipeline", name(), nullable=False),
        Column("definition", name(64), nullable=False),
        Column("run_key", name(KEY_LENGTH)),
        Column("args", text(), nullable=False),
        Column("status", word(), nullable=False),
        Column("mode", word(), nullable=False),
        Column("failed", Integer, nullable=False),
        Column("halted", Boolean(create_constraint=False), nullable=False),
        Column("reasons", text(), nullable=False),
        Column("result", text()),
        Column("parent_run_id", identifier()),
        Column("parent_job_id", identifier()),
        Column("revived_from", identifier()),
        Column("only_step", name()),
        Column("created_at", micros(), nullable=False),
        Column("started_at", micros()),
        Column("paused_at", micros()),
        Column("ended_at", micros()),
        Column("rerun_of", identifier()),
        Column("redefined", Boolean(create_constraint=False)),
        Column("reserved", Integer),
        Column("lock_count", BigInteger),
        Column("scheduled_for", micros()),
        Column("forked_from", identifier()),
        info={"storage": {"fillfactor": "70"}},
    )
    Index(f"{prefix}runs_pipeline", runs.c.pipeline, runs.c.id)
    Index(f"{prefix}runs_ended", runs.c.ended_at, runs.c.id)
    is_child = sql("parent_run_id IS NOT NULL")
    Index(f"{prefix}runs_children", runs.c.parent_run_id, postgresql_where=is_child, sqlite_where=is_child)
    is_fork = sql("forked_from IS NOT NULL")
    Index(f"{prefix}runs_forks", runs.c.forked_from, postgresql_where=is_fork, sqlite_where=is_fork)


def _names_of_runs(metadata: MetaData, prefix: str) -> None:
    Table(
        f"{prefix}run_keys",
        metadata,
        Column("pipeline", name(), primary_key=True),
        Column("run_key", name(KEY_LENGTH), primary_key=True),
        Column("run_id", identifier(), nullable=False),
    )
    labels = Table(
        f"{prefix}run_labels",
        metadata,
        Column("label", name(), primary_key=True),
        Column("run_id", identifier(), primary_key=True),
    )
    Index(f"{prefix}run_labels_run", labels.c.run_id)


def _joins(metadata: MetaData, prefix: str) -> None:
    Table(
        f"{prefix}joins",
        metadata,
        Column("run_id", identifier(), primary_key=True),
        Column("node", name(), primary_key=True),
        Column("path", path(), primary_key=True),
        Column("still_open", Integer, nullable=False),
        Column("blocked", Integer, nullable=False),
        Column("pruned", Integer, nullable=False),
        Column("winner", name()),
        Column("fired", Boolean(create_constraint=False), nullable=False),
        Column("width", Integer),
        info={"storage": {"fillfactor": "50"}},
    )


def _advancements(metadata: MetaData, prefix: str) -> None:
    Table(
        f"{prefix}advancements",
        metadata,
        Column("id", identifier(), primary_key=True),
        Column("run_id", identifier(), nullable=False),
        Column("node", name(), nullable=False),
        Column("path", path(), nullable=False),
        Column("width", Integer, nullable=False),
        Column("phase", word(), nullable=False),
        Column("next_index", Integer, nullable=False),
        Column("problem", text()),
        Column("created_at", micros(), nullable=False),
        Column("updated_at", micros(), nullable=False),
        info={"storage": {"fillfactor": "50"}},
    )


def _timers(metadata: MetaData, prefix: str) -> None:
    Table(
        f"{prefix}timers",
        metadata,
        Column("due_at", micros(), primary_key=True, autoincrement=False),
        Column("id", identifier(), primary_key=True),
        Column("kind", word(), nullable=False),
        Column("run_id", identifier(), nullable=False),
        Column("job_id", identifier()),
        Column("data", text()),
    )


def _notes(metadata: MetaData, prefix: str) -> None:
    Table(
        f"{prefix}signals",
        metadata,
        Column("run_id", identifier(), primary_key=True),
        Column("name", name(), primary_key=True),
        Column("value", text(), nullable=False),
        Column("signalled_at", micros(), nullable=False),
        Column("headers", text()),
    )
    Table(
        f"{prefix}element_signals",
        metadata,
        Column("run_id", identifier(), primary_key=True),
        Column("name", name(), primary_key=True),
        Column("path", path(), primary_key=True),
        Column("value", text(), nullable=False),
        Column("signalled_at", micros(), nullable=False),
        Column("headers", text()),
    )
    Table(
        f"{prefix}tuples",
        metadata,
        Column("run_id", identifier(), primary_key=True),
        Column("tuple_key", name(), primary_key=True),
        Column("value", text(), nullable=False),
        Column("setter", identifier()),
        Column("set_at", micros(), nullable=False),
    )
    chains = Table(
        f"{prefix}chains",
        metadata,
        Column("downstream_id", identifier(), primary_key=True),
        Column("upstream_id", identifier(), primary_key=True),
        Column("created_at", micros(), nullable=False),
    )
    Index(f"{prefix}chains_upstream", chains.c.upstream_id)


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
