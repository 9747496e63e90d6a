"""Version 3: where a run comes from, and how many steps it has reserved. Frozen, like every version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Boolean, Column, Integer

from penstock.schema.migrations.making import add_columns
from penstock.schema.migrations.names import Names
from penstock.schema.types import identifier

if TYPE_CHECKING:
    from alembic.operations import Operations


def upgrade(op: Operations, names: Names) -> None:
    """Add the columns; those that are there already are left, so that this can be repeated."""
    columns = [
        Column("rerun_of", identifier()),
        Column("redefined", Boolean(create_constraint=False)),
        Column("reserved", Integer),
    ]
    add_columns(op, names, "runs", columns)
