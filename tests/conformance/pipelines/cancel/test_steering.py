"""pipelines/lifecycle/cancel: cancel, pause and resume take effect in the database, whichever process does the rest."""

import pytest

import penstock
from penstock import Penstock, wait_for
from penstock.errors import ActionRefused, CancelConflict
from penstock.testing import crash_at, drain, travel


def statuses(run: object) -> dict[str, str]:
    return {step.key: step.status.value for step in run.steps()}  # type: ignore[attr-defined]


def three_steps(app: Penstock) -> object:
    @app.task(retries=0)
    def first() -> int:
        return 1

    @app.task(retries=0)
    def second(value: int) -> int:
        return value + 1

    @app.pipeline(name="three")
    def three() -> object:
        return second(second(first()))

    return three


def test_a_run_cancelled_before_it_is_due_never_starts(app: Penstock) -> None:
    run = three_steps(app).options(delay=60).trigger()  # type: ignore[attr-defined]
    assert run.status == "pending"
    assert run.cancel() is True
    assert run.status == "cancelled"
    with travel(app, 120):
        assert drain(app) == 0
    assert run.steps() == []


def test_cancelling_skips_what_has_not_started(app: Penstock) -> None:
    run = three_steps(app).trigger()  # type: ignore[attr-defined]
    assert drain(app, limit=1) == 1
    assert run.cancel() is True
    assert run.cancel() is False
    drain(app)
    assert run.status == "cancelled"
    assert statuses(run)["first"] == "succeeded"
    assert set(statuses(run).values()) == {"succeeded", "cancelled"}


def test_a_run_that_has_ended_cannot_be_cancelled(app: Penstock) -> None:
    run = three_steps(app).trigger()  # type: ignore[attr-defined]
    drain(app)
    with pytest.raises(CancelConflict, match="succeeded"):
        run.cancel()


def test_what_still_runs_after_the_grace_is_given_up_and_its_result_refused(app: Penstock) -> None:
    seen: list[str] = []

    @app.task
    def stubborn() -> str:
        run = app.run(str(penstock.current().run_id))
        run.cancel(grace=5)
        with travel(app, 10):
            while app.engine.chores.turn():
                pass
        seen.append(run.status)
        return "too late"

    @app.pipeline(name="stubborn_run")
    def stubborn_run() -> object:
        return stubborn()

    run = stubborn_run.trigger()
    drain(app)
    assert seen == ["cancelled"]
    assert run.status == "cancelled"
    (step,) = run.steps()
    assert (step.status, step.output) == ("cancelled", None)
    assert [attempt.outcome for attempt in step.attempts()] == ["cancelled"]


def test_cancelling_reaches_children(app: Penstock) -> None:
    @app.pipeline(name="child")
    def child() -> object:
        return wait_for("never")

    @app.pipeline(name="parent")
    def parent() -> object:
        return child()

    run = parent.trigger()
    drain(app)
    (inner,) = app.runs(pipeline="child")
    assert (run.status, inner.status) == ("running", "running")
    run.cancel()
    drain(app)
    assert (run.status, inner.status) == ("cancelled", "cancelled")


@pytest.mark.parametrize(
    "point", ["cancel_run.commit", "cancel_run.committed", "sweep.commit", "give_up.commit"]
)
def test_a_cancellation_survives_the_death_of_who_asked(app: Penstock, point: str) -> None:
    run = three_steps(app).trigger()  # type: ignore[attr-defined]
    drain(app, limit=1)
    with crash_at(point) as crash:
        run.cancel(grace=0)
        drain(app)
    assert crash.crashed
    if run.status == "running":  # died before it was written: nothing was asked
        run.cancel(grace=0)
    with travel(app, 120):
        drain(app)
    assert run.status == "cancelled"


def test_a_paused_run_starts_nothing_until_it_is_resumed(app: Penstock) -> None:
    run = three_steps(app).trigger()  # type: ignore[attr-defined]
    assert run.pause() is True
    assert run.pause() is False
    assert drain(app) == 0
    assert run.status == "paused"
    assert run.resume() is True
    assert run.resume() is False
    assert drain(app) == 3
    assert run.result(1) == 3


def test_a_resume_survives_the_death_of_who_asked(app: Penstock) -> None:
    run = three_steps(app).trigger()  # type: ignore[attr-defined]
    run.pause()
    drain(app)
    with crash_at("requeue.commit") as crash:
        run.resume()
    assert crash.crashed
    drain(app)
    assert run.result(1) == 3


def test_only_what_is_under_way_can_be_paused(app: Penstock) -> None:
    run = three_steps(app).trigger()  # type: ignore[attr-defined]
    drain(app)
    with pytest.raises(ActionRefused, match="succeeded"):
        run.pause()
    with pytest.raises(ActionRefused, match="succeeded"):
        run.resume()


def test_a_paused_run_can_be_cancelled(app: Penstock) -> None:
    run = three_steps(app).trigger()  # type: ignore[attr-defined]
    run.pause()
    drain(app)
    run.cancel()
    drain(app)
    assert run.status == "cancelled"
