"""A run's context as its users see it: a few values that all steps share, and four ways to write them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isfinite
from typing import Any, Final, Protocol, TypeVar

from penstock.database.database import Database
from penstock.database.transaction import Transaction
from penstock.errors import OverwriteError, PenstockError
from penstock.values import parse
from penstock.values.parse import NAME_LENGTH, checked
from penstock.values.typed_json.json_text import decode, dumps, encode, loads

# A run's context: values by key, written once unless told otherwise.

GET = "SELECT value FROM {tuples} WHERE run_id = :run AND tuple_key = :key"
ALL = "SELECT tuple_key, value FROM {tuples} WHERE run_id = :run AND tuple_key <> :headers ORDER BY tuple_key"
LOCK = "SELECT value, setter FROM {tuples} WHERE run_id = :run AND tuple_key = :key {lock}"
REPLACE = """
UPDATE {tuples} SET value = :value, setter = :setter, set_at = {now} WHERE run_id = :run AND tuple_key = :key
"""
REMOVE = "DELETE FROM {tuples} WHERE run_id = :run AND tuple_key = :key"

HEADERS = "penstock:headers"
"""The key of texts that were stored with the run for middleware; it is no part of what users see."""
UNSET = ""
"""The text of a row between its creation and its first value, in one transaction; no JSON text is empty."""


def get(tx: Transaction, run: str, key: str) -> str | None:
    row = tx.row(GET, run=run, key=key)
    return None if row is None else str(row[0])


def everything(tx: Transaction, run: str) -> dict[str, str]:
    return {str(key): str(value) for key, value in tx.rows(ALL, run=run, headers=HEADERS)}


def put(tx: Transaction, run: str, key: str, value: str, setter: str | None, overwrite: bool) -> None:
    """Set a key. Writing the same value again, or writing again from the same step, is allowed."""
    before, first = _locked(tx, run, key)
    mine = setter is not None and first == setter
    if before is not None and not overwrite and not mine:
        if loads(before) != loads(value):
            raise OverwriteError(key)
        return  # the key stays with the step that set it first
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
    """Set a key if its value equals the expected one; a key that is not set has the value None."""
    before, _ = _locked(tx, run, key)
    if (None if before is None else loads(before)) != loads(expected):
        if before is None:
            tx.run(REMOVE, run=run, key=key)
        return False
    tx.run(REPLACE, run=run, key=key, value=value, setter=setter)
    return True


def _locked(tx: Transaction, run: str, key: str) -> tuple[str | None, str | None]:
    """Lock a key: its value, and the step that set it. A missing key gets an empty row, which is locked."""
    tx.stage("context")
    fresh = {"run_id": run, "tuple_key": key, "value": UNSET}
    tx.insert("tuples", [fresh], ignore_duplicates=True, set_at="{now}")
    row = tx.row(LOCK, run=run, key=key)
    if row is None or row[0] == UNSET:
        return None, None
    return str(row[0]), None if row[1] is None else str(row[1])


R = TypeVar("R")
_MISSING: Final = object()


class AsyncCall(Protocol):
    """Runs a call in a thread, for async callers."""

    async def __call__(self, work: Callable[[], R], /) -> R: ...


class RunContext:
    """Values by key. A key is written once, unless `overwrite=True`; a step's own retry may set its key again."""

    def __init__(self, database: Database, run: str, door: AsyncCall, setter: str | None = None) -> None:
        self._database = database
        self._run = run
        self._door = door
        self._setter = setter

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key."""
        found = self._database.read(get, self._run, _checked(key))
        return default if found is None else decode(found)

    async def get_async(self, key: str, default: Any = None) -> Any:
        return await self._door(lambda: self.get(key, default))

    def set(self, key: str, value: object, overwrite: bool = False) -> None:
        """Write a key; raises `OverwriteError` if it has another value."""
        text = self._text(key, value)
        self._database.in_transaction(put, self._run, _checked(key), text, self._setter, overwrite)

    async def set_async(self, key: str, value: object, overwrite: bool = False) -> None:
        await self._door(lambda: self.set(key, value, overwrite))

    def increment(self, key: str, by: int | float = 1) -> Any:
        """Add to a number; the sum. A retried step adds again: increment last, or in `once()`."""
        amount = checked("by", by, parse.number)
        return decode(self._database.in_transaction(increment, self._run, _checked(key), amount))

    async def increment_async(self, key: str, by: int | float = 1) -> Any:
        return await self._door(lambda: self.increment(key, by))

    def compare_and_set(self, key: str, expected: object, value: object) -> bool:
        """Write a key if it has the expected value (None: if it has none); whether that was so."""
        before = encode(expected, name=f"the context value expected of {key!r}")
        text = self._text(key, value)
        return self._database.in_transaction(
            compare_and_set, self._run, _checked(key), before, text, self._setter
        )

    async def compare_and_set_async(self, key: str, expected: object, value: object) -> bool:
        return await self._door(lambda: self.compare_and_set(key, expected, value))

    def all(self) -> dict[str, Any]:
        """Every key and its value."""
        found = self._database.read(everything, self._run)
        return {key: decode(value) for key, value in found.items()}

    async def all_async(self) -> dict[str, Any]:
        return await self._door(self.all)

    def _text(self, key: str, value: object) -> str:
        limit = self._database.settings.payload_limit
        return encode(value, limit=limit, name=f"the context value {key!r}")

    def __getitem__(self, key: str) -> Any:
        value = self.get(key, _MISSING)
        if value is _MISSING:
            raise KeyError(key)
        return value

    def __setitem__(self, key: str, value: object) -> None:
        self.set(key, value)

    def __iter__(self) -> Iterator[str]:
        return iter(self.all())

    def __contains__(self, key: str) -> bool:
        return self.get(key, _MISSING) is not _MISSING


def _checked(key: object) -> str:
    return checked("key", key, lambda given: parse.text(given, NAME_LENGTH))
