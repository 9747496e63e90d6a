"""schedules/fire: a schedule whose row was damaged is set aside and named, at growing intervals; the others fire in
time.
"""

from typing import Any

import pytest
from sqlalchemy import update

from penstock import Penstock
from penstock.operate.doctor import CheckContext, Level, schedules
from penstock.telemetry.events import RowHandled, ScheduleFailed
from penstock.testing import drain, travel

DAMAGE = [
    {"every": 0},
    {"every": -1},
    {"every": -60_000_000},
    {"every": 1},
    {"missed": "all", "missed_limit": 0},
    {"missed": "all", "missed_limit": -5},
    {"missed": "all", "missed_limit": 2**31 - 1},
    {"missed": "zzz"},
    {"zone": "Nowhere/Land", "every": None, "cron": "* * * * *"},
    {"every": None, "cron": "nope"},
    {"backfills": "nope"},
    {"next_at": -(2**63), "every": None, "cron": "* * * * *"},
]


@pytest.mark.parametrize("damage", DAMAGE, ids=str)
def test_a_damaged_schedule_keeps_no_other_from_firing(app: Penstock, damage: dict[str, Any]) -> None:
    @app.task(name="tick", retries=0)
    def tick() -> None: ...

    bad = app.schedules.create(tick, every=60, name="bad", missed="all")
    good = app.schedules.create(tick, every=60, name="good", missed="all")
    tell(app, "bad", **damage)
    failed: list[ScheduleFailed] = []
    app.events.on(ScheduleFailed, failed.append)
    travel(app, 3600)
    assert drain(app) == 60
    assert len(good.ticks(limit=100)) == 60
    assert not bad.ticks(limit=100)
    assert [event.schedule for event in failed] == ["bad"]
    (found,) = [one for one in schedules(patient(app)) if one.level is Level.PROBLEM]
    assert "'bad' cannot be fired" in found.message


def test_it_is_tried_at_growing_intervals_until_it_is_mended(app: Penstock) -> None:
    @app.task(name="tick", retries=0)
    def tick() -> None: ...

    bad = app.schedules.create(tick, every=60, name="bad")
    tell(app, "bad", every=0)
    travel(app, 60)
    pauses = []
    for _ in range(12):
        app.fire_ticks()
        seen = app.database.read(lambda tx: tx.row("SELECT due_at, {now} FROM {schedules}"))
        assert seen is not None
        pauses.append(round((seen[0] - seen[1]) / 1e6))
        travel(app, pauses[-1] + 0.5)
    assert pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]
    handled: list[RowHandled] = []
    app.events.on(RowHandled, handled.append)
    tell(app, "bad", every=60_000_000)
    assert app.fire_ticks()
    assert [(event.what, event.row) for event in handled] == [("the schedule", "bad")]
    assert [tick.outcome for tick in bad.ticks(limit=1)] == ["fired"]


def tell(app: Penstock, name: str, **values: object) -> None:
    """Change a row by hand."""
    table = next(each for each in app.metadata.tables.values() if each.name.endswith("_schedules"))
    with app.database.engine.begin() as connection:
        connection.execute(update(table).where(table.c.name == name).values(values))


def patient(app: Penstock) -> CheckContext:
    return CheckContext(app.database, app.metadata, frozenset(app.tasks))
