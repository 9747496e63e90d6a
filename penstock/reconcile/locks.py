"""`Children` and `Shared`: declare related rows that are locked together with a row.

    locks=[Children(Instance, Instance.fleet_id == Fleet.id)]     every instance of the fleet, or try again later
    locks=[Shared(Instance, Instance.id == Job.instance_id)]      the one instance that many jobs share

Both are taken together with the row itself, renewed with it, and released with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement

from penstock.errors import DefinitionError
from penstock.reconcile import columns
from penstock.reconcile.conditions import condition
from penstock.reconcile.options import option
from penstock.reconcile.table import Entity, Target, target_of
from penstock.values import parse

PATIENCE = 120.0


@dataclass(frozen=True, slots=True, eq=False)
class Related:
    """Rows of another table that belong to a row."""

    entity: Entity
    on: ColumnElement[bool]
    when: Callable[[Any], bool] | None = None
    """Lock them only for rows for which this function returns true."""
    patience: float = PATIENCE
    """How long our announcement keeps others from claiming these rows while we wait for all of them."""

    def __post_init__(self) -> None:
        condition(f"{self.label}: on", self.on, getattr(self.entity, "__name__", str(self.entity)))
        if self.when is not None and not callable(self.when):
            raise DefinitionError(f"{self.label}: when={self.when!r} must be a function of the row")
        object.__setattr__(self, "patience", option("patience", self.patience, parse.duration))

    @property
    def label(self) -> str:
        """Its name in messages."""
        return f"{type(self).__name__}({getattr(self.entity, '__name__', self.entity)}, ...)"

    def target(self) -> Target:
        return target_of(self.entity, columns.HOLDING)

    def needed_by(self, row: Any) -> bool:
        return self.when is None or self.when(row)


class Children(Related):
    """All rows that belong to this one: locked all together, or not at all."""


class Shared(Related):
    """One row that many rows share; one of them holds it at a time."""


def checked(locks: object) -> tuple[Related, ...]:
    if not isinstance(locks, list | tuple):
        raise DefinitionError(
            "locks= takes a list, such as [Children(Instance, Instance.fleet_id == Fleet.id)]"
        )
    for lock in locks:
        if not isinstance(lock, Children | Shared):
            raise DefinitionError(f"locks=[{lock!r}]: declare related rows with Children(...) or Shared(...)")
        lock.target()
    return tuple(locks)
