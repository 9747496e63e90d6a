"""reconcile/options, reconcile/columns: Intervals, back-off, times: what needs no database."""

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from sqlalchemy import Column, Date, DateTime, Integer, MetaData, String, Table

from penstock import NOW, Retry
from penstock.errors import DefinitionError
from penstock.reconcile.columns import EPOCH, Instant, Now, as_utc, from_micros, reconcilable_columns, resolve
from penstock.reconcile.options import Policy
from penstock.reconcile.reconciler import Reconciler
from penstock.reconcile.table import recognize
from penstock.reconcile.wakeup_subjects import ROWS, awaited, concerns, table_changed
from penstock.runtime.reconcilers.row_source import GRAIN, DueTimes

INSTANT = datetime(2026, 11, 15, 12, 30, 0, 123456, tzinfo=UTC)


@pytest.mark.parametrize(
    ("every", "status", "seconds"),
    [
        (15, "new", 15.0),
        ("2m", "new", 120.0),
        (timedelta(seconds=3), "new", 3.0),
        ({"new": 1, None: 9}, "new", 1.0),
        ({"new": 1, None: 9}, "old", 9.0),
        ({"new": "5s"}, "old", 15.0),
        (lambda row: row["n"] * 2, "new", 14.0),
    ],
)
def test_intervals(every: Any, status: str, seconds: float) -> None:
    assert Policy(every=every).interval({"status": status}, {"n": 7}) == seconds


def test_a_named_column_decides() -> None:
    policy = Policy(every={"hot": 1, None: 60}, by="heat")
    assert policy.interval({"status": "hot", "heat": "cold"}, None) == 60
    assert policy.interval({"status": "cold", "heat": "hot"}, None) == 1


def test_back_off_grows_and_ends_at_an_hour() -> None:
    policy = Policy(backoff=Retry(delay=10, factor=3, jitter=0))
    assert [policy.pause_after(attempts, 0.0) for attempts in (1, 2, 3, 50)] == [10, 30, 90, 3600]


def test_what_may_be_overwritten() -> None:
    assert Policy(overwrite=True).may_overwrite("ip")
    assert Policy(overwrite=("ip",)).may_overwrite("ip")
    assert not Policy(overwrite=("ip",)).may_overwrite("status")


def test_now_is_one_thing_with_a_name() -> None:
    assert Now() is NOW
    assert repr(NOW) == "NOW"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (DateTime(timezone=True), INSTANT),
        (DateTime(), INSTANT.replace(tzinfo=None)),
        (Instant(), INSTANT),
        (Date(), date(2026, 11, 15)),
    ],
)
def test_now_in_every_kind_of_column(kind: Any, expected: object) -> None:
    assert resolve(NOW, Column("at", kind), INSTANT) == expected


def test_now_where_no_time_belongs() -> None:
    with pytest.raises(DefinitionError, match="NOW"):
        resolve(NOW, Column("n", Integer()), INSTANT)


def test_other_times_are_kept_in_utc() -> None:
    india = INSTANT.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert resolve(india, Column("at", DateTime()), INSTANT) == INSTANT.replace(tzinfo=None)
    assert as_utc(india) == as_utc(INSTANT.replace(tzinfo=None)) == INSTANT
    assert from_micros(1_500_000) == EPOCH + timedelta(seconds=1.5)


def test_due_times_are_known_without_asking() -> None:
    due = DueTimes()
    assert due.until_next() is None
    due.add(100)
    due.add(100)
    due.add(5)
    wait = due.until_next()
    assert wait is not None
    assert 4.9 < wait <= 5 + GRAIN
    due.add(-1)
    again = due.until_next()
    assert again is not None
    assert again > 4, "what is past is forgotten"
    due.add(1e9)
    assert len(due._times) == 2


def test_who_a_hint_concerns() -> None:
    assert concerns(table_changed("volumes"), "volumes", "provision")
    assert not concerns(table_changed("fleets"), "volumes", "provision")
    assert concerns(awaited("provision"), "volumes", "provision")
    assert not concerns(awaited("other"), "volumes", "provision")
    assert concerns(ROWS, "volumes", "provision")
    assert not concerns("ready\tdefault\t0", "volumes", "provision")


def test_which_columns_decide_and_which_index_they_get() -> None:
    things = Table(
        "things",
        MetaData(),
        Column("id", Integer, primary_key=True),
        Column("status", String(20)),
        Column("text", String(5000)),
        *reconcilable_columns(),
    )
    reconciler = Reconciler(
        lambda _: None, things, where=(things.c.status == "x") & (things.c.text != ""), name="one"
    )
    assert reconciler.watched == {"status", "text"}
    found = {str(index.name): [column.name for column in index.columns] for index in things.indexes}
    partial, whole = reconciler.index_names
    assert partial.startswith("ix_things_one_")
    assert found == {partial: ["next_process_at"], whole: ["status", "next_process_at"]}


def test_a_stranger_is_not_a_table() -> None:
    with pytest.raises(DefinitionError, match="neither"):
        recognize(int)
