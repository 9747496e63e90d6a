"""Locks related rows: all that a row needs, or none.

They carry the token of the row's own claim and its deadline, so they live and die with it. No claim ever waits for a
lock here: a row that another transaction is writing at this moment counts as busy, so there is nothing to deadlock on.

A row whose related rows are busy announces itself on them (`lock_wanted_by`). From then on others leave them alone
when they become free; only a lock that has expired may still be recovered by its owner. Announcements are made in one
order and stop at the first row that another claim has announced, so that two that want the same rows cannot block
each other. They end by themselves, and are not renewed before others have had as much time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from penstock.database.user.statements import Statements
from penstock.reconcile.item import Held
from penstock.reconcile.locks import Related
from penstock.reconcile.reconciler import Reconciler
from penstock.reconcile.statements import change_rows
from penstock.reconcile.table import Key, Target, in_order, owner_of

if TYPE_CHECKING:
    from penstock.reconcile.claim import Candidate

Wanted = dict[Key, list[Key]]
"""Row → the related rows it needs."""
Place = tuple[Related, Key]


def take(
    statements: Statements,
    reconciler: Reconciler,
    rows: Sequence[Candidate],
    token: int,
    now: datetime,
    deadline: datetime,
) -> dict[Key, tuple[Held, ...]]:
    """Returns, for each row that got all its related rows, these rows. The others have announced themselves."""
    if not reconciler.locks:
        return {one.key: () for one in rows}
    wanted = {lock: _wanted(statements, reconciler, lock, rows) for lock in ordered(reconciler.locks)}
    found = {lock: _locked(statements, lock, needs) for lock, needs in wanted.items()}
    taken: set[Place] = set()
    got: dict[Key, tuple[Held, ...]] = {}
    for one in rows:
        me = owner_of(reconciler.name, one.key)
        places = [(lock, key) for lock, needs in wanted.items() for key in needs.get(one.key, [])]
        if all(_is_free(found, place, taken, me, now, reconciler) for place in places):
            taken.update(places)
            got[one.key] = tuple(_held(found, place) for place in places)
            _hold(statements, places, token, me, deadline)
        else:
            _announce(statements, found, places, me, now)
    return got


def ordered(locks: Sequence[Related]) -> list[Related]:
    """The one order in which tables are locked."""
    return sorted(locks, key=lambda lock: lock.target().name)


def _wanted(
    statements: Statements, reconciler: Reconciler, lock: Related, rows: Sequence[Candidate]
) -> Wanted:
    keys = [one.key for one in rows if lock.needed_by(one.row)]
    if not keys:
        return {}
    main, other = reconciler.target, lock.target()
    joined = select(*main.key, *other.key).where(lock.on, main.among(keys))
    if other.only is not None:
        joined = joined.where(other.only)
    size = len(main.key)
    needs: Wanted = defaultdict(list)
    for row in statements.rows(joined):
        needs[tuple(row[:size])].append(tuple(row[size:]))
    return {key: in_order(others) for key, others in needs.items()}


def _locked(statements: Statements, lock: Related, needs: Wanted) -> dict[Key, Any]:
    """Lock the rows that no other transaction is writing right now, and read them."""
    keys = in_order({key for others in needs.values() for key in others})
    if not keys:
        return {}
    target = lock.target()
    statement = (
        select(*target.selected())
        .where(target.among(keys))
        .order_by(*target.key)
        .with_for_update(skip_locked=True, key_share=True)
    )
    return {target.key_in(row): row for row in statements.rows(statement)}


def _is_free(
    found: dict[Related, dict[Key, Any]],
    place: Place,
    taken: set[Place],
    me: str,
    now: datetime,
    reconciler: Reconciler,
) -> bool:
    lock, key = place
    row = found[lock].get(key)
    if row is None or any(other.target().table is lock.target().table and k == key for other, k in taken):
        return False
    state = _state(lock.target(), row)
    expires, owner = state["lock_expires_at"], state["lock_owner"]
    if expires is not None and expires > now:
        return False
    if expires is not None and owner not in (None, me):
        abandoned = now - timedelta(seconds=reconciler.policy.lease_seconds)
        if expires > abandoned:
            return False
    return _wanted_by(state, now) in (None, me)


def _announce(
    statements: Statements,
    found: dict[Related, dict[Key, Any]],
    places: Sequence[Place],
    me: str,
    now: datetime,
) -> None:
    marked: dict[Related, list[Key]] = defaultdict(list)
    for lock, key in places:
        row = found[lock].get(key)
        if row is None:
            break
        state = _state(lock.target(), row)
        if _wanted_by(state, now) not in (None, me):
            break
        if _may_announce(state, me, now, lock.patience):
            marked[lock].append(key)
    for lock, keys in marked.items():
        until = now + timedelta(seconds=lock.patience)
        wanted = {"lock_wanted_by": me, "lock_wanted_until": until}
        statements.run(*change_rows(lock.target(), keys, wanted))


def _may_announce(state: dict[str, Any], me: str, now: datetime, patience: float) -> bool:
    """True if a row may announce itself: not while an announcement is valid, and not before others have had as much
    time."""
    if state["lock_wanted_by"] != me or state["lock_wanted_until"] is None:
        return True
    until: datetime = state["lock_wanted_until"]
    return until + timedelta(seconds=patience) <= now


def _wanted_by(state: dict[str, Any], now: datetime) -> str | None:
    until = state["lock_wanted_until"]
    return state["lock_wanted_by"] if until is not None and until > now else None


def _hold(statements: Statements, places: Sequence[Place], token: int, me: str, deadline: datetime) -> None:
    by_lock: dict[Related, list[Key]] = defaultdict(list)
    for lock, key in places:
        by_lock[lock].append(key)
    for lock, keys in by_lock.items():
        held = {"lock_expires_at": deadline, "lock_token": token, "lock_owner": me}
        unwanted = {"lock_wanted_by": None, "lock_wanted_until": None}
        statements.run(*change_rows(lock.target(), keys, held | unwanted))


def _held(found: dict[Related, dict[Key, Any]], place: Place) -> Held:
    lock, key = place
    target = lock.target()
    row = found[lock][key]
    made = target.made(row)
    return Held(lock, target, key, made, target.kept(made))


def _state(target: Target, row: Any) -> dict[str, Any]:
    names = (column.name for column in target.columns.values())
    return dict(zip(names, row, strict=True))
