"""Names and types that a migration needs of the database it changes."""

from __future__ import annotations

from typing import NamedTuple


class Names(NamedTuple):
    """How the tables are named, and where they are."""

    prefix: str
    schema: str | None
    dialect: str
