"""Empties the tables, for tests: a database as it is right after its migration."""

from __future__ import annotations

from penstock.database.database import Database
from penstock.database.transaction import Transaction

DELETE = "DELETE FROM {{{table}}}"
KEPT = frozenset({"definitions", "limits"})
"""An app remembers that these are there, and they say nothing of what was done."""


def empty(database: Database) -> None:
    """Remove all rows but those that only declare something."""

    def delete(tx: Transaction) -> None:
        for table in database.tables:
            if table not in KEPT:
                tx.run(DELETE.format(table=table))

    database.in_transaction(delete)
