"""How a handler's work on a row ended, and what that means for the row. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import ClauseElement

from penstock.errors import DefinitionError
from penstock.reconcile.columns import OURS
from penstock.reconcile.item import Item
from penstock.reconcile.now import Now
from penstock.reconcile.policy import LONGEST, LONGEST_BACKOFF, Policy
from penstock.reconcile.target import attributes_set, is_plain
from penstock.values.failure import Failure
from penstock.values.outcome import Snooze, decide_crash
from penstock.values.status import JobStatus

KEPT_BY_US = OURS - {"next_process_at"}
"""Columns that no handler may set; when the next visit is due is for handlers to say, too."""

INSTEAD = "Return what is to be written as a dict, or use item.update(row, name=value)"
CANNOT_SET = "can't set attribute"
CRASHED = "Crashed"
"""The type of the failure that is noted for a row whose holders died."""


class Kind(StrEnum):
    """What became of it."""

    APPLIED = "applied"
    SNOOZED = "snoozed"
    ERRORED = "errored"
    TIMED_OUT = "timed_out"
    CRASHED = "crashed"
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
    crashes: int = 0

    @property
    def failed(self) -> bool:
        return self.failure is not None

    @property
    def with_changes(self) -> bool:
        """Whether what the handler collected on its item counts."""
        return self.kind in (Kind.APPLIED, Kind.SNOOZED)


def returned(policy: Policy, item: Item, value: object) -> Ended:
    """The handler returned: an update map, nothing, or a snooze."""
    if names := _set_by_hand(item):
        raise DefinitionError(f"{', '.join(names)} set on a row, which is not how it is written. {INSTEAD}")
    if isinstance(value, Snooze):
        values = checked_values(item, item.changes.main)
        return _ended(item, Kind.SNOOZED, values, item.attempts, min(float(value.seconds), LONGEST))
    if value is not None and not isinstance(value, Mapping):
        raise DefinitionError(
            f"a reconciler returns a dict, None or Snooze(seconds), not {type(value).__name__}"
        )
    values = checked_values(item, {**item.changes.main, **(value or {})})
    return _ended(item, Kind.APPLIED, values, 0, _interval(policy, item, values))


def _set_by_hand(item: Item) -> list[str]:
    """The attributes that were set on the rows of an item, each with its table."""
    rows = [(item.target, item.row), *((held.target, held.row) for held in item.held)]
    return [f"{target.name}.{name}" for target, row in rows for name in attributes_set(row)]


def raised(item: Item, error: BaseException) -> Failure:
    """What a handler raised. Who tried to set something of a Core table's row hears what to do instead."""
    failure = Failure.of(error)
    rows = [item.row, *(held.row for held in item.held)]
    if isinstance(error, AttributeError) and CANNOT_SET in failure.message and any(map(is_plain, rows)):
        return replace(failure, message=f"{failure.message}: rows are not written like this. {INSTEAD}")
    return failure


def failed(policy: Policy, item: Item, failure: Failure, kind: Kind, random: float) -> Ended:
    """It raised, or took too long: back off by the row's own count, or give up on it."""
    attempts = item.attempts + 1
    if policy.max_attempts is not None and attempts >= policy.max_attempts:
        return _given_up(policy, item, failure)
    return _ended(item, kind, {}, attempts, policy.pause_after(attempts, random), failure)


def beforehand(policy: Policy, item: Item, random: float = 0.0) -> Ended | None:
    """How it ends without the handler. None: it is worth a try."""
    if item.problem is not None:
        return failed(policy, item, item.problem, Kind.ERRORED, random)
    return crashed(policy, item)


def crashed(policy: Policy, item: Item) -> Ended | None:
    """The last holder died: whether that was this row's doing, nobody knows. None: it is worth another try now.

    The first crashes are most likely not its fault. Then it waits, longer each time, and in the end it is given up.
    """
    if not item.claim.taken_over:
        return None
    status, delay, _ = decide_crash(item.crashes, policy.max_crashes)
    spent = status is JobStatus.FAILED
    if not spent and delay <= 0:
        return None
    times = "once" if item.crashes == 1 else f"{item.crashes} times in a row"
    failure = Failure.note(CRASHED, f"the process died {times} while this row was in its hands")
    if spent and policy.on_exhausted is not None:
        return _given_up(policy, item, failure)
    return _rested(item, LONGEST_BACKOFF if spent else delay, failure)


def refused(policy: Policy, end: Ended, failure: Failure) -> Ended | None:
    """The database refuses what was to be written: the row's own error. None: there is nothing left to try."""
    match end.kind:
        case Kind.RELEASED:
            return None
        case Kind.EXHAUSTED:
            return _not_given_up(policy, end.item, failure)
        case Kind.APPLIED | Kind.SNOOZED:
            return failed(policy, end.item, failure, Kind.ERRORED, 0.0)
        case _:
            return released(end.item)


def released(item: Item) -> Ended:
    """Given back untouched: nothing happened."""
    return _ended(item, Kind.RELEASED, {}, item.attempts, 0.0, crashes=item.crashes)


def checked_values(item: Item, values: Mapping[str, Any]) -> Mapping[str, Any]:
    for name, value in values.items():
        column = item.target.column(name).name
        if column in KEPT_BY_US:
            raise DefinitionError(f"{name} is kept by Penstock; a handler does not write it")
        if column == "next_process_at" and not isinstance(value, datetime | Now | ClauseElement):
            raise DefinitionError(f"{name}={value!r}: give a time, a datetime or NOW")
    return values


def _interval(policy: Policy, item: Item, values: Mapping[str, Any]) -> float:
    """Until the next visit of a row as it will be."""
    if isinstance(policy.every, float):
        return policy.every
    known = {} if item.row is None else item.target.values_of(item.row)
    return policy.interval({**known, **values}, After(item.row, values))


def _given_up(policy: Policy, item: Item, failure: Failure) -> Ended:
    given = policy.on_exhausted
    try:
        values = checked_values(item, (_asked(given, item) if callable(given) else given) or {})
        return _ended(item, Kind.EXHAUSTED, values, 0, _interval(policy, item, values), failure)
    except Exception as error:
        return _not_given_up(policy, item, Failure.of(error))


def _asked(given: Callable[[Item], Mapping[str, Any] | None], item: Item) -> Mapping[str, Any] | None:
    before = _set_by_hand(item)  # by the handler, perhaps, which has failed since
    values = given(item)
    if names := [name for name in _set_by_hand(item) if name not in before]:
        raise DefinitionError(f"on_exhausted has set {', '.join(names)} on a row. {INSTEAD}")
    return values


def _not_given_up(policy: Policy, item: Item, failure: Failure) -> Ended:
    """What `on_exhausted` says cannot be had or written: the row goes on failing, and says why."""
    if item.claim.taken_over:
        return _rested(item, LONGEST_BACKOFF, failure)
    attempts = item.attempts + 1
    return _ended(item, Kind.ERRORED, {}, attempts, policy.pause_after(attempts, 0.0), failure)


def _rested(item: Item, delay: float, failure: Failure) -> Ended:
    """Not worked on, because its last holders died; its counts stay as they are."""
    return _ended(item, Kind.CRASHED, {}, item.attempts, delay, failure, item.crashes)


def _ended(
    item: Item,
    kind: Kind,
    values: Mapping[str, Any],
    attempts: int,
    delay: float,
    failure: Failure | None = None,
    crashes: int = 0,
) -> Ended:
    return Ended(item, kind, values, attempts, delay, failure, time.monotonic() - item.began, crashes)


class After:
    """A row as it will be: what is written over what was read."""

    def __init__(self, row: Any, values: Mapping[str, Any]) -> None:
        self._row = row
        self._values = values

    def __getattr__(self, name: str) -> Any:
        return self._values[name] if name in self._values else getattr(self._row, name)
