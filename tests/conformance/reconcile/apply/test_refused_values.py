"""reconcile/apply, reconcile/claim: a value that the database refuses, or that cannot be read, is its row's error."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import (
    Column,
    Computed,
    DateTime,
    Enum,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    func,
    select,
    text,
)

from penstock import Children, Penstock, Retry, Snooze
from penstock.operate.reconcilers import failing
from penstock.reconcile.columns import reconcilable_columns
from penstock.testing import drain
from penstock.testing.drain_rows import ManualReconciler
from tests.conformance.reconcile.cloud import Cloud, Fleet, Instance, Volume, declare, idle

Hands = Callable[..., ManualReconciler]


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


def parts(app: Penstock) -> Table:
    """A table with all that can go wrong, and five rows."""
    table = Table(
        "spare_parts",
        MetaData(),
        Column("id", Integer, primary_key=True),
        Column("status", String(20), default="new"),
        Column("number", Integer, default=1),
        Column("twice", Integer, Computed("number * 2")),
        Column("label", Text),
        Column("color", Enum(Color, native_enum=False, length=20)),
        Column("expires_at", DateTime(timezone=True)),
        *reconcilable_columns(),
    )
    if app.database.engine.dialect.name == "postgresql":
        Index("by_label", table.c.label)
    table.create(app.database.engine)
    with app.database.engine.begin() as connection:
        connection.execute(table.insert(), [{"id": number} for number in range(1, 6)])
    return table


def change(app: Penstock, sql: str) -> None:
    with app.database.engine.begin() as connection:
        connection.execute(text(sql))


def states(app: Penstock, table: Table) -> dict[int, str]:
    with app.database.engine.begin() as connection:
        found = connection.execute(select(table.c.id, table.c.status).order_by(table.c.id))
        return {row.id: row.status for row in found}


def errors(app: Penstock) -> list[tuple[str, str]]:
    return [(row.row, row.error) for row in app.database.read(failing)]


OTHERS_DONE = {1: "new", 2: "done", 3: "done", 4: "done", 5: "done"}
MISTAKES: dict[str, Callable[[Table], Any]] = {
    "a column that is computed": lambda _: {"twice": 4},
    "a column that is not there": lambda _: {"number": text("nobody + 1")},
    "no SQL": lambda _: {"number": text("1 +*")},
    "several rows for one value": lambda table: {"number": select(table.alias().c.id).scalar_subquery()},
    "more than an index takes": lambda _: {"label": "".join(f"{n:x}" for n in range(50_000))},
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_statement_that_the_database_does_not_understand_is_no_outage(
    app: Penstock, hand: Hands, database_kind: str, mistake: str
) -> None:
    """Taken for one, it would be tried again for ever, and nothing else be written or claimed."""
    if mistake.startswith("several") and database_kind == "sqlite":
        pytest.skip("it takes the first")
    if mistake.startswith("more") and database_kind != "postgres":
        pytest.skip("its index has no such limit")
    table = parts(app)

    def visit(item: Any) -> Any:
        return MISTAKES[mistake](table) if item.id == 1 else {"status": "done"}

    mine = hand(declare(app, table, visit, where=table.c.status == "new"))
    assert mine.visit() == 5
    assert states(app, table) == OTHERS_DONE
    assert [row for row, _ in errors(app)] == ["1"]


def test_what_is_added_likewise(app: Penstock, hand: Hands) -> None:
    table = parts(app)

    def visit(item: Any) -> dict[str, Any]:
        if item.id == 1:
            item.insert(table, twice=7)
        return {"status": "done"}

    mine = hand(declare(app, table, visit, where=table.c.status == "new"))
    assert mine.visit() == 5
    assert states(app, table) == OTHERS_DONE


def test_a_row_that_cannot_be_read_is_that_rows_error(app: Penstock, hand: Hands) -> None:
    """Such as one that has a state already which only the next version of the program knows."""
    table = parts(app)
    change(app, "UPDATE spare_parts SET color = 'green' WHERE id = 1")
    visited: list[int] = []

    def visit(item: Any) -> dict[str, Any]:
        visited.append(item.id)
        return {"status": "done"}

    reconciler = declare(app, table, visit, where=table.c.status == "new", backoff=Retry(delay=0))
    mine = hand(reconciler)
    mine.visit()
    assert states(app, table) == OTHERS_DONE
    [(row, error)] = errors(app)
    assert row == "1"
    assert "LookupError: 'green' is not among the defined enum values" in error
    change(app, "UPDATE spare_parts SET color = 'BLUE' WHERE id = 1")
    mine.visit()
    assert states(app, table)[1] == "done"
    assert not errors(app)
    assert sorted(visited) == [1, 2, 3, 4, 5]


def test_a_time_without_end(app: Penstock, database_kind: str) -> None:
    """The server has times that no `datetime` can be."""
    if database_kind != "postgres":
        pytest.skip("only PostgreSQL has it")
    table = parts(app)
    change(app, "UPDATE spare_parts SET expires_at = 'infinity' WHERE id = 1")
    declare(app, table, lambda _: {"status": "done"}, where=table.c.status == "new", name="visit")
    drain(app)
    assert states(app, table) == OTHERS_DONE
    assert "timestamp too large" in errors(app)[0][1]


def test_a_row_that_cannot_be_read_is_given_up(app: Penstock) -> None:
    table = parts(app)
    change(app, "UPDATE spare_parts SET color = 'green' WHERE id = 1")
    declare(
        app,
        table,
        lambda _: {"status": "done"},
        where=table.c.status == "new",
        every={"odd": 60, None: 15},
        max_attempts=2,
        backoff=Retry(delay=0),
        on_exhausted={"status": "odd"},
        name="visit",
    )
    drain(app)
    assert states(app, table) == OTHERS_DONE | {1: "odd"}


def test_related_rows_that_cannot_be_read(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    table = parts(app)
    change(app, "UPDATE spare_parts SET color = 'green' WHERE id = 1")
    cloud.add(Fleet, {"id": 1}, {"id": 2})
    locks = [Children(table, table.c.id == Fleet.id)]

    def visit(item: Any) -> dict[str, Any]:
        item.update(item.children[0], status="seen")
        return {"status": "done"}

    assert hand(declare(app, Fleet, visit, locks=locks)).visit() == 2
    assert [row.status for row in cloud.all(Fleet)] == ["active", "done"]
    assert states(app, table)[2] == "seen"
    assert [row for row, _ in errors(app)] == ["1"]


def test_a_function_that_cannot_say_whether_related_rows_are_needed(
    app: Penstock, cloud: Cloud, hand: Hands
) -> None:
    cloud.add(Fleet, {"id": 1, "size": 0}, {"id": 2, "size": 2})
    locks = [Children(Instance, Instance.fleet_id == Fleet.id, when=lambda row: 1 / row.size > 0)]
    mine = hand(declare(app, Fleet, lambda _: {"status": "done"}, locks=locks, name="visit"))
    assert mine.visit() == 2
    assert [row.status for row in cloud.all(Fleet)] == ["active", "done"]
    assert errors(app) == [("1", "ZeroDivisionError: division by zero")]


NO_TIMES: dict[str, tuple[dict[str, Any], Callable[[Any], Any], str]] = {
    "a past interval": ({"every": lambda _: -5}, idle, "every=-5: give seconds"),
    "no interval": ({"every": lambda _: None}, idle, "every=None: give seconds"),
    "no time": ({}, lambda _: {"next_process_at": "soon"}, "next_process_at='soon': give a time"),
}


@pytest.mark.parametrize("what", NO_TIMES)
def test_a_next_visit_that_is_no_time(app: Penstock, cloud: Cloud, hand: Hands, what: str) -> None:
    options, handler, why = NO_TIMES[what]
    cloud.volumes(1)
    assert hand(declare(app, Volume, handler, name="visit", **options)).visit() == 1
    assert why in errors(app)[0][1]


def test_a_snooze_beyond_all_times_is_a_long_one(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    cloud.volumes(1)
    hand(declare(app, Volume, lambda _: Snooze(10**12), name="visit")).visit()
    assert not errors(app)
    assert cloud.get(Volume, 1).next_process_at.year > 2100


def test_a_mistake_costs_the_row_an_attempt_and_the_database_is_trusted_again(
    app: Penstock, cloud: Cloud, hand: Hands
) -> None:
    cloud.volumes(1)
    answers: list[Any] = [{"count": text("nobody")}, {"count": func.coalesce(Volume.count, 0) + 1}]
    mine = hand(declare(app, Volume, lambda _: answers.pop(0), name="visit", backoff=Retry(delay=0)))
    mine.visit()
    row = cloud.get(Volume, 1)
    assert (row.process_attempts, row.lock_token) == (1, None)
    mine.visit()
    assert cloud.get(Volume, 1).count == 1
