"""pipelines/lifecycle/reminders: while a step waits, its reminder is enqueued once a period, and not after it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from penstock import Penstock, wait_for
from penstock.operate.check import check_app
from penstock.operate.doctor import CheckContext, timers
from penstock.pipelines.lifecycle import signals
from penstock.pipelines.run import Run
from penstock.telemetry import fault_points
from penstock.testing import crash_at, drain, travel
from tests.conformance.rows import rows

SECRET = "a secret of sixteen and more"


class Office:
    """An app with a run that waits for a person, and the reminders that were sent meanwhile."""

    def __init__(self, app: Penstock, **options: Any) -> None:
        self.app = app
        self.told: list[dict[str, Any]] = []

        @app.task(name="nudge", queue="mail")
        def nudge(run_id: str, pipeline: str, signal: str, step: str, path: list[int], count: int) -> None:
            self.told.append({"run": run_id, "of": (pipeline, signal, step), "path": path, "count": count})

        @app.pipeline(name="approval", **options)
        def approval() -> Any:
            return wait_for("approve", timeout=3600, default="no", remind=nudge, remind_every=600)

        @app.pipeline(name="patient")
        def patient() -> Any:
            return wait_for("approve", remind=nudge, remind_every=600)

        @app.task(name="numbers")
        def numbers() -> list[int]:
            return [1, 2]

        @app.task(name="same")
        def same(value: Any) -> Any:
            return value

        @app.pipeline(name="elements")
        def elements() -> Any:
            each = same.map(numbers())
            return wait_for("approve", after=[each], remind=nudge, remind_every=600).collect()

    def waits(self, pipeline: str = "approval") -> Run:
        run = self.app.pipelines[pipeline].trigger()
        drain(self.app)
        return run

    def at(self, *seconds: float) -> list[int]:
        """The counts of the reminders that are sent when workers work at these times."""
        before = len(self.told)
        for later in seconds:
            with travel(self.app, later):
                drain(self.app)
        return [told["count"] for told in self.told[before:]]


@pytest.fixture
def office(app: Penstock) -> Office:
    return Office(app)


def test_a_reminder_says_every_period_what_is_waited_for(office: Office) -> None:
    run = office.waits()
    assert office.at(590) == []
    assert office.at(610, 620, 1190, 1210, 1810) == [1, 2, 3]
    assert office.told[0] == {"run": run.id, "of": ("approval", "approve", "approve"), "path": [], "count": 1}
    assert {queue for (queue,) in rows(office.app, "SELECT queue FROM {jobs} WHERE task = 'nudge'")} == {
        "mail"
    }


def test_no_reminder_after_the_signal(office: Office) -> None:
    run = office.waits()
    assert office.at(610) == [1]
    run.signal("approve", "yes")
    assert office.at(1210, 3000, 4000) == []
    assert run.result(0) == "yes"
    assert rows(office.app, "SELECT kind FROM {timers}") == []


def test_no_reminder_between_the_signal_and_its_delivery(office: Office) -> None:
    """The process that gave it died before it was delivered, and its timer is late."""
    run = office.waits("patient")
    office.app.database.in_transaction(signals.record, run.id, "approve", '"yes"')
    late = "UPDATE {timers} SET due_at = {now} + 9000000000 WHERE kind = 'signal'"
    office.app.database.in_transaction(lambda tx: tx.run(late))
    assert office.at(610, 1210) == []
    assert office.at(9100) == []
    assert run.result(0) == "yes"


def test_no_reminder_after_the_timeout_nor_at_it(office: Office) -> None:
    run = office.waits()
    assert office.at(610, 1210, 1810, 2410, 3010, 3610, 4210) == [1, 2, 3, 4, 5]
    assert run.result(0) == "no"


def test_no_reminder_after_a_cancellation(office: Office) -> None:
    run = office.waits()
    run.cancel()
    assert office.at(610, 1210) == []
    assert run.status == "cancelled"


def test_no_reminder_while_a_cancellation_is_under_way(office: Office) -> None:
    """The run is cancelled, and no worker has swept the wait."""
    run = office.waits()
    office.app.database.in_transaction(
        lambda tx: tx.run(
            "UPDATE {runs} SET mode = 'cancelled', status = 'cancelling' WHERE id = :id", id=run.id
        )
    )
    assert office.at(610, 1210) == []


def test_no_reminder_of_a_wait_that_was_cancelled_by_itself(office: Office) -> None:
    app = office.app

    @app.pipeline(name="several", on_failure="continue")
    def several() -> Any:
        return [wait_for("one", remind=app.tasks["nudge"], remind_every=600), wait_for("two")]

    run = office.waits("several")
    (step,) = [step for step in run.steps() if step.key == "one"]
    assert app.job(step.id).cancel()
    assert office.at(610, 1210) == []
    assert run.status == "running"


def test_no_reminder_after_the_deadline_of_the_run(app: Penstock) -> None:
    office = Office(app, deadline=1000)
    run = office.waits()
    assert office.at(610) == [1]
    assert office.at(1010, 1210, 1810) == []
    assert run.status == "halted"


def test_a_paused_run_sends_no_reminder_and_goes_on_when_it_is_resumed(office: Office) -> None:
    run = office.waits()
    run.pause()
    assert office.at(610, 1210) == []
    run.resume()
    assert office.at(1810, 2410) == [1, 2], "what was left out is not made up for, and the count has no holes"


def test_periods_without_a_worker_are_not_made_up_for(office: Office) -> None:
    office.waits("patient")
    assert office.at(6100) == [1]
    assert office.at(6590) == []
    assert office.at(6610, 7210) == [2, 3]


def test_no_reminder_of_what_ends_when_the_outage_does(office: Office) -> None:
    run = office.waits()
    assert office.at(3700) == []
    assert run.result(0) == "no"


def test_every_element_of_an_expand_has_reminders_of_its_own(office: Office) -> None:
    run = office.waits("elements")
    assert sorted(office.at(610)) == [1, 1]
    assert sorted(told["path"] for told in office.told) == [[0], [1]]
    assert run.signal("approve", "a", path=[0])
    assert office.at(1210) == [2]
    assert office.told[-1]["path"] == [1]
    assert not run.signal("approve", "b", path=[0]), "it was given before"
    assert run.signal("approve", "all")
    assert office.at(1810) == []
    assert run.result(0) == ["a", "all"]


def test_killed_anywhere_each_reminder_is_enqueued_once(office: Office) -> None:
    """Between the statements of taking the timer, enqueuing the task and setting the next timer."""
    reached: list[str] = []
    office.waits("patient")
    with fault_points.watching(reached.append):
        assert office.at(610) == [1]
    mine = list(dict.fromkeys([p for p in reached if p.partition(".")[0] in ("remind", "timer")]))
    assert {"remind.1", "remind.commit", "remind.committed"} <= set(mine)
    for point in mine:
        office.told.clear()
        run = office.waits("patient")
        with travel(office.app, 610):
            with crash_at(point) as crash:
                drain(office.app)
            assert crash.crashed, point
            drain(office.app)
        with travel(office.app, 1210):
            drain(office.app)
        assert [told["count"] for told in office.told if told["run"] == run.id] == [1, 2], point


def test_many_who_look_at_the_same_time_tell_it_once(office: Office) -> None:
    office.waits("patient")
    with travel(office.app, 610):
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda _: office.app.engine.chores.take_timer(), range(16)))
        assert len(rows(office.app, "SELECT id FROM {jobs} WHERE task = 'nudge'")) == 1
        drain(office.app)
    assert len(office.told) == 1


@pytest.mark.standard_profile
@pytest.mark.parametrize("steer", ["signal", "cancel_run", "pause"])
def test_who_steers_a_run_is_waited_for_before_anybody_is_reminded(
    office: Office, database_kind: str, steer: str
) -> None:
    """It has written, and not committed: so it is not known yet whether the person is still to be reminded."""
    if database_kind == "sqlite":
        pytest.skip("there is one writer at a time")
    app, run = office.app, office.waits("patient")
    deeds = {"signal": lambda: run.signal("approve", 1), "cancel_run": run.cancel, "pause": run.pause}
    held, decided, go_on = threading.Event(), threading.Event(), threading.Event()
    steering = threading.Thread(target=deeds[steer])
    reminding = threading.Thread(target=app.engine.chores.take_timer)

    def watch(point: str) -> None:
        if threading.current_thread() is steering and point == f"{steer}.commit":
            held.set()
            go_on.wait(60)
        elif threading.current_thread() is reminding and point == "remind.4":
            decided.set()  # the run's row is its own

    with travel(app, 610), fault_points.watching(watch):
        try:
            steering.start()
            assert held.wait(60)
            reminding.start()
            assert not decided.wait(0.3)
        finally:
            go_on.set()
            steering.join(60)
            reminding.join(60)
    assert decided.is_set()
    assert rows(app, "SELECT id FROM {jobs} WHERE task = 'nudge'") == []


def test_a_revived_run_begins_its_reminders_anew_and_the_old_one_has_none(office: Office) -> None:
    app = office.app
    broken = {"yes": True}

    @app.task(name="breaks", retries=0)
    def breaks() -> None:
        if broken.pop("yes", False):
            raise ValueError("once")

    @app.pipeline(name="mixed", on_failure="continue")
    def mixed() -> Any:
        return [breaks(), wait_for("late", remind=app.tasks["nudge"], remind_every=600, after=["breaks"])]

    old = office.waits("mixed")
    assert old.status == "failed"
    new = old.revive()
    drain(app)
    assert office.at(610) == [1]
    assert office.told[0]["run"] == new.id


# With a token, only by those who can sign it


class Signing:
    def __init__(self, app: Penstock) -> None:
        self.tokens: list[str] = []

        @app.task(name="ask")
        def ask(token: str) -> None:
            self.tokens.append(token)

        @app.pipeline(name="signed")
        def signed() -> Any:
            return wait_for("approve", timeout=3600, default="no", remind=ask, remind_every=600)


def test_the_token_of_a_reminder_resumes_until_the_timeout(make_app: Callable[..., Penstock]) -> None:
    app = make_app(secret=SECRET)
    signing = Signing(app)
    run = app.pipelines["signed"].trigger()
    drain(app)
    with travel(app, 610):
        drain(app)
        (token,) = signing.tokens
    with travel(app, 3500):
        assert app.resume(token, "yes") == run
    assert run.result(0) == "yes"


def test_a_process_without_the_secret_leaves_it_to_one_that_has_it(make_app: Callable[..., Penstock]) -> None:
    """As an operator's shell, which works off what is due after a cancel."""
    app, other = make_app(secret=SECRET), make_app()
    signing, unsigned = Signing(app), Signing(other)
    run = app.pipelines["signed"].trigger()
    drain(app)
    with travel(other, 700):
        assert drain(other) == 0
        assert other.engine.chores.turn() is False
        assert other.next_chore() not in (0, 0.0), "it does not look again and again for what is not its own"
        (finding,) = timers(CheckContext(other.database, other.metadata, frozenset()))
        assert "remind_signed" in finding.message
        assert "PENSTOCK_SECRET" in finding.advice
        assert "signed" in [problem.subject for problem in check_app(other)]
    assert check_app(app) == []
    with travel(app, 700):
        drain(app)
    assert (len(signing.tokens), unsigned.tokens) == (1, [])
    with travel(other, 3700):
        drain(other)
    assert run.result(0) == "no", "every worker handles timeouts"
