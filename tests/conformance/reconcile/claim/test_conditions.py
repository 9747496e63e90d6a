"""reconcile/conditions: whatever can be asked of a row can be a condition: its table can be made, and what it is
true of is found.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import (
    Boolean,
    Column,
    Date,
    DateTime,
    Enum,
    Integer,
    Interval,
    MetaData,
    String,
    Table,
    and_,
    bindparam,
    cast,
    exists,
    extract,
    func,
    literal_column,
    select,
    text,
)

from penstock import Penstock
from penstock.operate.reconcilers import lacks
from penstock.reconcile.columns import reconcilable_columns
from penstock.testing import drain
from penstock.testing.drain_rows import ManualReconciler
from tests.conformance.reconcile.cloud import declare

Hands = Callable[..., ManualReconciler]
Asked = Callable[[Table], Any]


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


ROWS: list[dict[str, Any]] = [
    {"id": 1, "status": "new", "color": Color.RED, "flag": True, "at": datetime(2020, 1, 1, tzinfo=UTC)},
    {"id": 2, "status": "it's \\ 5%", "color": Color.BLUE, "flag": False, "wait": timedelta(hours=2)},
    {"id": 3, "at": datetime(2120, 1, 1, tzinfo=UTC), "wait": timedelta(seconds=2)},
]
CONDITIONS: dict[str, Asked] = {
    "a time": lambda table: table.c.at < datetime(2030, 1, 1, tzinfo=UTC),
    "the time": lambda table: and_(table.c.status == "new", table.c.at < func.now()),
    "a time reckoned": lambda table: table.c.at + timedelta(days=1) < datetime(2030, 1, 1, tzinfo=UTC),
    "a part of a time": lambda table: extract("year", table.c.at) == 2020,
    "a time as a day": lambda table: cast(table.c.at, Date).is_not(None),
    "a duration": lambda table: table.c.wait > timedelta(minutes=1),
    "a name as a text": lambda table: cast(table.c.color, String(10)) == "BLUE",
    "truth": lambda table: table.c.flag,
    "untruth": lambda table: ~table.c.flag,
    "odd text": lambda table: table.c.status == "it's \\ 5%",
    "one of none": lambda table: table.c.status.in_([]),
    "none of none": lambda table: table.c.status.not_in([]),
    "other than": lambda table: table.c.status.is_distinct_from("new"),
    "looked up beside": lambda table: and_(
        table.c.flag, ~exists().where(table.alias("one").c.id > table.c.id + 1)
    ),
    "words": lambda _: text("status = 'new' OR status LIKE '%5%'"),
    "words about now": lambda _: text("at < CURRENT_TIMESTAMP"),
    "words that look up": lambda _: text("id = (SELECT MAX(n.id) FROM articles AS n)"),
    "words and more": lambda table: and_(table.c.id > 1, text("status LIKE '%5%'")),
}


@pytest.fixture
def articles() -> Table:
    return Table(
        "articles",
        MetaData(),
        Column("id", Integer, primary_key=True),
        Column("status", String(20)),
        Column("color", Enum(Color)),
        Column("flag", Boolean),
        Column("at", DateTime(timezone=True)),
        Column("wait", Interval),
        *reconcilable_columns(),
    )


def make(app: Penstock, table: Table, *rows: dict[str, Any]) -> None:
    table.metadata.create_all(app.database.engine)
    with app.database.engine.begin() as connection:
        for row in rows:
            connection.execute(table.insert().values(row))


@pytest.mark.parametrize("asked", CONDITIONS)
def test_rows_are_found_and_their_table_can_be_made(app: Penstock, articles: Table, asked: str) -> None:
    """An index that the database cannot have would keep `create_all` from making the table."""
    condition = CONDITIONS[asked](articles)
    visited: list[int] = []
    reconciler = declare(app, articles, lambda item: visited.append(item.id), where=condition, name="visit")
    make(app, articles, *ROWS)
    with app.database.engine.connect() as connection:
        expected = list(connection.scalars(select(articles.c.id).where(condition)))
    drain(app)
    assert sorted(visited) == sorted(expected)
    assert not lacks(app.database.engine, [reconciler])


def test_what_a_function_says_is_asked_each_time(app: Penstock, articles: Table, hand: Hands) -> None:
    least = [3]
    condition = articles.c.id >= bindparam("least", callable_=lambda: least[0], type_=Integer)
    visited: list[int] = []
    mine = hand(declare(app, articles, lambda item: visited.append(item.id), where=condition, name="visit"))
    make(app, articles, *ROWS)
    mine.visit()
    assert visited == [3]
    least[0] = 2
    mine.visit()
    assert visited == [3, 2]


WORDS: list[Callable[[str], Any]] = [
    lambda state: text(f"status = '{state}'"),
    lambda state: literal_column("status") == state,
]


@pytest.mark.parametrize("words", WORDS, ids=["text", "column"])
def test_a_row_changes_hands_at_once_whatever_the_words(
    app: Penstock, articles: Table, words: Callable[[str], Any]
) -> None:
    """It is unknown which columns they read: it may be any."""
    declare(app, articles, lambda _: {"status": "second"}, where=words("first"), name="one")
    declare(app, articles, lambda _: {"status": "third"}, where=words("second"), name="two")
    make(app, articles, {"id": 1, "status": "first"})
    drain(app)
    with app.database.engine.connect() as connection:
        assert connection.scalar(select(articles.c.status)) == "third"
