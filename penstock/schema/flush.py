"""Deletes all rows of Penstock's tables, and leaves the tables themselves: for frameworks that flush a database."""

from __future__ import annotations

from penstock.database.transaction import Transaction


def delete_everything(tx: Transaction) -> None:
    """Delete every job, run, schedule and record of this app."""
    tx.stage("empty")
    for table in tx.column_types:
        tx.run(f"DELETE FROM {{{table}}}")
