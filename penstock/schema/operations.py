"""Alembic, brought in when there is something to migrate: with all it needs, it is an eighth of a worker's memory."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from alembic.operations import Operations


def operations(**context: Any) -> Operations:
    """What migrations are written in, for a connection or for a dialect alone."""
    made = import_module("alembic.migration").MigrationContext.configure(**context)
    return cast("Operations", import_module("alembic.operations").Operations(made))
