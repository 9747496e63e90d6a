"""Markers: what `once()` has done before, kept under the job's idempotency key."""

from __future__ import annotations

from penstock.database.transaction import Transaction

FIND = "SELECT value FROM {markers} WHERE idempotency_key = :key AND name = :name"


def find(tx: Transaction, key: str, name: str) -> str | None:
    row = tx.row(FIND, key=key, name=name)
    return None if row is None else str(row[0])


def remember(tx: Transaction, key: str, name: str, value: str) -> str:
    """Keep the value unless there is one already; the value that stands."""
    tx.stage("marker")
    row = {"idempotency_key": key, "name": name, "value": value}
    tx.insert("markers", [row], ignore_duplicates=True, created_at="{now}")
    return find(tx, key, name) or value
