"""Apply: the only way a handler's work reaches the database. Invariants 3 and 8.

The rows are locked and their tokens compared, the related ones too. Only an item that still holds everything is
applied: its update map, its inserts and deletes, its related rows, with one value of NOW, and the unlocking, in one
transaction. Of an item that lost anything nothing is written; what it still holds is released.

A column that somebody wrote while the handler worked keeps what they wrote, unless the reconciler says `overwrite`:
the handler decided on what it had read. The rest of its map is applied, and the row is looked at again at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ClauseElement, Column
from sqlalchemy.engine import Dialect

from penstock.database.statements import Statements
from penstock.reconcile.columns import from_micros
from penstock.reconcile.definition import Reconciler
from penstock.reconcile.ending import Ended, Kind
from penstock.reconcile.item import Item
from penstock.reconcile.keys import in_order
from penstock.reconcile.meanwhile import differs
from penstock.reconcile.now import resolve
from penstock.reconcile.renew import give_up
from penstock.reconcile.statements import DUE, KEYS, MOVED, UNLOCKED, Fetch, lock_rows
from penstock.reconcile.target import Key, Target
from penstock.reconcile.writes import Writes

MAIN = ("next_process_at", "last_processed_at")
Current = dict[tuple[Target, Key], Mapping[str, Any]]
"""Rows as they are now, locked for this transaction."""


@dataclass(slots=True)
class Applied:
    """What an apply came to."""

    accepted: list[Ended] = field(default_factory=list)
    lost: list[Ended] = field(default_factory=list)
    kept: list[tuple[Ended, tuple[str, ...]]] = field(default_factory=list)
    """Items of which some columns were not written, because somebody else had."""
    stirred: set[str] = field(default_factory=set)
    """Tables in which there is something to look at now."""
    awaited: set[str] = field(default_factory=set)
    """Those who wait for rows that are free now."""


def apply(statements: Statements, reconciler: Reconciler, fetch: Fetch, ended: Sequence[Ended]) -> Applied:
    """Apply all that still hold their claims."""
    statements.ask_now()
    current = _lock(statements, ended)
    now = from_micros(statements.now())
    applied = Applied()
    writes = Writes(now)
    for end in ended:
        if not _is_held(end.item, current):
            (applied.accepted if _is_done_already(end, current) else applied.lost).append(end)
            continue
        end.item.tried.add(now)
        applied.accepted.append(end)
        if end.kind is Kind.RELEASED:
            applied.stirred.add(end.item.target.name)
        _plan(writes, reconciler, end, current, statements.dialect, applied)
        _note_waiting(end.item, current, now, applied)
    writes.perform(statements)
    for end in applied.lost:
        # A lost item keeps nobody waiting: what still carries its token is free at once.
        give_up(statements, end.item, now)
    for due, keys in writes.staying.items():
        given = {KEYS: reconciler.target.listed(keys), MOVED: now, DUE: due}
        statements.run(fetch.stay, given)
    return applied


def _lock(statements: Statements, ended: Sequence[Ended]) -> Current:
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


def _is_done_already(end: Ended, current: Current) -> bool:
    """An earlier try was committed and only its answer was lost."""
    item = end.item
    row = current.get((item.target, item.claim.key))
    if row is None:
        return bool(item.tried) and item.changes.deletes_main
    return row["x_last_processed_at"] in item.tried


def _plan(
    writes: Writes, reconciler: Reconciler, end: Ended, current: Current, dialect: Dialect, applied: Applied
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
            # Most likely it is somebody else's now, and due at once; if it is still ours, it is put off afterwards.
            applied.stirred.add(item.target.name)
            if due > now:
                writes.staying[due].append(item.claim.key)
                due = now
        values["next_process_at"] = due
    if end.kind is not Kind.RELEASED:
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


def _due(end: Ended, now: datetime) -> datetime:
    """A row given back untouched keeps its place."""
    return end.item.claim.due if end.kind is Kind.RELEASED else now + timedelta(seconds=end.delay)


def _merged(
    end: Ended, row: Mapping[str, Any], reconciler: Reconciler, dialect: Dialect, now: datetime
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The update map by column, without what somebody else has written since the claim."""
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
    """What the database computes from the present value overwrites nothing; nor does a new visiting time."""
    return name == "next_process_at" or isinstance(value, ClauseElement)


def _written_meanwhile(
    name: str, column: Column[Any], seen: Mapping[str, Any], row: Mapping[str, Any], dialect: Dialect
) -> bool:
    return name in seen and differs(column, seen[name], row[f"x_{name}"], dialect)


def _plan_changes(writes: Writes, end: Ended, current: Current, dialect: Dialect, applied: Applied) -> None:
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
            # Its own reconciler has something new to look at.
            columns.setdefault("next_process_at", now)
            applied.stirred.add(target.name)
        writes.update(target, key, columns)
    for target, values in changes.inserts:
        columns = {
            target.column(name).key: resolve(value, target.column(name), now)
            for name, value in values.items()
        }
        writes.insert(target, columns)
        applied.stirred.add(target.name)
    for target, key in changes.deletes:
        writes.delete(target, key)


def _note_waiting(item: Item, current: Current, now: datetime, applied: Applied) -> None:
    for place in item.places:
        row = current[place]
        until = row["lock_wanted_until"]
        if until is not None and until > now and row["lock_wanted_by"]:
            applied.awaited.add(row["lock_wanted_by"].partition(":")[0])


def _moves(reconciler: Reconciler, end: Ended, row: Mapping[str, Any], dialect: Dialect) -> bool:
    """Whether what is written may make the row another reconciler's."""
    watched, column = reconciler.watched, end.item.target.column
    return any(
        column(name).name in watched
        and (isinstance(value, ClauseElement) or differs(column(name), row[f"x_{name}"], value, dialect))
        for name, value in end.values.items()
    )
