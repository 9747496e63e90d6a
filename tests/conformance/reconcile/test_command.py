"""cli/commands/reconcilers, operate/reconcilers: `penstock reconcilers`, `check` and `doctor`, called as the command
line calls them.
"""

import json
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy import text

from penstock import Penstock
from penstock.runtime.reconcilers.row_services import LeaseKeeper
from penstock.testing import travel
from penstock.testing.drain_rows import ManualReconciler
from tests.commands import call
from tests.conformance.reconcile.claim.test_failing import broken
from tests.conformance.reconcile.cloud import Cloud, Volume, declare

Hands = Callable[..., ManualReconciler]
Run = Callable[..., tuple[int, str]]
PROCESS = "00000000-0000-7000-8000-000000000001"


@pytest.fixture
def penstock(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`penstock("reconcilers", "--json")` on the app of this test."""
    module = ModuleType("shown")
    module.app = app  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shown", module)
    monkeypatch.setenv("PENSTOCK_APP", "shown:app")
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> tuple[int, str]:
        result = call(*arguments)
        return result.exit_code, result.output

    return run


def look(penstock: Run) -> tuple[dict[str, Any], list[Any]]:
    code, shown = penstock("reconcilers", "--json")
    assert code == 0, shown
    seen = json.loads(shown)
    return {row["name"]: row for row in seen["reconcilers"]}, seen["failing"]


def test_what_is_eligible_and_locked_and_for_how_long(
    app: Penstock, cloud: Cloud, hand: Hands, penstock: Run
) -> None:
    cloud.volumes(5)
    mine = hand(declare(app, Volume, lease=600, every=10, where=Volume.id < 5))
    first, *_ = mine.take(3)
    mine.finish(mine.end(first))
    rows, failing = look(penstock)
    row = rows["idle"]
    assert (row["table"], row["eligible"], row["locked"], row["expired"]) == ("volumes", 1, 2, 0)
    assert failing == []
    with travel(app, 700):
        row = look(penstock)[0]["idle"]
        assert (row["eligible"], row["locked"], row["expired"]) == (4, 0, 2)
        assert 690 <= row["lag"] < 900
        assert 700 <= row["oldest_visit"] < 900


def test_rate_lost_and_done(app: Penstock, other: Penstock, cloud: Cloud, hand: Hands, penstock: Run) -> None:
    cloud.volumes(3)
    reconciler = declare(app, Volume, lease=30, every=3600)
    mine = hand(reconciler)
    items = mine.take()
    with travel(other, 31):
        hand(reconciler, other).take(1)
    mine.finish(*[mine.end(item) for item in items])
    LeaseKeeper(app.database, app.events, lambda: [mine.source], lambda: PROCESS).notify()
    row = look(penstock)[0]["idle"]
    assert (row["processed"], row["failed"], row["lost"]) == (2, 0, 1)
    assert row["rate"] > 0


def test_failing_rows_with_their_errors(app: Penstock, cloud: Cloud, hand: Hands, penstock: Run) -> None:
    cloud.volumes(3)
    hand(declare(app, Volume, broken)).visit()
    _, failing = look(penstock)
    assert sorted((one["row"], one["attempts"], one["error"]) for one in failing) == [
        (str(number), 1, f"ConnectionError: no answer for {number}") for number in (1, 2, 3)
    ]
    code, shown = penstock("reconcilers", "--limit", "1")
    assert code == 0
    assert shown.count("ConnectionError") == 1
    for word in ("broken", "volumes", "eligible", "locked", "lag", "oldest visit", "visits/s", "lost"):
        assert word in shown


def test_where_a_row_has_failed(app: Penstock, cloud: Cloud, hand: Hands, penstock: Run) -> None:
    cloud.volumes(1)
    hand(declare(app, Volume, broken, name="broken")).visit()
    code, shown = penstock("reconcilers", "--tracebacks")
    assert (code, "Traceback (most recent call last)" in shown, "in broken" in shown) == (0, True, True)
    assert "Traceback" not in penstock("reconcilers")[1]
    assert "Traceback" in look(penstock)[1][0]["traceback"]


def test_an_app_without_any(app: Penstock, penstock: Run) -> None:
    app.prepare()
    code, shown = penstock("reconcilers")
    assert (code, "no reconcilers" in shown) == (0, True)
    assert look(penstock) == ({}, [])


def test_what_a_table_lacks_is_said_by_every_command(app: Penstock, penstock: Run) -> None:
    app.prepare()
    declare(app, Volume, where=Volume.status == "submitted")
    with app.database.engine.begin() as connection:
        connection.execute(text("CREATE TABLE volumes (id INTEGER PRIMARY KEY, status VARCHAR(20))"))
    code, shown = penstock("reconcilers")
    assert code != 0
    assert "lock_expires_at" in shown
    assert "penstock check" in shown
    for command in ("check", "doctor"):
        code, shown = penstock(command)
        assert code == 1
        assert "ALTER TABLE volumes ADD COLUMN lock_expires_at" in " ".join(shown.split())
