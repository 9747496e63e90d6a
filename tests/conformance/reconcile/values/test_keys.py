"""reconcile/table: Keys of all kinds: rows are claimed, renewed, written, asked for and told apart by them."""

from __future__ import annotations

import enum
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import (
    CHAR,
    Boolean,
    Column,
    Date,
    DateTime,
    Enum,
    Integer,
    MetaData,
    Numeric,
    String,
    Table,
    Uuid,
    select,
)

from penstock import Penstock, Retry
from penstock.errors import ConfigurationError, RowNotFound
from penstock.operate.reconcilers import failing
from penstock.reconcile.columns import reconcilable_columns
from penstock.testing.drain_rows import ManualReconciler
from tests.conformance.reconcile.cloud import Cloud, Volume, declare, gadgets

Hands = Callable[..., ManualReconciler]


class Color(enum.Enum):
    RED = 1
    BLUE = 2


KINDS: dict[str, tuple[list[Any], list[tuple[Any, ...]]]] = {
    "texts": ([String(50)], [("a b",), ("ünï ☃",), ("a/b",), ("it's %s :x \\",), ("",), ('{a,b}"',)]),
    "padded texts": ([CHAR(8)], [("ab",), ("cd e",), ("12345678",)]),
    "numbers": ([Integer], [(-5,), (0,), (7,)]),
    "decimals": ([Numeric(12, 4)], [(Decimal("-1.5"),), (Decimal("0.1"),)]),
    "days": ([Date], [(date(2020, 1, 1),), (date(1999, 12, 31),)]),
    "enumerations": ([Enum(Color)], [(Color.RED,), (Color.BLUE,)]),
    "several of a kind": ([Integer, Enum(Color)], [(1, Color.RED), (1, Color.BLUE)]),
    "several kinds": (
        [Uuid, DateTime, Boolean],
        [(UUID(int=7), datetime(2020, 1, 1), True), (UUID(int=9), datetime(2020, 1, 1), False)],
    ),
    "parts that look like one": ([String(9), String(9)], [("a/b", "c"), ("a", "b/c"), ("a\\", "b/c")]),
    "long texts": ([String(400)], [("x" * 300 + "1",), ("x" * 300 + "2",)]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_known_by_their_keys(app: Penstock, hand: Hands, kind: str) -> None:
    types, keys = KINDS[kind]
    columns = [
        Column(f"k{place}", each, primary_key=True, autoincrement=False) for place, each in enumerate(types)
    ]
    state = Column("state", String(10), default="new")
    table = Table("locks", MetaData(), *columns, state, *reconcilable_columns())
    answers: list[Callable[[], Any]] = [lambda: {"state": "done"}, lambda: 1 / 0]
    reconciler = declare(app, table, lambda _: answers[-1](), name="visit", backoff=Retry(delay=0))
    table.create(app.database.engine)
    with app.database.engine.begin() as connection:
        connection.execute(
            table.insert(), [{f"k{place}": part for place, part in enumerate(key)} for key in keys]
        )
    mine = hand(reconciler)
    items = mine.take()
    assert len(items) == len(keys)
    assert not mine.renew(*items)
    mine.finish(*map(mine.work, items))
    assert len(app.database.read(failing)) == len(keys), "each has failed, and that can be seen"

    answers.pop()
    assert mine.visit() == len(keys)
    assert not app.database.read(failing)
    with app.database.engine.connect() as connection:
        assert set(connection.scalars(select(table.c.state))) == {"done"}
    for item in items:
        app.hint(table, item.id)
        with app.lock(table, item.id, timeout=30):
            pass
    assert mine.visit() == len(keys)


def test_what_is_no_key_is_said_alike_everywhere(app: Penstock, cloud: Cloud) -> None:
    """MySQL would take "1 or so" for 1, PostgreSQL 1.2 for 1, and each would say something else of the others."""
    cloud.volumes(1)
    for wrong in ("one", "1 or so", 1.2, b"1", {"ID": 1}):
        with pytest.raises(ConfigurationError, match="is not the key of a row of volumes"):
            app.lock(Volume, wrong)
        with pytest.raises(ConfigurationError, match="is not the key of a row of volumes"):
            app.hint(Volume, wrong)
    with pytest.raises(ConfigurationError, match="number is a whole number"):
        app.lock(gadgets, {"region": "eu", "number": "x"})
    for id in (1, "1", (1,), {"id": 1}):
        with app.lock(Volume, id):
            pass
    with pytest.raises(RowNotFound), app.lock(Volume, "2"):
        pass
