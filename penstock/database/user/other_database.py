"""Refuses a caller's connection to another database than the app's: jobs written there would never run.

What the connection says of itself is compared first, and costs nothing. On a server a name may be another one for the
same database, as poolers have them: so a name that differs is asked for, on both sides, before anything is refused. Two
servers that have a database of the same name are not told apart.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

from penstock.database.database import Database
from penstock.database.transaction import Transaction
from penstock.errors import ConfigurationError

NAMES = {"postgresql": "SELECT current_database()", "mysql": "SELECT DATABASE()"}


def refuse(tx: Transaction, database: Database, leads_to: str | None) -> None:
    """Refuse a connection that leads elsewhere."""
    own = database.url.database
    if leads_to is None or own is None or leads_to == own or database.dialect.in_memory:
        return
    if database.dialect.name == "sqlite":
        differs = not _is_uri(leads_to, own) and _real(os.path.abspath(leads_to)) != _real(
            os.path.abspath(own)
        )
    else:
        name = NAMES[database.dialect.name]
        differs = tx.row(name) != database.read(_named, name)
    if differs:
        raise ConfigurationError(
            f"connection= leads to the database {leads_to!r}, but the app's is {own!r}: what is written there would "
            "never be run. Pass a connection to the app's own database"
        )


def sqlite_file(connection: Any) -> str | None:
    """The file of a connection; None: it has none."""
    for _, name, file in connection.execute("PRAGMA database_list").fetchall():
        if name == "main":
            return str(file) or None
    return None


def text_of(name: object) -> str | None:
    """The name of a database as drivers have it."""
    if isinstance(name, bytes):
        return name.decode("utf-8", "replace")
    return None if name is None else str(name)


def _named(tx: Transaction, template: str) -> object:
    return tx.row(template)


def _is_uri(*files: str) -> bool:
    return any(file.startswith("file:") for file in files)


@lru_cache(maxsize=100)
def _real(file: str) -> str:
    return os.path.realpath(file)
