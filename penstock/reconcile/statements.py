"""The statements over a user's table, built once for each reconciler.

Row locks are taken FOR NO KEY UPDATE where the database has it, so that foreign keys do not get in the way; rows that
somebody else is writing at this moment are skipped by claims and never waited for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Delete,
    Engine,
    Select,
    Update,
    and_,
    bindparam,
    delete,
    false,
    func,
    literal_column,
    not_,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.exc import SQLAlchemyError

from penstock.reconcile.columns import Instant
from penstock.reconcile.definition import Reconciler
from penstock.reconcile.target import Key, Target

UNLOCKED: Mapping[str, None] = {"lock_expires_at": None, "lock_token": None, "lock_owner": None}


class Fetch:
    """What is eligible for a reconciler, as one declaration used by the claim, the counts and the sweep."""

    def __init__(self, reconciler: Reconciler, engine: Engine) -> None:
        self.target = target = reconciler.target
        self.ready = true() if reconciler.where is None else _literally(reconciler.where, engine)
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
        self.glance: Select[Any] = (
            select(literal_column("1")).select_from(target.table).where(eligible).limit(1)
        )

    def _select(self, condition: ColumnElement[bool]) -> Select[Any]:
        target = self.target
        return (
            select(*target.selected())
            .where(condition)
            .order_by(target["next_process_at"])
            .limit(bindparam("limit"))
            .with_for_update(skip_locked=True, key_share=True)
        )

    def again(self, keys: Sequence[Key]) -> Select[Any]:
        """Rows that waited for related ones: looked at now, whatever their time."""
        return self._select(and_(self.target.among(keys), self.ready, self.takeable))

    def strayed(self, keys: Sequence[Key]) -> Update:
        """Rows that are not for this reconciler any more: somebody else's turn, at once."""
        changed = update(self.target.table).where(
            self.target.among(keys),
            not_(func.coalesce(self.ready, false())),
            self.target["lock_token"].is_(None),
        )
        return changed.values(next_process_at=bindparam("now", type_=Instant()))


def lock_rows(
    target: Target, keys: Sequence[Key], names: Sequence[str], *, skip: bool = False
) -> Select[Any]:
    """Lock rows for this transaction, in the order of their keys, and read some columns."""
    chosen = [target.columns[name].label(f"x_{name}") for name in names]
    own = [
        target[name]
        for name in ("lock_token", "lock_expires_at", "lock_owner", "lock_wanted_by", "lock_wanted_until")
    ]
    return (
        select(*target.key, *own, *chosen)
        .where(target.among(keys))
        .order_by(*target.key)
        .with_for_update(skip_locked=skip, key_share=True)
    )


def change_rows(target: Target, keys: Sequence[Key], **values: Any) -> Update:
    """The same values for many rows."""
    return update(target.table).where(target.among(keys)).values(**values)


def renew(target: Target, keys: Sequence[Key], tokens: Sequence[int]) -> Update:
    held = and_(target.among(keys), target["lock_token"].in_(list(tokens)))
    return update(target.table).where(held).values(lock_expires_at=bindparam("deadline", type_=Instant()))


def tokens_of(target: Target, keys: Sequence[Key]) -> Select[Any]:
    return select(*target.key, target["lock_token"]).where(target.among(keys))


def release(
    target: Target, keys: Sequence[Key] | None, tokens: Sequence[int], due: datetime | None = None
) -> Update:
    """Unlock whatever still carries these tokens; among these rows, or wherever they are. `due`: visit them then."""
    held = target["lock_token"].in_(list(tokens))
    among = true() if keys is None else target.among(keys)
    visit = {} if due is None else {"next_process_at": due}
    return update(target.table).where(among, held).values(**UNLOCKED, **visit)


@lru_cache(maxsize=500)
def change_each(target: Target, names: tuple[str, ...]) -> Update:
    """Different values for each of many rows: key as `k0`, …, values as `v_<column>`."""
    columns = target.table.c
    values = {name: bindparam(f"v_{name}", type_=columns[name].type) for name in names}
    return update(target.table).where(*_is(target)).values(values)


def delete_rows(target: Target, keys: Sequence[Key]) -> Delete:
    return delete(target.table).where(target.among(keys))


def key_values(key: Key) -> dict[str, Any]:
    return {f"k{index}": value for index, value in enumerate(key)}


def _is(target: Target) -> list[ColumnElement[bool]]:
    return [column == bindparam(f"k{index}", type_=column.type) for index, column in enumerate(target.key)]


def _literally(where: ColumnElement[bool], engine: Engine) -> ColumnElement[bool]:
    """With its constants written out: a partial index is only used where the planner can see them."""
    try:
        compiled = where.compile(engine, compile_kwargs={"literal_binds": True})
    except (SQLAlchemyError, NotImplementedError):
        return where
    text = str(compiled)
    if compiled.params:
        return where
    if engine.dialect.identifier_preparer._double_percents:
        text = text.replace("%%", "%")
    return literal_column(f"({text})", where.type)
