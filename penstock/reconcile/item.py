"""The item that a handler gets: a row under its claim, the related rows held with it, and a list of changes to
make.

Nothing is written while the handler runs. Everything it asks for is applied afterwards in one transaction, if the
claim still stands then.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic

from sqlalchemy import Table
from typing_extensions import TypeVar

from penstock.errors import DefinitionError, LeaseLost
from penstock.reconcile.columns import HOLDING
from penstock.reconcile.locks import Children, Related, Shared
from penstock.reconcile.table import Key, Target, recognize, table_of
from penstock.values.failure import Failure

M = TypeVar("M", default=Any)


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """A related row under the same claim."""

    lock: Related
    target: Target
    key: Key
    row: Any
    kept: Mapping[str, Any]

    @property
    def seen(self) -> Mapping[str, Any]:
        """The values as they were read, whatever the handler did to them."""
        return self.target.as_read(self.row, self.kept)


@dataclass(slots=True)
class Changes:
    """Writes that a handler asks for, beside what it returns."""

    main: dict[str, Any] = field(default_factory=dict)
    deletes_main: bool = False
    updates: list[tuple[Target, Key, dict[str, Any]]] = field(default_factory=list)
    inserts: list[tuple[Target, dict[str, Any]]] = field(default_factory=list)
    deletes: list[tuple[Target, Key]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Claimed:
    """A row's claim, as the database knows it."""

    key: Key
    token: int
    deadline: datetime
    """The value that `next_process_at` was set to: if it is another at the end, a visit was asked for."""
    due: datetime
    """The value of `next_process_at` before the claim."""
    attempts: int
    crashes: int = 0
    """Workers in a row that never finished, before this claim."""
    taken_over: bool = False
    """True if the last worker never finished and still held the row."""


class Item(Generic[M]):
    """A row to work on. Read it here; return what is to be written."""

    def __init__(
        self,
        reconciler: str,
        target: Target,
        row: M,
        claim: Claimed,
        held: tuple[Held, ...],
        trusted_until: float,
        problem: Failure | None = None,
    ) -> None:
        self.reconciler = reconciler
        self.target = target
        self.row = row
        self.problem = problem
        """The error because of which its handler is not called; `row` is None if the row could not be read."""
        self.kept = {} if row is None else target.kept(row)
        self.claim = claim
        self.held = held
        self.trusted_until = trusted_until
        """The end of the lease by this process's monotonic clock; it is earlier than the end in the database."""
        self.changes = Changes()
        self.began = time.monotonic()
        self.tried: set[datetime] = set()
        """The times of applies under way, by which an apply whose answer was lost is recognized later."""
        self._lost = False

    @property
    def id(self) -> Any:
        """The primary key; a tuple where it has several columns."""
        return self.claim.key[0] if len(self.claim.key) == 1 else self.claim.key

    @property
    def token(self) -> int:
        """The token of the claim: with the id it identifies this claim among all claims."""
        return self.claim.token

    @property
    def seen(self) -> Mapping[str, Any]:
        """The values as they were read, whatever the handler did to them."""
        return {} if self.row is None else self.target.as_read(self.row, self.kept)

    @property
    def recovered(self) -> bool:
        """True if an earlier worker never finished with the row: its side effects may or may not have happened."""
        return self.claim.crashes > 0

    @property
    def attempts(self) -> int:
        """How many times in a row this has failed before."""
        return self.claim.attempts

    @property
    def crashes(self) -> int:
        """How many workers in a row never finished; when a handler ends in any way, the count starts again."""
        return self.claim.crashes

    @property
    def lease_lost(self) -> bool:
        """True if another worker may have the row by now: the outcome of this visit will not count."""
        return self._lost

    def lose(self) -> None:
        self._lost = True

    def check_lease(self) -> None:
        """Raise `LeaseLost` if the lease was lost; for handlers in threads."""
        if self.lease_lost:
            raise LeaseLost(f"{self.target.name} {self.id}")

    # related rows

    @property
    def places(self) -> list[tuple[Target, Key]]:
        """All rows that are held, this one first."""
        return [(self.target, self.claim.key), *((held.target, held.key) for held in self.held)]

    @property
    def children(self) -> list[Any]:
        return [held.row for held in self.held if isinstance(held.lock, Children)]

    @property
    def shared(self) -> Any:
        """The shared row, or None where there is none."""
        found = [held.row for held in self.held if isinstance(held.lock, Shared)]
        if len(found) > 1:
            raise DefinitionError(
                f"{self.reconciler} holds {len(found)} shared rows: use item.related(Model)"
            )
        return found[0] if found else None

    def related(self, entity: Any) -> list[Any]:
        """All related rows of one model."""
        table = table_of(entity)
        return [held.row for held in self.held if held.target.table is table]

    # changes

    def update(self, row: Any, /, **values: Any) -> None:
        """Write to this row or a related one, with everything else."""
        if row is self.row:
            for name in values:
                self.target.column(name)
            self.changes.main.update(values)
            return
        target, key = self._place_of(row)
        for name in values:
            if target.column(name).name in HOLDING:
                raise DefinitionError(f"{name} is kept by Penstock; a handler does not write it")
        self.changes.updates.append((target, key, values))

    def insert(self, row: Any, /, **values: Any) -> None:
        """Add a row: an instance of a model, or a table and its values."""
        if isinstance(row, Table):
            self.changes.inserts.append((recognize(row), values))
            return
        target = recognize(_kind(row))
        self.changes.inserts.append((target, {**target.values_of(row), **values}))

    def delete(self, row: Any, /) -> None:
        """Remove this row or a related one."""
        if row is self.row:
            self.changes.deletes_main = True
            return
        self.changes.deletes.append(self._place_of(row))

    def _place_of(self, row: Any) -> tuple[Target, Key]:
        for held in self.held:
            if held.row is row:
                return held.target, held.key
        if isinstance(row, Mapping) or not hasattr(type(row), "__mapper__"):
            raise DefinitionError(f"{row!r} is none of this item's rows: declare it in locks=[...]")
        target = recognize(_kind(row))
        if "lock_token" in target.table.c:
            raise DefinitionError(
                f"a row of {target.name} is not held by this item: declare it in locks=[Children(...)] or [Shared(...)]"
            )
        return target, target.key_of(row)

    def __repr__(self) -> str:
        return f"<{self.target.name} {self.id} in {self.reconciler}>"


def _kind(row: Any) -> Any:
    """As Any: mypy takes a class for something that cannot be hashed."""
    return type(row)
