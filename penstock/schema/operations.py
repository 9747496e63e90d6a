"""Alembic, brought in when there is something to migrate: with all it needs, it is an eighth of a worker's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.lazy import Lazy

if TYPE_CHECKING:
    from alembic import migration
    from alembic import operations as verbs
else:
    migration, verbs = Lazy("alembic.migration"), Lazy("alembic.operations")


def operations(**context: Any) -> verbs.Operations:
    """What migrations are written in, for a connection or for a dialect alone."""
    return verbs.Operations(migration.MigrationContext.configure(**context))
