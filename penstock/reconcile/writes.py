"""What an apply will write, collected first and then done in as few statements as possible, always in one order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import ClauseElement, insert

from penstock.database.statements import Statements
from penstock.reconcile.ending import CRASHED, Ended
from penstock.reconcile.keys import key_text
from penstock.reconcile.statements import (
    UNLOCKED,
    change_each,
    change_rows,
    delete_rows,
    key_values,
    new_values,
)
from penstock.reconcile.target import Key, Target

FORGET = "DELETE FROM {row_failures} WHERE reconciler = :reconciler AND row_key {among:keys:text}"


class Writes:
    """A plan of writes: inserts, updates, unlocks, deletes."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.inserts: dict[tuple[Target, tuple[str, ...]], list[dict[str, Any]]] = defaultdict(list)
        self.updates: dict[tuple[Target, Key], dict[str, Any]] = {}
        self.unlocks: dict[Target, list[Key]] = defaultdict(list)
        self.deletes: dict[Target, list[Key]] = defaultdict(list)
        self.last_deletes: dict[Target, list[Key]] = defaultdict(list)
        self.staying: dict[datetime, list[Key]] = defaultdict(list)
        """Rows that are put off until then, if they are still for the same reconciler."""
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

    def remember(self, reconciler: str, end: Ended) -> None:
        """Why a row fails, for people; forgotten when it does no more."""
        before, key = end.item.attempts, end.item.claim.key
        if end.failure is not None:
            count = end.item.crashes if end.failure.type == CRASHED else before + 1
            row = {"reconciler": reconciler, "row_key": key_text(key), "attempts": count}
            failure = {"error_type": end.failure.type, "error": end.failure.message}
            self.failures.append(row | failure | {"traceback": end.failure.traceback})
        elif (before or end.item.crashes) and end.attempts == end.crashes == 0:
            self.forgotten[reconciler].append(key_text(key))

    def perform(self, statements: Statements) -> None:
        """Rows that others refer to come into being first and go last."""
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
        """Rows that get the same values in one statement; others of one shape in one batch."""
        alike: dict[tuple[Target, tuple[str, ...]], list[dict[str, Any]]] = defaultdict(list)
        for target, keys, values in self._same():
            if len(keys) > 1 or any(isinstance(value, ClauseElement) for value in values.values()):
                statements.run(*change_rows(target, keys, values))
            else:
                alike[target, tuple(sorted(values))].append(key_values(keys[0]) | new_values(values))
        for (target, names), rows in alike.items():
            statements.run(change_each(target, names), rows)

    def _same(self) -> Iterable[tuple[Target, list[Key], dict[str, Any]]]:
        """Rows by what is written to them: visits that change nothing, or change the same, are the most."""
        same: dict[Any, tuple[Target, list[Key], dict[str, Any]]] = {}
        for (target, key), values in self.updates.items():
            try:
                # With its type: True and 1.0 equal 1, and are something else in JSON.
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
