"""Version 1: the first schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import MetaData

from penstock.schema.migrations.making import make
from penstock.schema.migrations.names import Names
from penstock.schema.migrations.v0001 import jobs, rows, runs

if TYPE_CHECKING:
    from alembic.operations import Operations


def upgrade(op: Operations, names: Names) -> None:
    """Create everything; what is there already is left, so that it can be repeated."""
    metadata = MetaData(schema=names.schema)
    jobs.define(metadata, names.prefix, names.dialect)
    runs.define(metadata, names.prefix)
    rows.define(metadata, names.prefix)
    make(op, names, metadata)
