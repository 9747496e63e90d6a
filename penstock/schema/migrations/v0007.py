"""Version 7: a process says for how long it may be silent. Frozen, like every version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Column

from penstock.schema.migrations.making import add_columns
from penstock.schema.migrations.names import Names
from penstock.schema.types import micros

if TYPE_CHECKING:
    from alembic.operations import Operations


def upgrade(op: Operations, names: Names) -> None:
    """Add the column; if it is there already it is left, so that this can be repeated."""
    add_columns(op, names, "processes", [Column("reap_after", micros())])
