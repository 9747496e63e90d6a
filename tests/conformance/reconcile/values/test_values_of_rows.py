"""reconcile/apply: values of users' types with their own comparison, and columns that change with every update."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from sqlalchemy import (
    Column,
    DateTime,
    Float,
    Integer,
    MetaData,
    PickleType,
    String,
    Table,
    TypeDecorator,
    func,
    select,
    text,
)
from sqlalchemy.engine import Dialect

from penstock import NOW, Penstock
from penstock.reconcile.columns import reconcilable_columns
from penstock.reconcile.events import ColumnsKept
from penstock.testing.drain_rows import ManualReconciler
from tests.conformance.reconcile.cloud import declare

Hands = Callable[..., ManualReconciler]
LONG_AGO = datetime(2020, 1, 1)


class Version:
    """Two of the same are not equal, as users' own classes often are."""

    def __init__(self, number: int) -> None:
        self.number = number


class VersionType(TypeDecorator[Version]):
    impl = Integer
    cache_ok = True

    def process_bind_param(self, value: Version | None, dialect: Dialect) -> int | None:
        return None if value is None else value.number

    def process_result_value(self, value: int | None, dialect: Dialect) -> Version | None:
        return None if value is None else Version(value)


def made(app: Penstock, *columns: Column[Any], **row: Any) -> Table:
    key, status = Column("id", Integer, primary_key=True), Column("status", String(20), default="new")
    table = Table("holdings", MetaData(), key, status, *columns, *reconcilable_columns())
    table.create(app.database.engine)
    with app.database.engine.begin() as connection:
        connection.execute(table.insert().values(id=1, **row))
    return table


def only_row(app: Penstock, table: Table) -> Any:
    with app.database.engine.connect() as connection:
        return connection.execute(select(table)).one()


@pytest.mark.parametrize("kind", [VersionType, PickleType])
def test_values_that_do_not_know_that_they_are_equal(app: Penstock, hand: Hands, kind: Any) -> None:
    """Taken for what another writer has written, they would never be changed, and the row be visited all the time."""
    table = made(app, Column("version", kind), version=Version(1))
    kept: list[ColumnsKept] = []
    app.events.on(ColumnsKept, kept.append)
    assert hand(declare(app, table, lambda _: {"version": Version(2)}, name="visit")).visit() == 1
    assert only_row(app, table).version.number == 2
    assert not kept


def test_no_number(app: Penstock, hand: Hands, database_kind: str) -> None:
    """Which equals nothing, not even itself."""
    if database_kind != "postgres":
        pytest.skip("only PostgreSQL keeps it")
    table = made(app, Column("score", Float), score=float("nan"))
    hand(declare(app, table, lambda _: {"score": 1.0}, name="visit")).visit()
    assert only_row(app, table).score == 1.0


def stamped(app: Penstock) -> Table:
    at = Column("updated_at", DateTime, onupdate=func.now())
    revision = Column("revision", Integer, default=1, onupdate=text("revision + 1"))
    return made(app, at, revision, updated_at=LONG_AGO)


def test_a_visit_that_changes_nothing_is_no_update(app: Penstock, hand: Hands) -> None:
    """Nor are its claim, its renewal, an error, a hint or a lock: the user's row has not changed."""
    table = stamped(app)
    answers: list[Callable[[], Any]] = [lambda: None, lambda: 1 / 0]
    mine = hand(declare(app, table, lambda _: answers.pop()(), name="visit"))
    for _ in range(2):
        app.hint(table, 1)
        [item] = mine.take()
        mine.renew(item)
        mine.finish(mine.work(item))
    with app.lock(table, 1):
        pass
    mine.give_back(*mine.take())
    row = only_row(app, table)
    assert (row.updated_at, row.revision, row.process_attempts) == (LONG_AGO, 1, 0)


def test_what_a_handler_writes_is_one(app: Penstock, hand: Hands) -> None:
    table = stamped(app)
    hand(declare(app, table, lambda _: {"status": "done"}, name="visit")).visit()
    row = only_row(app, table)
    assert row.updated_at > LONG_AGO
    assert row.revision == 2


def test_a_handler_may_write_such_a_column_itself(app: Penstock, hand: Hands) -> None:
    """The claim has not written it: no other writer has."""
    table = stamped(app)
    mine = hand(declare(app, table, lambda _: {"updated_at": NOW}, name="visit"))
    assert mine.visit() == 1
    assert mine.visit() == 0, "it was kept, and the row is due at once"
    assert only_row(app, table).updated_at > LONG_AGO


def test_on_update_said_with_the_default(app: Penstock, hand: Hands, database_kind: str) -> None:
    if database_kind != "mariadb":
        pytest.skip("only MySQL has it")
    both = text("CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP")
    table = made(app, Column("updated_at", DateTime, server_default=both), updated_at=LONG_AGO)
    hand(declare(app, table, lambda _: None, name="visit")).visit()
    assert only_row(app, table).updated_at == LONG_AGO
