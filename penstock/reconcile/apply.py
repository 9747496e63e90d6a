"""Applies the writes of handlers through the fence; nothing else writes them. Invariants 3 and 8.

The rows are locked and their tokens compared, the related ones too. Only an item that still holds everything is
applied: its update map, its inserts and deletes, its related rows, with one value of NOW, and the unlocking, in one
transaction. Of an item that lost anything nothing is written; what it still holds is released.

A column that other code wrote while the handler worked keeps that value, unless the reconciler says `overwrite`:
the handler decided on what it had read. The rest of its map is applied, and the row is looked at again at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ClauseElement, Column, insert
from sqlalchemy.engine import Dialect

from penstock.database.user.statements import Statements
from penstock.reconcile.columns import from_micros, resolve
from penstock.reconcile.item import Item
from penstock.reconcile.leases import give_up
from penstock.reconcile.outcome import CRASHED, VisitKind, VisitOutcome
from penstock.reconcile.reconciler import Reconciler
from penstock.reconcile.statements import (
    DUE,
    KEYS,
    MOVED,
    UNLOCKED,
    Fetch,
    change_each,
    change_rows,
    delete_rows,
    key_values,
    lock_rows,
    new_values,
)
from penstock.reconcile.table import Key, Target, in_order, key_text

# What an apply will write, collected first and then done in as few statements as possible, always in one order.

FORGET = "DELETE FROM {row_failures} WHERE reconciler = :reconciler AND row_key {among:keys:text}"


class RowWrites:
    """A plan of writes: inserts, updates, unlocks, deletes."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.inserts: dict[tuple[Target, tuple[str, ...]], list[dict[str, Any]]] = defaultdict(list)
        self.updates: dict[tuple[Target, Key], dict[str, Any]] = {}
        self.unlocks: dict[Target, list[Key]] = defaultdict(list)
        self.deletes: dict[Target, list[Key]] = defaultdict(list)
        self.last_deletes: dict[Target, list[Key]] = defaultdict(list)
        self.staying: dict[datetime, list[Key]] = defaultdict(list)
        """By time: rows that are visited again then, if they still belong to the same reconciler."""
        self.failures: list[dict[str, Any]] = []
        self.forgotten: dict[str, list[str]] = defaultdict(list)

    def insert(self, target: Target, values: dict[str, Any]) -> None:
        self.inserts[target, tuple(sorted(values))].append(values)

    def update(self, target: Target, key: Key, values: Mapping[str, Any]) -> None:
        self.updates.setdefault((target, key), {}).update(values)

    def unlock(self, target: Target, key: Key) -> None:
        if (target, key) in self.updates:
            self.updates[target, key].update(UNLOCKED)
        else:
            self.unlocks[target].append(key)

    def delete(self, target: Target, key: Key) -> None:
        self.deletes[target].append(key)

    def delete_last(self, target: Target, key: Key) -> None:
        self.last_deletes[target].append(key)

    def remember(self, reconciler: str, end: VisitOutcome) -> None:
        """Store the error of a row for operators; it is removed when the row succeeds."""
        before, key = end.item.attempts, end.item.claim.key
        if end.failure is not None:
            count = max(end.crashes, end.item.crashes) if end.failure.type == CRASHED else before + 1
            row = {"reconciler": reconciler, "row_key": key_text(key), "attempts": count}
            failure = {"error_type": end.failure.type, "error": end.failure.message}
            self.failures.append(row | failure | {"traceback": end.failure.traceback})
        elif (before or end.item.crashes) and end.attempts == end.crashes == 0:
            self.forgotten[reconciler].append(key_text(key))

    def perform(self, statements: Statements) -> None:
        """Execute all writes. Rows that others refer to are inserted first and deleted last."""
        for (target, _), rows in self.inserts.items():
            statements.run(insert(target.table).inline(), rows)
        self._update(statements)
        for target, keys in self.unlocks.items():
            statements.run(*change_rows(target, keys, UNLOCKED))
        for deletes in (self.deletes, self.last_deletes):
            for target, keys in deletes.items():
                statements.run(delete_rows(target, keys))
        self._remember(statements)

    def _update(self, statements: Statements) -> None:
        """Update rows that get the same values in one statement; rows with the same columns in one batch."""
        alike: dict[tuple[Target, tuple[str, ...]], list[dict[str, Any]]] = defaultdict(list)
        for target, keys, values in self._same():
            if len(keys) > 1 or any(isinstance(value, ClauseElement) for value in values.values()):
                statements.run(*change_rows(target, keys, values))
            else:
                alike[target, tuple(sorted(values))].append(key_values(keys[0]) | new_values(values))
        for (target, names), rows in alike.items():
            statements.run(change_each(target, names), rows)

    def _same(self) -> Iterable[tuple[Target, list[Key], dict[str, Any]]]:
        """Group rows by the values that they get: most visits change nothing, or change the same."""
        same: dict[Any, tuple[Target, list[Key], dict[str, Any]]] = {}
        for (target, key), values in self.updates.items():
            try:
                # With the type: True and 1.0 equal 1, but differ in JSON.
                what = frozenset([(name, type(value), value) for name, value in values.items()])
                found = same.setdefault((target, what), (target, [], values))
            except TypeError:
                found = same.setdefault((target, key), (target, [], values))
            found[1].append(key)
        return same.values()

    def _remember(self, statements: Statements) -> None:
        tx = statements.tx
        keys: dict[str, list[str]] = defaultdict(list)
        for failure in self.failures:
            keys[failure["reconciler"]].append(failure["row_key"])
        for reconciler, texts in self.forgotten.items():
            keys[reconciler] += texts
        for reconciler, texts in keys.items():
            tx.run(FORGET, reconciler=reconciler, keys=texts)
        tx.insert("row_failures", self.failures, failed_at="{now}")


# Compares values of any user type, whatever their `==` does.


def differs(column: Column[Any], before: object, now: object, dialect: Dialect) -> bool:
    """True if the values differ: they are not equal, and would be written differently."""
    if _are_equal(before, now):
        return False
    try:
        process = column.type.dialect_impl(dialect).bind_processor(dialect)
        return process is None or not _are_equal(_unwrapped(process(before)), _unwrapped(process(now)))
    except Exception:  # a user's type that cannot write such a value
        return True


def _unwrapped(bound: Any) -> Any:
    """Bytes without the wrapper of a driver."""
    return getattr(bound, "obj", bound)


def _are_equal(one: Any, other: Any) -> bool:
    """`==` as one bool: arrays compare by element, and NaN is not equal to itself."""
    try:
        return bool(one == other) or bool(one != one and other != other)
    except Exception:
        return False


MAIN = ("next_process_at", "last_processed_at")
Current = dict[tuple[Target, Key], Mapping[str, Any]]
"""Rows as they are now, locked for this transaction."""


@dataclass(slots=True)
class Applied:
    """The result of an apply: accepted, lost, kept."""

    accepted: list[VisitOutcome] = field(default_factory=list)
    lost: list[VisitOutcome] = field(default_factory=list)
    kept: list[tuple[VisitOutcome, tuple[str, ...]]] = field(default_factory=list)
    """Items of which some columns were not written, because other code had written them."""
    changed_tables: set[str] = field(default_factory=set)
    """Tables with rows that are due now."""
    awaited: set[str] = field(default_factory=set)
    """Reconcilers that wait for rows which are free now."""


def apply(
    statements: Statements, reconciler: Reconciler, fetch: Fetch, ended: Sequence[VisitOutcome]
) -> Applied:
    """Apply all that still hold their claims."""
    statements.ask_now()
    current = _lock(statements, ended)
    now = from_micros(statements.now())
    applied = Applied()
    writes = RowWrites(now)
    for end in ended:
        if not _is_held(end.item, current):
            (applied.accepted if _is_done_already(end, current) else applied.lost).append(end)
            continue
        end.item.tried.add(now)
        applied.accepted.append(end)
        if end.kind is VisitKind.RELEASED:
            applied.changed_tables.add(end.item.target.name)
        _plan(writes, reconciler, end, current, statements.dialect, applied)
        _note_waiting(end.item, current, now, applied)
    writes.perform(statements)
    for end in applied.lost:
        # Rows that still carry the token of a lost item are released at once.
        give_up(statements, end.item, now)
    for due, keys in writes.staying.items():
        given = {KEYS: reconciler.target.listed(keys), MOVED: now, DUE: due}
        statements.run(fetch.stay, given)
    return applied


def _lock(statements: Statements, ended: Sequence[VisitOutcome]) -> Current:
    """Lock every row concerned: table by table and key by key, the same order everywhere."""
    wanted: dict[Target, set[Key]] = defaultdict(set)
    names: dict[Target, set[str]] = defaultdict(set)
    for end in ended:
        item = end.item
        wanted[item.target].add(item.claim.key)
        names[item.target].update(MAIN, end.values)
        for held in item.held:
            wanted[held.target].add(held.key)
        for target, key, values in item.changes.updates:
            if key in wanted.get(target, ()):
                names[target].update(values)
    current: Current = {}
    for target in sorted(wanted, key=lambda target: target.name):
        keys = {KEYS: target.listed(in_order(wanted[target]))}
        size = len(target.key)
        for row in statements.rows(lock_rows(target, tuple(sorted(names[target]))), keys):
            current[target, tuple(row[:size])] = row._mapping  # type: ignore[assignment]
    return current


def _is_held(item: Item, current: Current) -> bool:
    return all(
        (row := current.get(place)) is not None and row["lock_token"] == item.token for place in item.places
    )


def _is_done_already(end: VisitOutcome, current: Current) -> bool:
    """True if an earlier try was committed and only its answer was lost."""
    item = end.item
    row = current.get((item.target, item.claim.key))
    if row is None:
        return bool(item.tried) and item.changes.deletes_main
    return row["x_last_processed_at"] in item.tried


def _plan(
    writes: RowWrites,
    reconciler: Reconciler,
    end: VisitOutcome,
    current: Current,
    dialect: Dialect,
    applied: Applied,
) -> None:
    item, now = end.item, writes.now
    row = current[item.target, item.claim.key]
    values, kept = _merged(end, row, reconciler, dialect, now)
    if kept:
        applied.kept.append((end, kept))
    requested = row["x_next_process_at"] != item.claim.deadline
    if "next_process_at" not in values:
        due = row["x_next_process_at"] if requested else now if kept else _due(end, now)
        if not requested and _moves(reconciler, end, row, dialect):
            # Most likely it belongs to another reconciler now, and due at once; if it is still ours, it is put off
            # afterwards.
            applied.changed_tables.add(item.target.name)
            if due > now:
                writes.staying[due].append(item.claim.key)
                due = now
        values["next_process_at"] = due
    if end.kind is not VisitKind.RELEASED:
        values["last_processed_at"] = now
    values |= {"process_attempts": end.attempts, "process_crashes": end.crashes, **UNLOCKED}
    if end.with_changes:
        _plan_changes(writes, end, current, dialect, applied)
    deleted = set(item.changes.deletes) if end.with_changes else set()
    for held in item.held:
        if (held.target, held.key) not in deleted:
            writes.unlock(held.target, held.key)
    if end.with_changes and item.changes.deletes_main:
        writes.delete_last(item.target, item.claim.key)
    else:
        writes.update(item.target, item.claim.key, values)
    writes.remember(reconciler.name, end)


def _due(end: VisitOutcome, now: datetime) -> datetime:
    """When the row is due again; a row that is given back untouched keeps its time."""
    return end.item.claim.due if end.kind is VisitKind.RELEASED else now + timedelta(seconds=end.delay)


def _merged(
    end: VisitOutcome, row: Mapping[str, Any], reconciler: Reconciler, dialect: Dialect, now: datetime
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The update map by column, without what other code has written since the claim."""
    seen = end.item.seen
    merged: dict[str, Any] = {}
    kept: list[str] = []
    for name, value in end.values.items():
        column = end.item.target.column(name)
        ours = reconciler.policy.may_overwrite(name) or _is_computed(name, value)
        if not ours and _written_meanwhile(name, column, seen, row, dialect):
            kept.append(name)
        else:
            merged[column.key] = resolve(value, column, now)
    return merged, tuple(kept)


def _is_computed(name: str, value: object) -> bool:
    """True if the database computes the value from the present one: that overwrites nothing; nor does a new visiting
    time."""
    return name == "next_process_at" or isinstance(value, ClauseElement)


def _written_meanwhile(
    name: str, column: Column[Any], seen: Mapping[str, Any], row: Mapping[str, Any], dialect: Dialect
) -> bool:
    return name in seen and differs(column, seen[name], row[f"x_{name}"], dialect)


def _plan_changes(
    writes: RowWrites, end: VisitOutcome, current: Current, dialect: Dialect, applied: Applied
) -> None:
    changes, now = end.item.changes, writes.now
    seen = {(held.target, held.key): held.seen for held in end.item.held}
    for target, key, values in changes.updates:
        if (target, key) in seen:
            before, row = seen[target, key], current[target, key]
            values = {
                name: value
                for name, value in values.items()
                if _is_computed(name, value)
                or not _written_meanwhile(name, target.column(name), before, row, dialect)
            }
        columns = {
            target.column(name).key: resolve(value, target.column(name), now)
            for name, value in values.items()
        }
        if "next_process_at" in target.table.c:
            # The reconciler of that row has a new reason to visit it.
            columns.setdefault("next_process_at", now)
            applied.changed_tables.add(target.name)
        writes.update(target, key, columns)
    for target, values in changes.inserts:
        columns = {
            target.column(name).key: resolve(value, target.column(name), now)
            for name, value in values.items()
        }
        writes.insert(target, columns)
        applied.changed_tables.add(target.name)
    for target, key in changes.deletes:
        writes.delete(target, key)


def _note_waiting(item: Item, current: Current, now: datetime, applied: Applied) -> None:
    for place in item.places:
        row = current[place]
        until = row["lock_wanted_until"]
        if until is not None and until > now and row["lock_wanted_by"]:
            applied.awaited.add(row["lock_wanted_by"].partition(":")[0])


def _moves(reconciler: Reconciler, end: VisitOutcome, row: Mapping[str, Any], dialect: Dialect) -> bool:
    """True if the writes may move the row to another reconciler."""
    watched, column = reconciler.watched, end.item.target.column
    return any(
        column(name).name in watched
        and (isinstance(value, ClauseElement) or differs(column(name), row[f"x_{name}"], value, dialect))
        for name, value in end.values.items()
    )
