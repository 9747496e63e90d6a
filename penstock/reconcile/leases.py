"""Renews the leases of held rows, in one statement and only near their end; removes locks of dead holders.

Invariant 10 for rows: a claim ends when it is settled or when its lease runs out. A worker that could not renew in time
counts its rows as lost before another worker can have them, and writes nothing.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, false, func, not_, or_, select, true

from penstock.database.user.statements import Statements
from penstock.reconcile import counts
from penstock.reconcile.columns import from_micros
from penstock.reconcile.item import Item
from penstock.reconcile.reconciler import Reconciler
from penstock.reconcile.statements import DUE, UNLOCKED, change_rows, release, renew, tokens_of
from penstock.reconcile.table import Key, Target, in_order


class HeldRows:
    """The items that this process holds, by key. A newer claim of a row takes the place of an older one."""

    def __init__(self) -> None:
        self._items: dict[Key, Item] = {}
        self._lock = threading.Lock()

    def add(self, items: Iterable[Item]) -> list[Item]:
        """Add items; returns older items of the same rows, whose claims are lost."""
        new = {item.claim.key: item for item in items}
        with self._lock:
            replaced = [self._items[key] for key in new if key in self._items]
            self._items.update(new)
            return replaced

    def remove(self, item: Item) -> bool:
        """Remove this claim only: an old claim must not remove a newer one of the same row."""
        with self._lock:
            if self._items.get(item.claim.key) is not item:
                return False
            del self._items[item.claim.key]
            return True

    def overdue(self, now: float) -> list[Item]:
        """Remove and return items whose lease is over by our own clock."""
        with self._lock:
            over = [item for item in self._items.values() if item.trusted_until <= now]
            for item in over:
                del self._items[item.claim.key]
            return over

    def near_end(self, now: float, margin: float) -> list[Item]:
        with self._lock:
            return [item for item in self._items.values() if item.trusted_until - now < margin]

    @property
    def tokens(self) -> set[int]:
        with self._lock:
            return {item.token for item in self._items.values()}

    @property
    def count(self) -> int:
        return len(self._items)


def renew_all(statements: Statements, items: Sequence[Item], lease: float) -> list[Item]:
    """Move the deadlines of these items. Returns those that have lost something: the rest of theirs is released."""
    statements.tx.stage("renew_rows")
    now = from_micros(statements.now())
    deadline = now + timedelta(seconds=lease)
    lost: list[Item] = []
    for target, holders in places(items).items():
        tokens = sorted({item.token for item in holders.values()})
        renewed = statements.count(renew(target, in_order(holders), tokens), {DUE: deadline})
        if renewed != len(holders):
            lost += _lost(statements, target, holders)
    for item in lost:
        give_up(statements, item, now)
    return lost


def places(items: Iterable[Item]) -> dict[Target, dict[Key, Item]]:
    """Every row that these items hold, in the one order of tables."""
    found: dict[Target, dict[Key, Item]] = defaultdict(dict)
    for item in items:
        found[item.target][item.claim.key] = item
        for held in item.held:
            found[held.target][held.key] = item
    return {target: found[target] for target in sorted(found, key=lambda target: target.name)}


def give_up(statements: Statements, item: Item, now: datetime) -> None:
    """Release all rows that still carry this item's token; its own row is then due at once."""
    for target, holders in places([item]).items():
        due = now if target is item.target else None
        statements.run(release(target, in_order(holders), [item.token], due))


def trust(items: Iterable[Item], began: float, lease: float) -> None:
    """A renewal that began at this time is committed: trust the leases for one lease from then on."""
    for item in items:
        item.trusted_until = began + lease


def clock() -> float:
    return time.monotonic()


def _lost(statements: Statements, target: Target, holders: dict[Key, Item]) -> list[Item]:
    size = len(target.key)
    found = {tuple(row[:size]): row[size] for row in statements.rows(tokens_of(target, in_order(holders)))}
    return [item for key, item in holders.items() if found.get(key) != item.token]


# Sweeping: removes locks of dead holders that no worker would take over.
#
# An expired lock stops no claim, so this only cleans up. Rows that their own reconciler will recover are left alone: it
# must notice that a process died with them.

GRACE_LEASES = 10
BATCH = 1000


def targets(reconcilers: Iterable[Reconciler]) -> dict[Target, list[Reconciler]]:
    """Every table that is reconciled or locked along, with the reconcilers that are for it."""
    found: dict[Target, list[Reconciler]] = {}
    for reconciler in reconcilers:
        found.setdefault(reconciler.target, []).append(reconciler)
        for lock in reconciler.locks:
            found.setdefault(lock.target(), [])
    return found


def sweep(statements: Statements, target: Target, reconcilers: Sequence[Reconciler]) -> int:
    """Remove orphaned locks and dead announcements from one table; how many."""
    count = remove(statements, target, orphaned(statements, target, reconcilers))
    counts.forget_gone(statements.tx)
    return count


def orphaned(
    statements: Statements, target: Target, reconcilers: Sequence[Reconciler]
) -> list[tuple[Any, ...]]:
    """Keys of rows whose lock has no holder any more, each with the token of the lock."""
    now = from_micros(statements.now())
    lease = max((reconciler.policy.lease_seconds for reconciler in reconcilers), default=30.0)
    grace = now - timedelta(seconds=lease * GRACE_LEASES)
    is_orphaned = and_(target["lock_expires_at"] < grace, not_(_awaits_recovery(target, reconcilers)))
    rows = statements.rows(select(*target.key, target["lock_token"]).where(is_orphaned).limit(BATCH))
    return [tuple(row) for row in rows]


def remove(statements: Statements, target: Target, rows: Sequence[tuple[Any, ...]]) -> int:
    """Remove the locks of these rows; how many there are."""
    keys = in_order(tuple(row[:-1]) for row in rows)
    if keys:
        statements.run(release(target, keys, sorted({row[-1] for row in rows if row[-1] is not None})))
        unheld: list[Key] = [tuple(row[:-1]) for row in rows if row[-1] is None]
        if unheld:
            statements.run(*change_rows(target, in_order(unheld), UNLOCKED))
    return len(keys)


def _awaits_recovery(target: Target, reconcilers: Sequence[Reconciler]) -> ColumnElement[bool]:
    mine = [
        and_(
            target["lock_owner"] == reconciler.name, true() if reconciler.where is None else reconciler.where
        )
        for reconciler in reconcilers
    ]
    return func.coalesce(or_(false(), *mine), false())
