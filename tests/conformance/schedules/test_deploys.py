"""schedules/declare: over deploys the newer revision wins once, pauses stay, and removed schedules do not fire."""

import json
from collections.abc import Callable
from typing import Any

from sqlalchemy import text

import penstock
from penstock import Penstock
from penstock.operate.doctor import CheckContext, examine
from penstock.telemetry.events import ScheduleFailed
from penstock.testing import drain, travel

Make = Callable[..., Penstock]
SILENCE = 200


def version(make_app: Make, **given: Any) -> Penstock:
    """An app of one version of the code."""
    app = make_app()

    @app.task(name="note")
    def note(word: str = "") -> str:
        return word

    if given:
        note.schedule(name="s", **given)
    return app


def interval(app: Penstock) -> float:
    (s,) = app.schedules()
    return float(s.described()["every"])


def test_the_newer_revision_wins_once(make_app: Make) -> None:
    old, new = version(make_app, every=100), version(make_app, every=200)
    drain(old)
    assert interval(old) == 100
    drain(new)
    assert interval(old) == 200
    for _ in range(3):
        drain(old)
        drain(new)
        assert interval(old) == 200
    restarted = version(make_app, every=100)
    drain(restarted)
    assert interval(old) == 200


def test_after_a_rollback_the_old_revision_counts_again(make_app: Make) -> None:
    old, new = version(make_app, every=100), version(make_app, every=200)
    drain(old)
    drain(new)
    travel(old, SILENCE)
    drain(old)
    assert interval(old) == 100


def test_a_pause_survives_deploys(make_app: Make) -> None:
    old, new = version(make_app, every=100), version(make_app, every=200)
    drain(old)
    old.schedule("s").pause(why="audit")
    drain(new)
    assert (new.schedule("s").paused, new.schedule("s").pause_reason) == (True, "audit")
    travel(new, 500)
    drain(new)
    assert {tick.outcome for tick in new.schedule("s").ticks()} == {"skipped_paused"}


def test_an_update_holds_until_the_code_says_something_new(make_app: Make) -> None:
    app = version(make_app, every=100)
    drain(app)
    app.schedule("s").update(every=300)
    drain(version(make_app, every=100))
    assert interval(app) == 300
    drain(version(make_app, every=200))
    assert interval(app) == 200


def test_what_no_code_declares_any_more_does_not_fire_after_a_grace(make_app: Make) -> None:
    old, new = version(make_app, every=100), version(make_app)
    drain(old)
    travel(new, 101)
    drain(new)
    assert [tick.outcome for tick in new.schedule("s").ticks()] == ["fired"]
    travel(new, 1000)
    drain(new)
    s = new.schedule("s")
    assert len(s.ticks()) == 1
    assert s.declared is False
    assert s.described()["state"] == "not declared any more"
    found = examine(CheckContext(new.database, new.metadata, frozenset()))
    assert any("not declared" in each.message for each in found if each.check == "schedules")
    again = version(make_app, every=100)
    travel(again, 1101)
    drain(again)
    assert s.declared
    assert s.ticks()[0].outcome == "fired"


def test_made_at_run_time_it_needs_no_code(make_app: Make) -> None:
    app, other = version(make_app), version(make_app)
    app.schedules.create(app.tasks["note"], every=100, name="tenant")
    travel(other, 86_400)
    drain(other)
    assert other.schedule("tenant").ticks()[0].outcome == "fired"


def test_a_task_that_no_worker_knows_fires_and_waits(make_app: Make) -> None:
    app, stranger = version(make_app), make_app()
    s = app.schedules.create(app.tasks["note"], every=100, name="s", args=("x",))

    @app.pipeline(name="noting")
    def noting() -> Any:
        return app.tasks["note"]("y")

    runs = app.schedules.create(noting, every=100, name="r")
    travel(stranger, 100)
    drain(stranger)
    job, run = s.ticks()[0].job, runs.ticks()[0].run
    assert (job.status, run.status) == ("available", "running")
    travel(app, 100)
    drain(app)
    assert (job.result(), run.result()) == ("x", "y")


def test_one_bad_row_does_not_stop_the_others(make_app: Make) -> None:
    app = version(make_app)
    failed: list[ScheduleFailed] = []
    app.events.on(ScheduleFailed, failed.append)
    for name in ("a", "bad cron", "bad zone", "bad options", "bad pipeline", "z"):
        app.schedules.create(app.tasks["note"], "* * * * *", name=name)
    changes = {
        "bad cron": {"cron": "what ever"},
        "bad zone": {"zone": "Mars/Olympus"},
        "bad options": {"options": json.dumps([1])},
        "bad pipeline": {"kind": "pipeline", "target": "nowhere"},
    }
    with app.database.engine.begin() as connection:
        for name, columns in changes.items():
            for column, value in columns.items():
                statement = (
                    f"UPDATE {app.database.qualified('schedules')} SET {column} = :value WHERE name = :name"
                )
                connection.execute(text(statement), {"value": value, "name": name})
    travel(app, 61)
    drain(app)
    assert [app.schedule(name).ticks()[0].outcome for name in ("a", "z")] == ["fired", "fired"]
    assert {each.schedule for each in failed} == set(changes)
    told = [each.message for each in examine(CheckContext(app.database, app.metadata, frozenset()))]
    assert all(any(name in message for message in told) for name in changes)
    count = len(failed)
    travel(app, 120)
    drain(app)
    assert len(failed) == count, "the same error is told once"
    assert app.schedule("a").ticks()[0].outcome == "fired"
    assert [each.described()["name"] for each in app.schedules()]


def test_the_nominal_time_goes_with_children_and_revivals(make_app: Make) -> None:
    app = make_app()
    seen: list[object] = []

    @app.task(name="inner", retries=0)
    def inner(fail: bool) -> None:
        seen.append(penstock.current().scheduled_for)
        if fail and len(seen) == 1:
            raise ValueError("once")

    @app.pipeline(name="child")
    def child(fail: bool) -> Any:
        return inner(fail)

    @app.pipeline(name="parent")
    def parent(fail: bool) -> Any:
        return child(fail)

    s = app.schedules.create(parent, every=100, name="s", args=(True,))
    travel(app, 100)
    drain(app)
    (tick,) = s.ticks()
    assert tick.run.status == "halted"
    tick.run.revive()
    drain(app)
    assert seen == [tick.nominal] * 2


def test_one_that_cannot_be_declared_keeps_no_worker_from_starting(make_app: Make) -> None:
    app = version(make_app, every=100)
    failed: list[ScheduleFailed] = []
    app.events.on(ScheduleFailed, failed.append)

    @app.pipeline(name="asking")
    def asking() -> Any:
        return penstock.wait_for("answer")

    asking.schedule("@daily", name="asking")
    object.__setattr__(app.declared["asking"], "cron", "what ever")
    drain(app)
    assert [each.name for each in app.schedules()] == ["s"]
    assert [each.schedule for each in failed] == ["asking"]
