"""pipelines/lifecycle/cancel: a cancellation reaches child runs, also those that were given more time before."""

from collections.abc import Callable

import pytest

import penstock
from penstock import Penstock, wait_for
from penstock.database.transaction import Transaction
from penstock.pipelines.run import Run
from penstock.queue import control
from penstock.queue.jobs import Claim
from penstock.testing import drain, travel


def nested(app: Penstock, inmost: object) -> Run:
    """A run whose child has a child, in which this task is the only step."""

    @app.pipeline(name="inner")
    def inner() -> object:
        return inmost()  # type: ignore[operator]

    @app.pipeline(name="middle")
    def middle() -> object:
        return inner()

    @app.pipeline(name="outer")
    def outer() -> object:
        return middle()

    return outer.trigger()


def only(app: Penstock, pipeline: str) -> Run:
    (run,) = app.runs(pipeline=pipeline)
    return run


def test_cancelling_the_step_of_a_child_run_cancels_that_run(app: Penstock) -> None:
    @app.task
    def after(value: object) -> object:
        raise AssertionError("nothing starts in a run that was cancelled")

    @app.pipeline(name="inner")
    def inner() -> object:
        return after(wait_for("go"))

    @app.pipeline(name="middle")
    def middle() -> object:
        return inner()

    @app.pipeline(name="outer")
    def outer() -> object:
        return middle()

    run = outer.trigger()
    drain(app)
    (step,) = run.steps()
    assert (step.key, step.status) == ("middle", "waiting")
    assert app.job(step.id).cancel() is True
    drain(app)
    assert run.status == "halted"
    assert (only(app, "middle").status, only(app, "inner").status) == ("cancelled", "cancelled")


def test_a_child_run_that_is_being_cancelled_keeps_its_grace_when_its_step_is_cancelled(
    app: Penstock,
) -> None:
    seen: list[str] = []

    @app.task
    def stubborn() -> None:
        (waiting,) = only(app, "middle").steps()
        assert only(app, "inner").cancel(grace=3600) is True
        assert app.job(waiting.id).cancel() is True
        for later in (60, 4000):
            with travel(app, later):
                app.engine.work_off()
                seen.append(only(app, "inner").status)

    nested(app, stubborn)
    drain(app)
    assert seen == ["cancelling", "cancelled"]


@pytest.mark.parametrize("paused", [False, True])
def test_a_child_step_that_is_cancelled_while_it_is_claimed_opens_no_run(app: Penstock, paused: bool) -> None:
    hydrate = app.prepare_claimed_steps
    assert hydrate is not None

    def meanwhile(tx: Transaction, claims: list[Claim], by_reading: bool = False) -> list[Claim]:
        control.cancel(tx, [claim.job_id for claim in claims])
        if paused:
            tx.run("UPDATE {runs} SET status = 'paused', paused_at = {now}")
        return hydrate(tx, claims, by_reading)

    @app.task
    def never() -> None:
        raise AssertionError

    run = nested(app, never)
    app.prepare_claimed_steps = meanwhile
    drain(app)
    assert [step.status for step in run.steps()] == ["cancelled"]
    assert app.runs(pipeline="middle") == []


def statuses_after(app: Penstock, seconds: float) -> list[str]:
    with travel(app, seconds):
        app.engine.work_off()
        return [only(app, name).status.value for name in ("outer", "middle", "inner")]


def child_first(outer: Run, middle: Run, inner: Run) -> None:
    assert middle.cancel(grace=3600) is True
    assert outer.cancel(grace=20) is True


def inmost_first(outer: Run, middle: Run, inner: Run) -> None:
    assert inner.cancel(grace=3600) is True
    assert outer.cancel(grace=20) is True


def parent_twice(outer: Run, middle: Run, inner: Run) -> None:
    assert outer.cancel(grace=3600) is True
    assert outer.cancel(grace=20) is False


def shorter_and_longer(outer: Run, middle: Run, inner: Run) -> None:
    assert outer.cancel(grace=20) is True
    assert middle.cancel(grace=3600) is False
    assert outer.cancel(grace=3600) is False


@pytest.mark.parametrize("ask", [child_first, inmost_first, parent_twice, shorter_and_longer])
def test_of_two_graces_the_shorter_one_counts(app: Penstock, ask: Callable[[Run, Run, Run], None]) -> None:
    seen: list[list[str]] = []

    @app.task
    def stubborn() -> None:
        ask(only(app, "outer"), only(app, "middle"), only(app, "inner"))
        seen.append(statuses_after(app, 10))
        seen.append(statuses_after(app, 40))

    nested(app, stubborn)
    drain(app)
    assert seen == [["cancelling"] * 3, ["cancelled"] * 3]


def test_no_grace_at_all_ends_a_run_that_was_given_an_hour(app: Penstock) -> None:
    seen: list[object] = []

    @app.task
    def stubborn() -> str:
        run = app.run(str(penstock.current().run_id))
        seen.extend(
            [run.cancel(grace=3600), run.status, run.cancel(grace=0), run.status, run.cancel(grace=0)]
        )
        return "too late"

    @app.pipeline(name="alone")
    def alone() -> object:
        return stubborn()

    run = alone.trigger()
    drain(app)
    assert seen == [True, "cancelling", False, "cancelled", False]
    assert [act.detail for act in app.audit(run) if act.act == "cancel"] == [{"grace": 0}, {"grace": 3600}]
