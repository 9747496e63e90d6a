"""Tables beside the jobs that most installations leave empty: labels, followers, and controls of queues."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, MetaData, Table

from penstock.schema.types import identifier, micros, name, text, word


def define(metadata: MetaData, prefix: str) -> None:
    """Add the tables. A job without labels and followers has no rows here."""
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
