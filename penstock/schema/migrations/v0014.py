"""Version 14: the run that a run was forked from. Frozen, like every version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Column, Index, MetaData, Table
from sqlalchemy import text as sql

from penstock.schema.migrations.making import add_columns
from penstock.schema.migrations.names import Names
from penstock.schema.types import identifier

if TYPE_CHECKING:
    from alembic.operations import Operations


def upgrade(op: Operations, names: Names) -> None:
    """Add the column and its index; what is there already is left, so that this can be repeated."""
    add_columns(op, names, "runs", [Column("forked_from", identifier())])
    runs = Table(f"{names.prefix}runs", MetaData(schema=names.schema), Column("forked_from", identifier()))
    is_fork = sql("forked_from IS NOT NULL")
    index = Index(
        f"{names.prefix}runs_forks", runs.c.forked_from, postgresql_where=is_fork, sqlite_where=is_fork
    )
    index.create(op.get_bind(), checkfirst=True)
