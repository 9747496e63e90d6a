"""A run's context as its users see it: a few values that all steps share, and four ways to write them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isfinite
from typing import Any, Final, Protocol, TypeVar

from penstock.database.engine import Database
from penstock.queue import tuples
from penstock.values import checks
from penstock.values.checks import checked
from penstock.values.codec import decode, encode
from penstock.values.lengths import NAME_LENGTH

R = TypeVar("R")
_MISSING: Final = object()


class Door(Protocol):
    """The way of async callers."""

    async def __call__(self, work: Callable[[], R], /) -> R: ...


class RunContext:
    """Values by key. A key is written once, unless `overwrite=True`; a step's own retry may set its key again."""

    def __init__(self, database: Database, run: str, door: Door, setter: str | None = None) -> None:
        self._database = database
        self._run = run
        self._door = door
        self._setter = setter

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key."""
        found = self._database.read(tuples.get, self._run, _checked(key))
        return default if found is None else decode(found)

    async def get_async(self, key: str, default: Any = None) -> Any:
        return await self._door(lambda: self.get(key, default))

    def set(self, key: str, value: object, overwrite: bool = False) -> None:
        """Write a key; raises `OverwriteError` if it has another value."""
        text = self._text(key, value)
        self._database.in_transaction(tuples.put, self._run, _checked(key), text, self._setter, overwrite)

    async def set_async(self, key: str, value: object, overwrite: bool = False) -> None:
        await self._door(lambda: self.set(key, value, overwrite))

    def increment(self, key: str, by: int | float = 1) -> Any:
        """Add to a number; the sum. A retried step adds again: increment last, or in `once()`."""
        amount = checked("by", by, _amount)
        return decode(self._database.in_transaction(tuples.increment, self._run, _checked(key), amount))

    async def increment_async(self, key: str, by: int | float = 1) -> Any:
        return await self._door(lambda: self.increment(key, by))

    def compare_and_set(self, key: str, expected: object, value: object) -> bool:
        """Write a key if it has the expected value (None: if it has none); whether that was so."""
        before = encode(expected, name=f"the context value expected of {key!r}")
        text = self._text(key, value)
        return self._database.in_transaction(
            tuples.compare_and_set, self._run, _checked(key), before, text, self._setter
        )

    async def compare_and_set_async(self, key: str, expected: object, value: object) -> bool:
        return await self._door(lambda: self.compare_and_set(key, expected, value))

    def all(self) -> dict[str, Any]:
        """Every key and its value."""
        found = self._database.read(tuples.everything, self._run)
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


def _amount(by: object) -> int | float:
    if (
        isinstance(by, bool)
        or not isinstance(by, int | float)
        or (isinstance(by, float) and not isfinite(by))
    ):
        raise ValueError("give a number")
    return by


def _checked(key: object) -> str:
    return checked("key", key, lambda given: checks.text(given, NAME_LENGTH))
