"""The statements over a user's table, built once for each reconciler.

Row locks are taken FOR NO KEY UPDATE where the database has it, so that foreign keys do not get in the way; rows that
another transaction is writing at this moment are skipped by claims and never waited for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import Any

from sqlalchemy import (
    ClauseElement,
    Column,
    ColumnElement,
    Delete,
    Engine,
    Select,
    Update,
    and_,
    bindparam,
    delete,
    func,
    literal_column,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.sql import operators, visitors
from sqlalchemy.sql.selectable import SelectBase

from penstock.database.user.statements import among
from penstock.reconcile.columns import HOLDING, Instant
from penstock.reconcile.conditions import conjuncts, has_bytes, has_callable_parameter, written_out
from penstock.reconcile.reconciler import Reconciler
from penstock.reconcile.table import Key, Target

KEYS, DUE, MOVED = "penstock_keys", "penstock_due", "penstock_moved"
"""Names of parameters of writes; a user's column with the same name would be written by mistake."""
MOST_HELD = 1000
BARE = ("next_process_at", "process_attempts", "process_crashes", "lock_token")
UNLOCKED: Mapping[str, None] = {"lock_expires_at": None, "lock_token": None, "lock_owner": None}


class Fetch:
    """Declares which rows are eligible for a reconciler; the claim, the counts and the sweep use it."""

    def __init__(self, reconciler: Reconciler, engine: Engine) -> None:
        self.target = target = reconciler.target
        self.ready = true() if reconciler.where is None else _written(reconciler.where, engine)
        now, abandoned = bindparam("now", type_=Instant()), bindparam("abandoned", type_=Instant())
        owner, expires = target["lock_owner"], target["lock_expires_at"]
        self.due = target["next_process_at"] <= now
        self.free = or_(expires.is_(None), expires <= now)
        ours = or_(owner.is_(None), owner == reconciler.name, expires.is_(None), expires <= abandoned)
        wanted = target["lock_wanted_until"]
        unwanted = or_(wanted.is_(None), wanted <= now, target["lock_token"].is_not(None))
        self.takeable = and_(self.free, ours, unwanted)
        eligible = and_(self.ready, self.due, self.takeable)
        self.statement = self._select(eligible)
        self.bare = self._select(eligible, bare=True)
        self.next_due = self._next_due(eligible, now, ours)
        self.stay = self._stay()

    def _next_due(
        self, eligible: ColumnElement[bool], now: ColumnElement[Any], ours: ColumnElement[bool]
    ) -> Select[Any]:
        """The statement that asks whether a row is eligible, and when the next lease ends, if that is soon."""
        target = self.target
        due, expires = target["next_process_at"], target["lock_expires_at"]
        soon = bindparam("soon", type_=Instant())
        anything: Select[Any] = select(literal_column("1")).select_from(target.table).where(eligible).limit(1)
        held = and_(self.ready, ours, due <= soon, expires > now, expires <= soon)
        first = select(expires.label("at")).where(held).order_by(due).limit(MOST_HELD).subquery()
        ends = select(func.min(first.c.at, type_=Instant()))
        return select(anything.scalar_subquery(), ends.scalar_subquery())

    def _select(self, condition: ColumnElement[bool], bare: bool = False) -> Select[Any]:
        """`bare`: of the user's columns the key only, for rows that cannot be read."""
        target = self.target
        columns = [*target.key, *(target[name] for name in BARE)] if bare else target.selected()
        return (
            select(*columns)
            .where(condition)
            .order_by(target["next_process_at"])
            .limit(bindparam("limit"))
            .with_for_update(skip_locked=True, key_share=True)
        )

    def again(self, keys: Sequence[Key], bare: bool = False) -> Select[Any]:
        """Rows that waited for related rows: selected now, whatever their time."""
        return self._select(and_(self.target.among(keys), self.ready, self.takeable), bare)

    def _stay(self) -> Update:
        """Set the next visit of rows that are due now and still belong to this reconciler."""
        due_now = self.target["next_process_at"] == bindparam(MOVED, type_=Instant())
        changed = update(self.target.table).where(self.target.among_given(KEYS), due_now, self.ready)
        due = bindparam(DUE, type_=Instant())
        return changed.values(next_process_at=due, **self.target.unstamped(()))


def one_row(target: Target, key: Key) -> Select[Any]:
    """All of one row."""
    return select(*target.selected()).where(target.among([key]))


@lru_cache(maxsize=500)
def lock_rows(target: Target, names: tuple[str, ...]) -> Select[Any]:
    """Lock rows for this transaction, in the order of their keys, and read some columns; the keys as `KEYS`."""
    chosen = [target.columns[name].label(f"x_{name}") for name in names]
    own = [target[name] for name in HOLDING]
    return (
        select(*target.key, *own, *chosen)
        .where(target.among_given(KEYS))
        .order_by(*target.key)
        .with_for_update(key_share=True)
    )


def change_rows(
    target: Target, keys: Sequence[Key], values: Mapping[str, Any]
) -> tuple[Update, dict[str, Any]]:
    """The same values for many rows: a statement that is cached by its columns, and its parameters."""
    computed = {name: value for name, value in values.items() if isinstance(value, ClauseElement)}
    plain = {name: value for name, value in values.items() if not isinstance(value, ClauseElement)}
    if computed:
        order = [(name, computed[name]) for name in _in_order(target, computed)]
        changed = update(target.table).where(target.among_given(KEYS))
        statement = changed.ordered_values(
            *order, *_given(target, tuple(plain)).items(), *target.unstamped(values).items()
        )
    else:
        statement = _change(target, tuple(plain))
    return statement, {KEYS: target.listed(keys)} | new_values(plain)


def _in_order(target: Target, computed: Mapping[str, ClauseElement]) -> list[str]:
    """Order expressions so that a column is read before it is changed: MySQL goes by the new value, others by the old
    one."""
    names = {target.table.c[name].name: name for name in computed}
    readers: dict[str, set[str]] = {name: set() for name in computed}
    for reader, value in computed.items():
        for each in visitors.iterate(value):
            read = names.get(each.name) if isinstance(each, Column) else None
            if read is not None and read != reader:
                readers[read].add(reader)
    try:
        return list(TopologicalSorter(readers).static_order())
    except CycleError:
        return list(computed)


@lru_cache(maxsize=500)
def _change(target: Target, names: tuple[str, ...]) -> Update:
    changed = update(target.table).where(target.among_given(KEYS))
    return changed.values(_given(target, names) | target.unstamped(names))


def renew(target: Target, keys: Sequence[Key], tokens: Sequence[int]) -> Update:
    held = and_(target.among(keys), among(target["lock_token"], tokens))
    due = bindparam(DUE, type_=Instant())
    return update(target.table).where(held).values(lock_expires_at=due, **target.unstamped(()))


def tokens_of(target: Target, keys: Sequence[Key]) -> Select[Any]:
    return select(*target.key, target["lock_token"]).where(target.among(keys))


def release(
    target: Target, keys: Sequence[Key] | None, tokens: Sequence[int], due: datetime | None = None
) -> Update:
    """Unlock rows that still carry these tokens; among these keys, or in the whole table. `due`: their next visit."""
    held = among(target["lock_token"], tokens)
    these = true() if keys is None else target.among(keys)
    visit = {} if due is None else {"next_process_at": due}
    return update(target.table).where(these, held).values(**UNLOCKED, **visit, **target.unstamped(()))


@lru_cache(maxsize=500)
def change_each(target: Target, names: tuple[str, ...]) -> Update:
    """Different values for each of many rows, as `key_values` and `new_values` make them."""
    return update(target.table).where(*_is(target)).values(_given(target, names) | target.unstamped(names))


def _given(target: Target, names: Sequence[str]) -> dict[str, Any]:
    return {name: bindparam(f"penstock_new_{name}", type_=target.table.c[name].type) for name in names}


def delete_rows(target: Target, keys: Sequence[Key]) -> Delete:
    return delete(target.table).where(target.among(keys))


def key_values(key: Key) -> dict[str, Any]:
    return {f"penstock_key_{index}": value for index, value in enumerate(key)}


def new_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {f"penstock_new_{name}": value for name, value in values.items()}


def _is(target: Target) -> list[ColumnElement[bool]]:
    return [
        column == bindparam(f"penstock_key_{index}", type_=column.type)
        for index, column in enumerate(target.key)
    ]


def _written(where: ColumnElement[bool], engine: Engine) -> ColumnElement[bool]:
    return and_(*(_literally(each, engine) for each in conjuncts(where)))


def _literally(where: ColumnElement[bool], engine: Engine) -> ColumnElement[bool]:
    """With its constants written out: a partial index is only used where the planner can see them.

    Not if something is looked up: what a subquery takes from the row it would take from the whole table, by itself.
    Nor if a parameter is computed at each execution.
    """
    looked_up = any(isinstance(each, SelectBase) for each in visitors.iterate(where))
    if looked_up or has_bytes(where) or has_callable_parameter(where):
        return where
    text = written_out(where.self_group(against=operators.and_), engine.dialect)
    if text is None:
        return where
    if engine.dialect.identifier_preparer._double_percents:
        text = text.replace("%%", "%")
    # Without a type: on databases without booleans SQLAlchemy would compare with 1, which prevents the use of an index.
    return literal_column(f"({text})")
