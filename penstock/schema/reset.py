"""Deletes the rows of Penstock's tables and leaves the tables: for tests, and for frameworks that flush a database."""

from __future__ import annotations

from penstock.database.database import Database
from penstock.database.transaction import Transaction

DECLARED = frozenset({"definitions", "limits"})
"""Tables whose rows stay: an app caches them, and they are no record of work."""


def delete_everything(tx: Transaction) -> None:
    """Delete every job, run, schedule and record of this app."""
    tx.stage("empty")
    _delete(tx, set())


def as_migrated(database: Database) -> None:
    """Remove all rows except declarations: the database is then as right after its migration."""
    database.in_transaction(_delete, DECLARED)


def _delete(tx: Transaction, kept: frozenset[str] | set[str]) -> None:
    for table in tx.column_types:
        if table not in kept:
            tx.run(f"DELETE FROM {{{table}}}")
