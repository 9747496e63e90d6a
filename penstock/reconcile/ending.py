"""How a handler's work on a row ended, and what that means for the row. Pure."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from penstock.errors import DefinitionError
from penstock.reconcile.item import Item
from penstock.reconcile.policy import Policy
from penstock.reconcile.target import is_modified
from penstock.values.failure import Failure
from penstock.values.outcome import Snooze

OURS = frozenset(
    {"lock_expires_at", "lock_token", "lock_owner", "last_processed_at", "process_attempts", "lock_wanted_by"}
    | {"lock_wanted_until"}
)


class Kind(StrEnum):
    """What became of it."""

    APPLIED = "applied"
    SNOOZED = "snoozed"
    ERRORED = "errored"
    TIMED_OUT = "timed_out"
    EXHAUSTED = "exhausted"
    RELEASED = "released"


@dataclass(frozen=True, slots=True, eq=False)
class Ended:
    """A handler's end, ready to be applied."""

    item: Item
    kind: Kind
    values: Mapping[str, Any]
    """The update map for the row itself."""
    attempts: int
    delay: float
    """Until the next visit, unless somebody has asked for an earlier one."""
    failure: Failure | None = None
    seconds: float = 0.0

    @property
    def failed(self) -> bool:
        return self.failure is not None

    @property
    def with_changes(self) -> bool:
        """Whether what the handler collected on its item counts."""
        return self.kind in (Kind.APPLIED, Kind.SNOOZED)


def returned(policy: Policy, item: Item, value: object) -> Ended:
    """The handler returned: an update map, nothing, or a snooze."""
    if is_modified(item.row) or any(is_modified(held.row) for held in item.held):
        raise DefinitionError(
            "attributes of a row were set, and nobody would have written them: return what is to be written as a "
            "dict, or use item.update(row, name=value)"
        )
    if isinstance(value, Snooze):
        values = checked_values(item, item.changes.main)
        return _ended(item, Kind.SNOOZED, values, item.attempts, float(value.seconds))
    if value is not None and not isinstance(value, Mapping):
        raise DefinitionError(
            f"a reconciler returns a dict, None or Snooze(seconds), not {type(value).__name__}"
        )
    values = checked_values(item, {**item.changes.main, **(value or {})})
    return _ended(item, Kind.APPLIED, values, 0, _interval(policy, item, values))


def failed(policy: Policy, item: Item, failure: Failure, kind: Kind, random: float) -> Ended:
    """It raised, or took too long: back off by the row's own count, or give up on it."""
    attempts = item.attempts + 1
    if policy.max_attempts is not None and attempts >= policy.max_attempts:
        values = _exhausted(policy, item)
        return _ended(item, Kind.EXHAUSTED, values, 0, _interval(policy, item, values), failure)
    return _ended(item, kind, {}, attempts, policy.pause_after(attempts, random), failure)


def released(item: Item) -> Ended:
    """Given back untouched: nothing happened."""
    return _ended(item, Kind.RELEASED, {}, item.attempts, 0.0)


def checked_values(item: Item, values: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in values:
        if item.target.column(name).name in OURS:
            raise DefinitionError(f"{name} is kept by Penstock; a handler does not write it")
    return values


def _interval(policy: Policy, item: Item, values: Mapping[str, Any]) -> float:
    """Until the next visit of a row as it will be."""
    if isinstance(policy.every, float):
        return policy.every
    return policy.interval({**item.target.values_of(item.row), **values}, After(item.row, values))


def _exhausted(policy: Policy, item: Item) -> Mapping[str, Any]:
    given = policy.on_exhausted
    values = given(item) if callable(given) else given
    return checked_values(item, values or {})


def _ended(
    item: Item,
    kind: Kind,
    values: Mapping[str, Any],
    attempts: int,
    delay: float,
    failure: Failure | None = None,
) -> Ended:
    return Ended(item, kind, values, attempts, delay, failure, time.monotonic() - item.began)


class After:
    """A row as it will be: what is written over what was read."""

    def __init__(self, row: Any, values: Mapping[str, Any]) -> None:
        self._row = row
        self._values = values

    def __getattr__(self, name: str) -> Any:
        return self._values[name] if name in self._values else getattr(self._row, name)
