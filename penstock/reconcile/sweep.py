"""Sweeping: locks whose holder is long gone, and for which nobody would come back.

An expired lock hinders nobody, so this is tidiness, not liveness. Left alone are rows that their own reconciler will
recover: it is to learn that somebody died over them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

from sqlalchemy import ColumnElement, and_, false, func, not_, or_, select, true

from penstock.database.statements import Statements
from penstock.reconcile import tally
from penstock.reconcile.columns import from_micros
from penstock.reconcile.definition import Reconciler
from penstock.reconcile.keys import in_order
from penstock.reconcile.statements import UNLOCKED, change_rows, release
from penstock.reconcile.target import Key, Target

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
    now = from_micros(statements.now())
    lease = max((reconciler.policy.lease_seconds for reconciler in reconcilers), default=30.0)
    grace = now - timedelta(seconds=lease * GRACE_LEASES)
    orphaned = and_(target["lock_expires_at"] < grace, not_(_awaits_recovery(target, reconcilers)))
    rows = statements.rows(select(*target.key, target["lock_token"]).where(orphaned).limit(BATCH))
    keys = in_order(tuple(row[:-1]) for row in rows)
    if keys:
        statements.run(release(target, keys, sorted({row[-1] for row in rows if row[-1] is not None})))
        unheld: list[Key] = [tuple(row[:-1]) for row in rows if row[-1] is None]
        if unheld:
            statements.run(*change_rows(target, in_order(unheld), UNLOCKED))
    tally.forget_gone(statements.tx)
    return len(keys)


def _awaits_recovery(target: Target, reconcilers: Sequence[Reconciler]) -> ColumnElement[bool]:
    mine = [
        and_(
            target["lock_owner"] == reconciler.name, true() if reconciler.where is None else reconciler.where
        )
        for reconciler in reconcilers
    ]
    return func.coalesce(or_(false(), *mine), false())
