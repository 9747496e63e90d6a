"""Version 8: rows whose lock decides something can be written where they are locked. Frozen, like every version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Column

from penstock.schema.migrations.making import add_columns
from penstock.schema.migrations.names import Names

if TYPE_CHECKING:
    from alembic.operations import Operations


def upgrade(op: Operations, names: Names) -> None:
    """Add the columns; if they are there already they are left, so that this can be repeated."""
    for table in ("limits", "runs"):
        add_columns(op, names, table, [Column("lock_count", BigInteger)])
