"""pipelines/lifecycle/cancel: a deadline ends its run: waiting steps are skipped, running ones stopped or given up."""

from __future__ import annotations

from typing import Any

import penstock
from penstock import Penstock, wait_for
from penstock.testing import drain, travel


def late(app: Penstock, seconds: float) -> None:
    """Let this much time pass, and every worker look after the runs."""
    with travel(app, seconds):
        while app.engine.chores.turn():
            pass


def test_a_step_that_does_not_stop_is_given_up_on(app: Penstock) -> None:
    seen: list[Any] = []

    @app.task(name="stubborn")
    def stubborn() -> str:
        run = app.run(str(penstock.current().run_id))
        late(app, 61)
        seen.append((run.status, run.reasons, {step.key: step.status.value for step in run.steps()}))
        late(app, 75)
        seen.append((run.status, run.reasons))
        return "too late"

    @app.task(name="after")
    def after(value: Any) -> Any:
        return value

    @app.pipeline(name="slow", deadline=60)
    def slow() -> Any:
        return [after(stubborn()), wait_for("never")]

    run = slow.trigger()
    drain(app)
    assert seen == [
        ("running", ["deadline_exceeded"], {"stubborn": "running", "never": "skipped"}),
        ("halted", ["deadline_exceeded"]),
    ]
    steps = {step.key: step for step in run.steps()}
    assert (steps["stubborn"].status, steps["stubborn"].reason) == ("cancelled", "deadline_exceeded")
    assert [attempt.outcome for attempt in steps["stubborn"].attempts()] == ["cancelled"]
    assert "deadline" in (steps["stubborn"].error or "")
    assert (steps["after"].status, steps["after"].reason) == ("skipped", "run_halted")
    assert run.status == "halted", "the result that came too late was refused"


def test_a_step_that_stops_when_it_is_told_adds_no_other_reason(app: Penstock) -> None:
    @app.task(name="polite")
    def polite() -> object:
        late(app, 61)
        return penstock.Cancel("asked to")

    @app.pipeline(name="slow", deadline=60)
    def slow() -> Any:
        return polite()

    run = slow.trigger()
    drain(app)
    assert (run.status, run.reasons) == ("halted", ["deadline_exceeded"])


def test_a_deadline_reaches_children_and_what_they_finished_can_be_revived(app: Penstock) -> None:
    calls: list[str] = []

    @app.task(name="work")
    def work() -> str:
        calls.append("work")
        return "done"

    @app.pipeline(name="child")
    def child() -> Any:
        return [work(), wait_for("go")]

    @app.pipeline(name="parent", deadline=60)
    def parent() -> Any:
        return child()

    run = parent.trigger()
    drain(app)
    (inner,) = app.runs(pipeline="child")
    with travel(app, 61):
        drain(app)
        assert (run.status, run.reasons, inner.status) == ("halted", ["deadline_exceeded"], "cancelled")
        again = run.revive()
        drain(app)
        app.runs(pipeline="child", status="running")[0].signal("go", 1)
        drain(app)
        assert again.result(0) == ["done", 1]
        assert calls == ["work"]


def test_a_paused_run_has_its_deadline_too(app: Penstock) -> None:
    @app.task(name="work")
    def work() -> str:
        return "done"

    @app.pipeline(name="paused", deadline=60)
    def paused() -> Any:
        return work()

    run = paused.trigger()
    run.pause()
    drain(app)
    with travel(app, 61):
        drain(app)
        assert (run.status, run.reasons) == ("halted", ["deadline_exceeded"])


def test_a_run_that_ended_in_time_is_left_alone(app: Penstock) -> None:
    @app.task(name="work")
    def work() -> str:
        return "done"

    @app.pipeline(name="quick", deadline=60)
    def quick() -> Any:
        return work()

    run = quick.trigger()
    drain(app)
    with travel(app, 100):
        drain(app)
        assert run.result(0) == "done"
