"""database/boundary: a row that always fails is tried at growing intervals, whatever becomes of the others."""

from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.database import boundary
from penstock.database.boundary import FIRST_PAUSE, LONGEST_PAUSE, Boundary
from penstock.database.database import Database
from penstock.telemetry.events import RowHandled, RowSetAside, Stream


class Table:
    """Rows of one kind, some of which fail, and a clock that moves only when told."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now, self.bad, self.stream = 1000.0, {"bad"}, Stream()
        self.aside: list[RowSetAside] = []
        self.handled: list[RowHandled] = []
        self.stream.on(RowSetAside, self.aside.append)
        self.stream.on(RowHandled, self.handled.append)
        patch.setattr(boundary, "time", SimpleNamespace(monotonic=lambda: self.now))

    def boundary(self, what: str = "the row") -> Boundary[str]:
        never = SimpleNamespace(is_passing=lambda _: False, is_outage=lambda _: False)
        return Boundary(cast("Database", never), self.stream, what)

    def work(self, keys: Sequence[str]) -> list[str]:
        if wrong := self.bad & {*keys}:
            raise ValueError(wrong)
        return [*keys]

    def turn(self, rows: Boundary[str], *keys: str) -> list[str]:
        """Try the rows that are not left out, as the loops do."""
        left = rows.left
        tried = [key for key in keys if key not in left]
        return [key for done in rows.handle(tried, self.work) for key in done] if tried else []


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    return Table(monkeypatch)


def test_pauses_double_up_to_the_longest(table: Table) -> None:
    rows = table.boundary()
    for _ in range(14):
        assert table.turn(rows, "one", "bad", "two") == ["one", "two"]
        assert rows.left == ["bad"]
        seconds = table.aside[-1].seconds
        table.now += seconds - 0.01
        assert table.turn(rows, "one", "bad", "two") == ["one", "two"], "it is left out until then"
        table.now += 0.02
    pauses = [one.seconds for one in table.aside]
    assert pauses[0] == FIRST_PAUSE
    assert all(later == min(2 * before, LONGEST_PAUSE) for before, later in pairwise(pauses))
    assert pauses[-1] == LONGEST_PAUSE
    assert [one.tries for one in table.aside] == [*range(1, 15)]


def test_each_row_and_each_kind_has_pauses_of_its_own(table: Table) -> None:
    ready, due = table.boundary("the ready job"), table.boundary("the scheduled job")
    for _ in range(3):
        table.turn(ready, "bad")
        table.now += LONGEST_PAUSE
    table.bad.add("worse")
    table.turn(ready, "bad", "worse")
    table.turn(due, "bad")
    told = [(one.what, one.row, one.seconds) for one in table.aside[3:]]
    assert sorted(told) == [
        ("the ready job", "bad", 8.0),
        ("the ready job", "worse", 1.0),
        ("the scheduled job", "bad", 1.0),
    ]


def test_a_row_that_goes_through_begins_anew(table: Table) -> None:
    rows = table.boundary()
    for _ in range(4):
        table.turn(rows, "bad")
        table.now += LONGEST_PAUSE
    table.bad.clear()
    assert table.turn(rows, "bad") == ["bad"]
    assert table.handled == [RowHandled("the row", "bad")]
    assert (rows.is_empty, rows.next_due) == (True, None)
    table.bad.add("bad")
    table.turn(rows, "bad")
    assert table.aside[-1].seconds == FIRST_PAUSE


def test_a_row_that_was_not_seen_for_a_while_goes_on_where_it_was(table: Table) -> None:
    rows = table.boundary()
    table.turn(rows, "bad")
    table.now += 5
    due = rows.next_due
    assert due == 0.0
    rows.lapse()
    assert (rows.left, rows.next_due, rows.is_empty) == ([], None, False)
    assert rows.next_pause("bad") == 2.0
    table.turn(rows, "bad")
    assert (table.aside[-1].tries, table.aside[-1].seconds) == (2, 2.0)


def test_only_so_many_rows_are_remembered(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boundary, "MOST_ROWS", 3)
    rows: Any = table.boundary()
    keys = [f"bad {number}" for number in range(5)]
    table.bad.update(keys)
    assert table.turn(rows, *keys) == []
    assert rows.left == keys[2:]
