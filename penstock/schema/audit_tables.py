"""The table of what people did."""

from __future__ import annotations

from sqlalchemy import Column, Index, MetaData, Table

from penstock.schema.types import identifier, micros, name, text, word


def define(metadata: MetaData, prefix: str) -> None:
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
