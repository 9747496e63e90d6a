"""The rows that the hosts reconcile. Every visit reads a value and writes the next: a stale apply shows in the books.

A mark is inserted in the transaction of each apply. So the marks of a row must count 1, 2, 3, ... without a gap and
without a repetition, and end where the row ends.
"""

import asyncio
from random import random
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Integer, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from penstock import Children, Reconcilable
from tests.chaos import plan
from tests.chaos.shop import app, ledger
from tests.chaos.terms import LEASE


class Base(DeclarativeBase):
    pass


class Counter(Base, Reconcilable):
    """Counts up to its target, which the producer raises under the row's lock."""

    __tablename__ = "counters"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    target: Mapped[int] = mapped_column(default=plan.ROUNDS)
    done: Mapped[int] = mapped_column(default=0)


class Fleet(Base, Reconcilable):
    """Sails with all its ships or not at all."""

    __tablename__ = "fleets"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    done: Mapped[int] = mapped_column(default=0)


class Ship(Base, Reconcilable):
    __tablename__ = "ships"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    fleet_id: Mapped[int] = mapped_column(ForeignKey("fleets.id"))
    sailed: Mapped[int] = mapped_column(default=0)
    done: Mapped[int] = mapped_column(default=0)


class Mark(Base):
    __tablename__ = "marks"
    line: Mapped[int] = mapped_column(
        BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True
    )
    kind: Mapped[str] = mapped_column(String(20))
    row: Mapped[int]
    value: Mapped[int]
    token: Mapped[int] = mapped_column(BigInteger)


async def visit(kind: str, item: Any) -> int:
    """Some work, then the next value, with its mark."""
    ledger.write("visit", kind=kind, row=item.id, token=item.token, value=item.row.done + 1)
    await asyncio.sleep(0.5 * random())
    value = int(item.row.done) + 1
    item.insert(Mark(kind=kind, row=item.row.id, value=value, token=item.token))
    return value


@app.reconciler(
    Counter, where=Counter.done < Counter.target, every=0.2, lease=LEASE, workers=3, name="counters"
)
async def count(item: Any) -> dict[str, Any]:
    return {"done": await visit("counter", item)}


@app.reconciler(
    Fleet,
    where=Fleet.done < plan.ROUNDS,
    every=0.2,
    lease=LEASE,
    workers=2,
    locks=[Children(Ship, Ship.fleet_id == Fleet.id)],
    name="fleets",
)
async def sail(item: Any) -> dict[str, Any]:
    value = await visit("fleet", item)
    for ship in item.children:
        item.update(ship, sailed=ship.sailed + 1)
    return {"done": value}


@app.reconciler(Ship, where=Ship.done < plan.ROUNDS, every=0.2, lease=LEASE, workers=3, name="ships")
async def polish(item: Any) -> dict[str, Any]:
    return {"done": await visit("ship", item)}
