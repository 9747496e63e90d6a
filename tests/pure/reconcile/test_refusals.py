"""reconcile/reconciler: declarations are checked at once: later a mistake would stop every visit."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import ForeignKey, String, and_, bindparam, exists, select
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from penstock import Children, Penstock, Reconcilable, Shared
from penstock.errors import DefinitionError
from penstock.reconcile.reconciler import Reconciler


class Base(DeclarativeBase):
    pass


class Fleet(Base, Reconcilable):
    __tablename__ = "fleets"
    id: Mapped[int] = mapped_column(primary_key=True)
    status: Mapped[str] = mapped_column(String(10))


class Ship(Base, Reconcilable):
    __tablename__ = "ships"
    id: Mapped[int] = mapped_column(primary_key=True)
    fleet_id: Mapped[int] = mapped_column(ForeignKey("fleets.id"))


class Crew(Base, Reconcilable):
    __tablename__ = "crews"
    id: Mapped[int] = mapped_column(primary_key=True)


def visit(item: Any) -> None: ...


def declare(**options: Any) -> Reconciler:
    return Reconciler(visit, Fleet, name="visit", index=False, **options)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"backoff": 5}, "backoff=5: give a Retry"),
        ({"on_lost": 5}, "on_lost=5 must be a function"),
        ({"on_exhausted": 5, "max_attempts": 3}, "on_exhausted=5: give a dict"),
        ({"every": {}}, "every={}: give seconds by state"),
        ({"every": {"new": "soon"}}, r"every\['new'\]='soon': give a duration"),
        ({"every": {"new": -1}}, r"every\['new'\]=-1: give seconds"),
        ({"every": None}, "every=None: give seconds"),
        ({"lease": None}, "lease=None: give seconds"),
        ({"lease": 10**12}, "lease=1000000000000: give seconds .* no more than a hundred years"),
        ({"every": "40000d"}, "every='40000d': give seconds .* no more than a hundred years"),
        ({"where": Fleet.status == bindparam("state")}, "the parameter 'state' has no value"),
        ({"by": "kind", "every": {"new": 1}}, "fleets has no column 'kind'"),
        ({"overwrite": 5}, "overwrite=5: give names of columns"),
        ({"where": Ship.id == 1}, r"where= reads ships.id, which is not a column of fleets"),
        ({"where": and_(Fleet.status == "new", Ship.fleet_id == Fleet.id)}, "where= reads ships.fleet_id"),
        ({"locks": [Children(Ship, Ship.fleet_id == Crew.id)]}, "reads crews.id, .* of fleets or ships"),
    ],
)
def test_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(DefinitionError, match=why):
        declare(**options)


def test_related_rows_are_checked_where_they_are_said() -> None:
    with pytest.raises(DefinitionError, match=r"Children\(Ship, \.\.\.\): on=5 is not a condition"):
        Children(Ship, 5)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="patience=-1: give seconds"):
        Shared(Ship, Ship.fleet_id == Fleet.id, patience=-1)
    with pytest.raises(DefinitionError, match="when=5 must be a function"):
        Shared(Ship, Ship.fleet_id == Fleet.id, when=5)  # type: ignore[arg-type]


def test_accepted() -> None:
    assert declare(overwrite="status").policy.overwrite == ("status",)
    assert declare(every={"new": "1m", None: 5}).policy.every == {"new": 60.0, None: 5.0}
    declare(where=exists().where(Ship.fleet_id == Fleet.id))
    declare(where=Fleet.id.in_(select(Ship.fleet_id)))


def test_a_reconciler_says_which_rows_it_is_for() -> None:
    with Penstock("sqlite://") as app:
        with pytest.raises(DefinitionError, match=r"@app\.reconciler\(Model"):
            app.reconciler(visit)  # type: ignore[arg-type]
        with pytest.raises(DefinitionError, match="neither a declarative model"):
            app.reconciler(5)  # type: ignore[arg-type]
