"""operate/reconcilers: counts, failing rows, and what the reconciled tables lack."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, String, Table, inspect, text

from penstock import Children, Penstock
from penstock.errors import DefinitionError
from penstock.operate.check import check_app
from penstock.operate.doctor import CheckContext, Level, examine
from penstock.operate.reconcilers import failing, lacks, look
from penstock.reconcile import counts
from penstock.reconcile.columns import NAMES, reconcilable_columns
from penstock.testing import travel
from penstock.testing.drain_rows import ManualReconciler, reconcile
from tests.conformance.reconcile.claim.test_failing import broken
from tests.conformance.reconcile.cloud import Cloud, Fleet, Instance, Volume, declare

Hands = Callable[..., ManualReconciler]


def test_what_is_due_held_and_gone(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    cloud.volumes(5)
    reconciler = declare(app, Volume, where=Volume.id < 5, lease=30, every=10)
    mine = hand(reconciler)
    first = mine.take(3)
    mine.finish(mine.end(first[0]))
    (row,) = look(app.database, [reconciler])
    assert (row.name, row.table, row.eligible, row.locked, row.expired) == ("idle", "volumes", 1, 2, 0)
    with travel(app, 40):
        (row,) = look(app.database, [reconciler])
        assert (row.eligible, row.locked, row.expired) == (4, 0, 2)
        assert row.lag is not None
        assert 28 < row.lag < 60
        assert row.oldest_visit is not None
        assert row.oldest_visit >= 39


def test_rows_that_fail_and_why(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    cloud.volumes(1)
    hand(declare(app, Volume, broken)).visit()
    (row,) = app.database.read(failing)
    assert (row.reconciler, row.row, row.attempts, row.error) == (
        "broken",
        "1",
        1,
        "ConnectionError: no answer for 1",
    )


def test_what_processes_have_done(app: Penstock, cloud: Cloud) -> None:
    reconciler = declare(app, Volume)
    one, two = "0" * 8 + "-0000-7000-8000-" + "1" * 12, "0" * 8 + "-0000-7000-8000-" + "2" * 12
    for process, done in ((one, 10), (two, 5), (one, 20)):
        row = counts.row("idle", {"processed": done, "lost": 1}, {"processed": 0}, 10.0)
        app.database.in_transaction(counts.write, process, [row])
    (seen,) = look(app.database, [reconciler])
    assert (seen.processed, seen.failed, seen.lost, seen.rate) == (25, 0, 2, 2.5)


def test_a_table_made_with_its_reconcilers_lacks_nothing(app: Penstock) -> None:
    reconcilers = _own_table(app)
    reconcilers[0].target.table.create(app.database.engine)
    assert lacks(app.database.engine, reconcilers) == []
    assert check_app(app) == []


def test_an_older_table_is_brought_up_by_the_statements_given(app: Penstock) -> None:
    reconcilers = _own_table(app)
    with app.database.engine.begin() as connection:
        connection.execute(text("CREATE TABLE parts (id INTEGER PRIMARY KEY, state VARCHAR(20))"))
        connection.execute(text("INSERT INTO parts (id, state) VALUES (1, 'new')"))
    missing = lacks(app.database.engine, reconcilers)
    assert [lack.what for lack in missing] == [*[f"the column {name}" for name in NAMES], missing[-1].what]
    assert "index" in missing[-1].what
    assert [problem.subject for problem in check_app(app)] == ["parts"] * len(missing)
    findings = examine(CheckContext(app.database, app.metadata, frozenset(), tuple(reconcilers)))
    assert sum(f.check == "reconcilers" and f.level is Level.PROBLEM for f in findings) == len(missing)
    with app.database.engine.begin() as connection:
        for lack in missing:
            connection.exec_driver_sql(lack.sql.replace("%", "%%"))
    assert lacks(app.database.engine, reconcilers) == []
    assert reconcile(app) == 1, "and the row that was there before is worked on"


def test_a_table_that_is_not_there_is_named(app: Penstock) -> None:
    (lack,) = lacks(app.database.engine, _own_table(app))
    assert (lack.table, lack.what) == ("parts", "the table itself")


def test_related_tables_need_less(app: Penstock) -> None:
    with app.database.engine.begin() as connection:
        connection.execute(text("CREATE TABLE instances (id INTEGER PRIMARY KEY)"))
    declared = declare(app, Fleet, locks=[Children(Instance, Instance.fleet_id == Fleet.id)])
    missing = {lack.what for lack in lacks(app.database.engine, [declared]) if lack.table == "instances"}
    assert missing == {
        f"the column {name}"
        for name in ("lock_expires_at", "lock_token", "lock_owner", "lock_wanted_by", "lock_wanted_until")
    }


def test_the_index_serves_only_the_rows_that_matter(app: Penstock, database_kind: str) -> None:
    (reconciler,) = _own_table(app)
    reconciler.target.table.create(app.database.engine)
    (index,) = inspect(app.database.engine).get_indexes("parts")
    if database_kind == "mariadb":
        assert index["column_names"] == ["state", "next_process_at"]
    else:
        assert index["column_names"] == ["next_process_at"]
        assert "new" in str(list(map(str, index["dialect_options"].values())))


def test_reconcilers_whose_names_end_alike_have_an_index_each(app: Penstock) -> None:
    long = "a" * 70
    (parts,) = {one.target.table for one in _own_table(app)}
    for name in ("north.visit", "south.visit", f"{long}.b", f"{long}.c", "a.b-c", "a.b_c"):
        declare(app, parts, where=parts.c.state == name[:5], name=name)
    parts.create(app.database.engine)
    assert len(inspect(app.database.engine).get_indexes("parts")) == 7
    assert lacks(app.database.engine, list(app.reconcilers.values())) == []


def test_a_model_without_the_columns_is_refused_by_name(app: Penstock) -> None:
    plain = Table("plain", MetaData(), Column("id", Integer, primary_key=True))
    with pytest.raises(DefinitionError, match="plain lacks lock_expires_at"):
        declare(app, plain)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"workers": 0}, "workers"),
        ({"every": "soon"}, "every"),
        ({"lease": 0}, "lease"),
        ({"max_attempts": 3}, "on_exhausted"),
        ({"max_attempts": 3, "on_exhausted": {"sttus": "x"}}, "'status'"),
        ({"wrokers": 3}, "wrokers"),
        ({"name": "a:b"}, "colons"),
        ({"locks": [1]}, "Children"),
        ({"overwrite": ("stat",)}, "stat"),
    ],
)
def test_what_is_declared_wrongly_is_said_at_once(app: Penstock, options: dict[str, Any], words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        declare(app, Volume, **options)


def _own_table(app: Penstock) -> list[Any]:
    state = Column("state", String(20))
    table = Table(
        "parts", MetaData(), Column("id", Integer, primary_key=True), state, *reconcilable_columns()
    )
    return [declare(app, table, where=table.c.state.in_(["new", "odd"]), name="parts")]
