"""Claim: take eligible rows, each with the related rows it needs, in one transaction. Invariants 1, 2 and 8.

Rows are picked in the order of `next_process_at`, so the row that has waited longest comes first and a row that fails
goes to the back. Taking a row moves that time to the end of the lease: other fetches do not even look at it, and a
different value at the end tells that another visit was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, Select

from penstock.database.clock_watch import ClockWatch
from penstock.database.user.statements import Statements
from penstock.reconcile import related_rows
from penstock.reconcile.columns import EPOCH, from_micros
from penstock.reconcile.item import Claimed, Held, Item
from penstock.reconcile.reconciler import Reconciler
from penstock.reconcile.statements import Fetch, change_rows, one_row
from penstock.reconcile.table import Key, Target
from penstock.values.failure import Failure
from penstock.values.ids import new_token

BUSY_PAUSE = timedelta(seconds=1)
"""Seconds after which a row is tried again for its related rows, if no wake-up comes sooner."""

LOOK_AHEAD = timedelta(seconds=3)
"""How far an idle reconciler looks ahead: further than the longest pause between two looks."""


@dataclass(slots=True)
class Taken:
    """The result of a claim: items, and rows whose related rows were busy."""

    items: list[Item] = field(default_factory=list)
    busy: list[Key] = field(default_factory=list)
    """Rows whose related rows another claim holds."""
    token: int = 0
    now: datetime = EPOCH
    step: float = 0.0
    """By how many seconds the database's clock was set since the last reading."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An eligible row, locked for this transaction."""

    key: Key
    row: Any
    state: Any
    """The row as it was read, for Penstock's own columns."""
    problem: Failure | None = None
    """The error because of which it cannot be visited; `row` is None if a value could not be read."""

    @property
    def is_abandoned(self) -> bool:
        """True if an earlier holder never came back."""
        return self.state.lock_token is not None


def claim(
    statements: Statements,
    reconciler: Reconciler,
    fetch: Fetch,
    limit: int,
    again: Sequence[Key] = (),
    clock: ClockWatch | None = None,
) -> Taken:
    """Claim up to `limit` rows. `again`: rows to try before they are due.

    `clock`: while that was set forward just now, a lease that seems to be over may be a living process's.
    """
    micros = statements.now(not_older=reconciler.policy.lease_seconds / 8)
    now = from_micros(micros)
    taken = Taken(token=new_token(), now=now)
    if clock is not None:
        taken.step = clock.compare(micros, statements.read_at, statements.clock_shift)
    trusted = clock is None or clock.is_trusted
    found = [
        _checked(reconciler, one)
        for one in _candidates(statements, reconciler, fetch, limit, again, now)
        if trusted or not one.is_abandoned
    ]
    if not found:
        return taken
    deadline = now + timedelta(seconds=reconciler.policy.lease_seconds)
    sound = [candidate for candidate in found if candidate.problem is None]
    held, problems = _related(statements, reconciler, sound, taken.token, now, deadline)
    found = [replace(one, problem=one.problem or problems.get(one.key)) for one in found]
    held |= {candidate.key: () for candidate in found if candidate.problem is not None}
    ready = [candidate for candidate in found if candidate.key in held]
    taken.busy = [candidate.key for candidate in found if candidate.key not in held]
    _lock(statements, reconciler, ready, taken.token, deadline)
    if taken.busy:
        later = {"next_process_at": now + BUSY_PAUSE}
        statements.run(*change_rows(reconciler.target, taken.busy, later))
    until = statements.read_at + reconciler.policy.lease_seconds
    taken.items = [_item(reconciler, one, held[one.key], taken.token, deadline, until) for one in ready]
    return taken


def next_due(statements: Statements, reconciler: Reconciler, fetch: Fetch, now: datetime) -> datetime | None:
    """When a claim would find a row, if that is now or soon; in one statement, without a transaction."""
    abandoned = now - timedelta(seconds=reconciler.policy.lease_seconds)
    given = {"now": now, "abandoned": abandoned, "soon": now + LOOK_AHEAD}
    found: tuple[Any, Any] = tuple(statements.rows(fetch.next_due, given)[0])
    anything, end_of_lease = found
    return now if anything else end_of_lease


def _candidates(
    statements: Statements,
    reconciler: Reconciler,
    fetch: Fetch,
    limit: int,
    again: Sequence[Key],
    now: datetime,
) -> list[Candidate]:
    abandoned = now - timedelta(seconds=reconciler.policy.lease_seconds)
    values = {"now": now, "abandoned": abandoned, "limit": limit}
    found: dict[Key, Candidate] = {}
    if again:
        first = again[:limit]
        for one in _read(statements, fetch.target, fetch.again(first), fetch.again(first, bare=True), values):
            found[one.key] = one
    if len(found) < limit:
        values["limit"] = limit - len(found)
        for one in _read(statements, fetch.target, fetch.statement, fetch.bare, values):
            found.setdefault(one.key, one)
    return list(found.values())


def _read(
    statements: Statements, target: Target, whole: Select[Any], bare: Select[Any], values: Mapping[str, Any]
) -> list[Candidate]:
    """Read the rows that a statement finds. A row that cannot be read does not keep the others from being read."""
    try:
        rows = statements.rows(whole, values)
        return [Candidate(target.key_in(row), target.made(row), row) for row in rows]
    except Exception as error:
        if not statements.is_unreadable(error):
            raise
    return [_read_alone(statements, target, row) for row in statements.rows(bare, values)]


def _read_alone(statements: Statements, target: Target, state: Row[Any]) -> Candidate:
    key = tuple(state[: len(target.key)])
    try:
        row = statements.rows(one_row(target, key))[0]
        return Candidate(key, target.made(row), row)
    except Exception as error:
        if not statements.is_unreadable(error):
            raise
        return Candidate(key, None, state, Failure.of(error))


def _checked(reconciler: Reconciler, one: Candidate) -> Candidate:
    """Check a row with the user's own functions; what they raise is that row's error."""
    try:
        if one.problem is None:
            for lock in reconciler.locks:
                lock.needed_by(one.row)
        return one
    except Exception as error:
        return replace(one, problem=Failure.of(error))


def _related(
    statements: Statements,
    reconciler: Reconciler,
    rows: Sequence[Candidate],
    token: int,
    now: datetime,
    deadline: datetime,
) -> tuple[dict[Key, tuple[Held, ...]], dict[Key, Failure]]:
    """Lock the related rows of each row; a row whose related ones cannot be read has failed."""
    held: dict[Key, tuple[Held, ...]] = {}
    problems: dict[Key, Failure] = {}
    try:
        return related_rows.take(statements, reconciler, rows, token, now, deadline), problems
    except Exception as error:
        if not statements.is_unreadable(error):
            raise
    for one in rows:
        try:
            held |= related_rows.take(statements, reconciler, [one], token, now, deadline)
        except Exception as error:
            if not statements.is_unreadable(error):
                raise
            problems[one.key] = Failure.of(error)
    return held, problems


def _lock(
    statements: Statements, reconciler: Reconciler, rows: Sequence[Candidate], token: int, deadline: datetime
) -> None:
    target = reconciler.target
    held: dict[str, Any] = {"lock_expires_at": deadline, "next_process_at": deadline}
    held |= {"lock_token": token, "lock_owner": reconciler.name}
    fresh = [one.key for one in rows if not one.is_abandoned]
    if fresh:
        statements.run(*change_rows(target, fresh, held))
    abandoned = [one.key for one in rows if one.is_abandoned]
    if abandoned:
        held["process_crashes"] = target["process_crashes"] + 1
        statements.run(*change_rows(target, abandoned, held))


def _item(
    reconciler: Reconciler,
    one: Candidate,
    held: tuple[Held, ...],
    token: int,
    deadline: datetime,
    until: float,
) -> Item:
    state, abandoned = one.state, one.is_abandoned
    crashes = state.process_crashes + abandoned
    due, attempts = state.next_process_at, state.process_attempts
    claimed = Claimed(one.key, token, deadline, due, attempts, crashes, abandoned)
    return Item(reconciler.name, reconciler.target, one.row, claimed, held, until, one.problem)
