"""A run's context: values by key, written once unless told otherwise."""

from __future__ import annotations

from math import isfinite

from penstock.database.transaction import Transaction
from penstock.errors import OverwriteError, PenstockError
from penstock.values.jsontext import dumps, loads

GET = "SELECT value FROM {tuples} WHERE run_id = :run AND tuple_key = :key"
ALL = "SELECT tuple_key, value FROM {tuples} WHERE run_id = :run ORDER BY tuple_key"
LOCK = "SELECT value, setter FROM {tuples} WHERE run_id = :run AND tuple_key = :key {lock}"
REPLACE = """
UPDATE {tuples} SET value = :value, setter = :setter, set_at = {now} WHERE run_id = :run AND tuple_key = :key
"""
REMOVE = "DELETE FROM {tuples} WHERE run_id = :run AND tuple_key = :key"

UNSET = ""
"""What a row holds between its creation and its first value, in one transaction; no JSON text is empty."""


def get(tx: Transaction, run: str, key: str) -> str | None:
    row = tx.row(GET, run=run, key=key)
    return None if row is None else str(row[0])


def everything(tx: Transaction, run: str) -> dict[str, str]:
    return {str(key): str(value) for key, value in tx.rows(ALL, run=run)}


def put(tx: Transaction, run: str, key: str, value: str, setter: str | None, overwrite: bool) -> None:
    """Set a key. The same value again, or the same step again, is no second writing."""
    before, first = _locked(tx, run, key)
    mine = setter is not None and first == setter
    if before is not None and not overwrite and not mine:
        if loads(before) != loads(value):
            raise OverwriteError(key)
        return  # it stays the key of who has set it first
    tx.run(REPLACE, run=run, key=key, value=value, setter=setter)


def increment(tx: Transaction, run: str, key: str, by: int | float) -> str:
    """Add to a number, 0 if there is none; the sum."""
    before, setter = _locked(tx, run, key)
    number = 0 if before is None else loads(before)
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise PenstockError(f"{key!r} is not a number, so it cannot be incremented")
    total = number + by
    if isinstance(total, float) and not isfinite(total):
        raise PenstockError(f"{key!r} is {number}: with {by} more it would be too large for a number")
    value = dumps(total)
    tx.run(REPLACE, run=run, key=key, value=value, setter=setter)
    return value


def compare_and_set(
    tx: Transaction, run: str, key: str, expected: str, value: str, setter: str | None
) -> bool:
    """Set a key if it has the expected value, as equal as values are; a key that is not set has None."""
    before, _ = _locked(tx, run, key)
    if (None if before is None else loads(before)) != loads(expected):
        if before is None:
            tx.run(REMOVE, run=run, key=key)
        return False
    tx.run(REPLACE, run=run, key=key, value=value, setter=setter)
    return True


def _locked(tx: Transaction, run: str, key: str) -> tuple[str | None, str | None]:
    """The value and who set it, locked; if there is none, a row that is to get one."""
    tx.stage("context")
    fresh = {"run_id": run, "tuple_key": key, "value": UNSET}
    tx.insert("tuples", [fresh], ignore_duplicates=True, set_at="{now}")
    row = tx.row(LOCK, run=run, key=key)
    if row is None or row[0] == UNSET:
        return None, None
    return str(row[0]), None if row[1] is None else str(row[1])
