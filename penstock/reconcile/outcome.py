"""Decides the outcome of a visit and what it means for the row. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import ClauseElement

from penstock.errors import DefinitionError
from penstock.reconcile.columns import OURS, Now
from penstock.reconcile.item import Item
from penstock.reconcile.options import LONGEST_BACKOFF, Policy
from penstock.reconcile.table import attributes_set, is_plain
from penstock.values.failure import Failure
from penstock.values.outcome import SHORTEST_SNOOZE, Snooze, decide_crash
from penstock.values.parse import LONGEST
from penstock.values.status import JobStatus

KEPT_BY_US = OURS - {"next_process_at"}
"""Columns that no handler may set. `next_process_at` is not among them."""

INSTEAD = "Return what is to be written as a dict, or use item.update(row, name=value)"
CANNOT_SET = "can't set attribute"
CRASHED = "Crashed"
"""The type of the failure that is noted for a row whose holders died."""


class VisitKind(StrEnum):
    """How a visit of a row ended."""

    APPLIED = "applied"
    SNOOZED = "snoozed"
    ERRORED = "errored"
    TIMED_OUT = "timed_out"
    CRASHED = "crashed"
    EXHAUSTED = "exhausted"
    RELEASED = "released"


@dataclass(frozen=True, slots=True, eq=False)
class VisitOutcome:
    """The outcome of a visit, ready to be applied."""

    item: Item
    kind: VisitKind
    values: Mapping[str, Any]
    """The update map for the row itself."""
    attempts: int
    delay: float
    """Until the next visit, unless a caller has asked for an earlier one."""
    failure: Failure | None = None
    seconds: float = 0.0
    crashes: int = 0

    @property
    def failed(self) -> bool:
        return self.failure is not None

    @property
    def with_changes(self) -> bool:
        """True if the changes that the handler collected on its item are applied."""
        return self.kind in (VisitKind.APPLIED, VisitKind.SNOOZED)


def returned(policy: Policy, item: Item, value: object) -> VisitOutcome:
    """The handler returned: an update map, nothing, or a snooze."""
    check_returned(item, value)
    if isinstance(value, Snooze):
        values = checked_values(item, item.changes.main)
        delay = min(max(float(value.seconds), SHORTEST_SNOOZE), LONGEST)
        return _ended(item, VisitKind.SNOOZED, values, item.attempts, delay)
    given = value if isinstance(value, Mapping) else {}
    values = checked_values(item, {**item.changes.main, **given})
    return _ended(item, VisitKind.APPLIED, values, 0, _interval(policy, item, values))


def check_returned(item: Item, value: object) -> None:
    """Raise if the returned value is not allowed, or if the handler has set attributes of a row."""
    if names := _attributes_set_on_rows(item):
        raise DefinitionError(f"{', '.join(names)} set on a row, which is not how it is written. {INSTEAD}")
    if value is not None and not isinstance(value, Mapping | Snooze):
        raise DefinitionError(
            f"a reconciler returns a dict, None or Snooze(seconds), not {type(value).__name__}"
        )


def _attributes_set_on_rows(item: Item) -> list[str]:
    """The attributes that were set on the rows of an item, each with its table."""
    rows = [(item.target, item.row), *((held.target, held.row) for held in item.held)]
    return [f"{target.name}.{name}" for target, row in rows for name in attributes_set(row)]


def raised(item: Item, error: BaseException) -> Failure:
    """The failure of a handler that raised; if it tried to set a column of a Core row, with advice."""
    failure = Failure.of(error)
    rows = [item.row, *(held.row for held in item.held)]
    if isinstance(error, AttributeError) and CANNOT_SET in failure.message and any(map(is_plain, rows)):
        return replace(failure, message=f"{failure.message}: rows are not written like this. {INSTEAD}")
    return failure


def failed(policy: Policy, item: Item, failure: Failure, kind: VisitKind, random: float) -> VisitOutcome:
    """The outcome of a visit that raised or took too long: back off by the row's own count, or give up on it."""
    attempts = item.attempts + 1
    if policy.max_attempts is not None and attempts >= policy.max_attempts:
        return _given_up(policy, item, failure)
    return _ended(item, kind, {}, attempts, policy.pause_after(attempts, random), failure)


def errored(policy: Policy, item: Item, failure: Failure) -> VisitOutcome:
    """A failure outcome that calls no user code: for errors of user code itself."""
    attempts = item.attempts + 1
    return _ended(item, VisitKind.ERRORED, {}, attempts, policy.pause_after(attempts, 0.0), failure)


def beforehand(policy: Policy, item: Item, random: float = 0.0) -> VisitOutcome | None:
    """The outcome without calling the handler; None: call the handler."""
    if item.problem is not None:
        return failed(policy, item, item.problem, VisitKind.ERRORED, random)
    return crashed(policy, item)


def crashed(policy: Policy, item: Item) -> VisitOutcome | None:
    """The outcome for a row whose last holder died, perhaps because of it. None if the row is worth another try now.

    The first crashes are most likely not its fault. Then it waits longer each time, and in the end it is given up.
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
    return _postponed(item, LONGEST_BACKOFF if spent else delay, failure)


def died(policy: Policy, item: Item, message: str) -> VisitOutcome:
    """The outcome of a visit whose handler process died: one more crash, which this worker records."""
    crashes = item.crashes + 1
    status, delay, _ = decide_crash(crashes, policy.max_crashes)
    failure = Failure.note(CRASHED, message)
    spent = status is JobStatus.FAILED
    if spent and policy.on_exhausted is not None:
        return _given_up(policy, item, failure)
    return _postponed(item, LONGEST_BACKOFF if spent else delay, failure, crashes)


def refused(policy: Policy, end: VisitOutcome, failure: Failure) -> VisitOutcome | None:
    """The outcome if the database refuses the writes: an error of the row. None: there is nothing left to try."""
    match end.kind:
        case VisitKind.RELEASED:
            return None
        case VisitKind.EXHAUSTED:
            return _not_given_up(policy, end.item, failure, end.failure)
        case VisitKind.APPLIED | VisitKind.SNOOZED:
            return failed(policy, end.item, failure, VisitKind.ERRORED, 0.0)
        case _:
            return released(end.item)


def released(item: Item) -> VisitOutcome:
    """The outcome of a row that is given back untouched."""
    return _ended(item, VisitKind.RELEASED, {}, item.attempts, 0.0, crashes=item.crashes)


def checked_values(item: Item, values: Mapping[str, Any]) -> Mapping[str, Any]:
    for name, value in values.items():
        column = item.target.column(name).name
        if column in KEPT_BY_US:
            raise DefinitionError(f"{name} is kept by Penstock; a handler does not write it")
        if column == "next_process_at" and not isinstance(value, datetime | Now | ClauseElement):
            raise DefinitionError(f"{name}={value!r}: give a time, a datetime or NOW")
    return values


def _interval(policy: Policy, item: Item, values: Mapping[str, Any]) -> float:
    """Seconds until the next visit, by the values that the row will have."""
    if isinstance(policy.every, float):
        return policy.every
    known = {} if item.row is None else item.target.values_of(item.row)
    return policy.interval({**known, **values}, After(item.row, values))


def _given_up(policy: Policy, item: Item, failure: Failure) -> VisitOutcome:
    given = policy.on_exhausted
    try:
        values = checked_values(item, (_asked(given, item) if callable(given) else given) or {})
        return _ended(item, VisitKind.EXHAUSTED, values, 0, _interval(policy, item, values), failure)
    except Exception as error:
        return _not_given_up(policy, item, Failure.of(error), failure)


def _asked(given: Callable[[Item], Mapping[str, Any] | None], item: Item) -> Mapping[str, Any] | None:
    before = _attributes_set_on_rows(item)  # values that the handler has perhaps changed before it failed
    values = given(item)
    if names := [name for name in _attributes_set_on_rows(item) if name not in before]:
        raise DefinitionError(f"on_exhausted has set {', '.join(names)} on a row. {INSTEAD}")
    return values


def _not_given_up(policy: Policy, item: Item, failure: Failure, last: Failure | None) -> VisitOutcome:
    """The outcome if `on_exhausted` raised or its values cannot be written: the row goes on failing, and says why.

    `last`: the failure after which it was to be given up. After a crash it rests, and its crashes are not forgotten.
    """
    if item.claim.taken_over:
        return _postponed(item, LONGEST_BACKOFF, failure)
    if last is not None and last.type == CRASHED:
        return _postponed(item, LONGEST_BACKOFF, failure, item.crashes + 1)
    return errored(policy, item, failure)


def _postponed(item: Item, delay: float, failure: Failure, crashes: int | None = None) -> VisitOutcome:
    """The outcome of a row that is not visited now, because its last workers died; only a new crash is counted."""
    count = item.crashes if crashes is None else crashes
    return _ended(item, VisitKind.CRASHED, {}, item.attempts, delay, failure, count)


def _ended(
    item: Item,
    kind: VisitKind,
    values: Mapping[str, Any],
    attempts: int,
    delay: float,
    failure: Failure | None = None,
    crashes: int = 0,
) -> VisitOutcome:
    return VisitOutcome(item, kind, values, attempts, delay, failure, time.monotonic() - item.began, crashes)


class After:
    """The row with its new values, for functions of the user."""

    def __init__(self, row: Any, values: Mapping[str, Any]) -> None:
        self._row = row
        self._values = values

    def __getattr__(self, name: str) -> Any:
        return self._values[name] if name in self._values else getattr(self._row, name)
