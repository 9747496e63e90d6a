"""pipelines/advance/state: a step whose next steps cannot be planned fails with the original error after some tries."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import penstock
from penstock import Penstock, wait_for
from penstock.errors import AdvancementFailed
from penstock.pipelines.advance import advance
from penstock.pipelines.advance.state import MOST_TRIES
from penstock.pipelines.lifecycle import claimed_steps
from penstock.pipelines.plan import inputs, plan
from penstock.telemetry.events import RowSetAside
from penstock.testing import crash_at, drain, travel
from tests.conformance.rows import count, rows

Patch = pytest.MonkeyPatch


def declare(app: Penstock) -> tuple[Any, list[Any]]:
    """A divide whose one arm is expanded, and what its callback is told."""
    told: list[Any] = []
    numbers = app.task(name="numbers", retries=0)(_numbers)
    double = app.task(name="double", retries=0)(_double)
    add = app.task(name="add", retries=0)(sum_of)

    @app.task(name="halted")
    def halted(event: dict[str, Any]) -> None:
        told.append((event["run_id"], event["reasons"]))

    @app.pipeline(name="p", on_halt=halted)
    def p(number: int) -> Any:
        beside = double.options(key="beside", delay=60)(number)
        return add(double.map(numbers(number)).collect(), beside)

    return p, told


def _numbers(number: int) -> list[int]:
    return list(range(number))


def _double(number: int) -> int:
    return 2 * number


def sum_of(numbers: list[int], other: int) -> int:
    return sum(numbers) + other


def raising(function: Any, when: Callable[..., bool], times: int = 1_000_000) -> Any:
    left = [times]

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if left[0] and when(*args):
            left[0] -= 1
            raise LookupError("nobody has thought of this")
        return function(*args, **kwargs)

    return wrapped


def over_three(_wiring: Any, _facts: Any, _ask: Any, measure: Any, *_: Any) -> bool:
    return bool(measure.width == 3)


def test_a_step_fails_with_the_original_error(app: Penstock, monkeypatch: Patch) -> None:
    p, told = declare(app)
    monkeypatch.setattr(advance, "resolve", raising(plan.resolve, over_three))
    bad, good = p.trigger(3), p.trigger(2)
    drain(app)
    assert (bad.status, bad.reasons) == ("halted", ["advancement_failed"])
    (step,) = [step for step in bad.steps() if step.status == "failed"]
    assert (step.key, step.reason) == ("numbers", "advancement_failed")
    assert step.error == "LookupError: nobody has thought of this"
    assert "over_three" in str(step.attempts()[0].traceback) or "wrapped" in str(step.attempts()[0].traceback)
    assert told == [(bad.id, ["advancement_failed"])]
    with travel(app, 61):
        drain(app)
    assert good.result(0) == 2 + 4
    monkeypatch.undo()
    revived = bad.revive()
    with travel(app, 61):
        drain(app)
        assert revived.result(0) == 6 + 6


def test_what_passes_is_tried_again(app: Penstock, monkeypatch: Patch) -> None:
    p, _ = declare(app)
    monkeypatch.setattr(advance, "resolve", raising(plan.resolve, over_three, times=3))
    run = p.trigger(3)
    with travel(app, 61):
        drain(app)
    assert run.result(0) == 6 + 6
    assert [len(step.attempts()) for step in run.steps()] == [1] * 6


def test_a_run_that_cannot_be_planned_at_all_is_halted(app: Penstock, monkeypatch: Patch) -> None:
    p, told = declare(app)
    bad, good = p.trigger(3), p.trigger(2)
    desk = app.engine.engine_state
    alone = raising(plan.advance, lambda *_: desk._here.trace.modes.keys() == {bad.id})
    monkeypatch.setattr(advance, "advance", alone)
    drain(app)
    assert (bad.status, bad.reasons) == ("halted", ["advancement_failed"])
    assert {step.key: step.status for step in bad.steps()} == {"numbers": "failed", "beside": "skipped"}
    assert told == [(bad.id, ["advancement_failed"])]
    with travel(app, 61):
        drain(app)
    assert good.result(0) == 2 + 4
    assert (count(app, "claims"), count(app, "timers")) == (0, 0)


def test_a_step_that_cannot_be_given_its_arguments_fails_by_itself(app: Penstock, monkeypatch: Patch) -> None:
    p, _ = declare(app)
    bad, good = p.trigger(3), p.trigger(2)
    wrong = raising(inputs.arguments, lambda *args: args[1] == "double" and args[4] == 2)
    monkeypatch.setattr(claimed_steps, "arguments", wrong)
    drain(app)
    assert (bad.status, bad.reasons) == ("halted", ["advancement_failed"])
    assert "nobody has thought of this" in str([step.error for step in bad.steps()])
    with travel(app, 61):
        drain(app)
    assert good.result(0) == 2 + 4


def test_a_definition_that_cannot_be_read_harms_its_own_runs_only(
    app: Penstock, make_app: Callable[..., Penstock]
) -> None:
    p, _ = declare(app)
    other = app.flow("other").start(app.tasks["double"])
    bad, good = p.trigger(3), other.trigger(4)
    spoil = "UPDATE {definitions} SET text = '{\"format\": 99}' WHERE name = 'p'"
    app.database.in_transaction(lambda tx: tx.run(spoil))
    fresh = make_app()
    declare(fresh)
    drain(fresh)
    assert good.result(0) == 8
    with travel(fresh, 61):
        drain(fresh)
    assert (bad.status, bad.reasons) == ("halted", ["advancement_failed"])
    assert {step.status for step in bad.steps()} <= {"failed", "skipped"}


def test_the_reaper_is_not_kept_from_its_work(app: Penstock, monkeypatch: Patch) -> None:
    @app.task(name="dies", max_crashes=0)
    def dies() -> None: ...

    run = app.flow("p").start(dies).trigger()
    with crash_at("execute.before"):
        drain(app)
    monkeypatch.setattr(advance, "advance", raising(plan.advance, lambda *_: True))
    aside: list[RowSetAside] = []
    app.events.on(RowSetAside, aside.append)
    for _ in range(MOST_TRIES):
        drain(app)
    assert len(aside) == MOST_TRIES
    assert all("nobody has thought of this" in one.error for one in aside)
    drain(app)
    assert (run.status, run.reasons) == ("halted", ["advancement_failed"])
    assert run.steps()[0].reason == "crashes_exhausted"


@pytest.mark.parametrize("kind", ["start", "wait"])
def test_a_timer_is_not_tried_for_ever(app: Penstock, monkeypatch: Patch, kind: str) -> None:
    @app.pipeline(name="waits")
    def waits() -> Any:
        return wait_for("go", timeout=10, default=1)

    what = "begin" if kind == "start" else "advance"
    run = waits.options(delay=5 if kind == "start" else 0).trigger()
    monkeypatch.setattr(advance, what, raising(getattr(plan, what), lambda *_: True))
    for minute in range(MOST_TRIES):
        assert run.status in ("pending", "running")
        with travel(app, 20 + 61 * minute):
            drain(app)
    with travel(app, 1000):
        drain(app)
    assert (run.status, run.reasons) == ("halted", ["advancement_failed"])


def test_a_transaction_of_the_handlers_is_rolled_back(app: Penstock, monkeypatch: Patch) -> None:
    @app.task(name="writes", retries=0)
    def writes() -> int:
        job = penstock.current()
        with job.transaction():
            job.complete(1)
        return 0

    run = app.flow("p").start(writes).trigger()
    wrong = raising(plan.advance, lambda *args: args[2].status == "succeeded")
    monkeypatch.setattr(advance, "advance", wrong)
    drain(app)
    assert (run.status, run.reasons) == ("halted", ["advancement_failed"])
    assert run.steps()[0].error == "LookupError: nobody has thought of this"


def ends(key: str) -> Callable[..., bool]:
    """What follows from the end of this step is being planned."""
    return lambda *args: bool(args[2].node == key)


def test_what_waits_is_swept_though_its_end_cannot_be_planned(app: Penstock, monkeypatch: Patch) -> None:
    """The run is halted already when it is given up: its sweep must still be done, or no worker ends the wait."""

    @app.task(name="fails", retries=0)
    def fails() -> None:
        raise ValueError

    @app.pipeline(name="p")
    def p() -> Any:
        return [fails(), wait_for("never")]

    run = p.trigger()
    monkeypatch.setattr(advance, "advance", raising(plan.advance, ends("never")))
    drained_for_minutes(app, MOST_TRIES + 3)
    assert (run.status, run.reasons) == ("halted", ["retries_exhausted", "advancement_failed"])
    assert {step.key: step.status for step in run.steps()} == {"fails": "failed", "never": "skipped"}


@pytest.mark.parametrize("last", ["step", "wait"])
def test_a_child_ends_though_what_follows_in_its_parent_cannot_be_planned(
    app: Penstock, monkeypatch: Patch, last: str
) -> None:
    """The parent is given up, not the child: what came of the child counts, as it should."""
    double = app.task(name="double")(_double)

    @app.pipeline(name="child")
    def child() -> Any:
        return double(4) if last == "step" else wait_for("go", timeout=10, default=1)

    @app.pipeline(name="parent")
    def parent() -> Any:
        return double(child())

    run = parent.trigger()
    monkeypatch.setattr(advance, "advance", raising(plan.advance, ends("child")))
    drained_for_minutes(app, MOST_TRIES + 3)
    ended = {row[0]: row[1] for row in rows(app, "SELECT pipeline, status FROM {runs}")}
    assert ended == {"parent": "halted", "child": "succeeded"}
    assert run.reasons == ["advancement_failed"]
    assert {step.key: step.status for step in run.steps()} == {"child": "succeeded"}


def drained_for_minutes(app: Penstock, minutes: int) -> None:
    """Once a minute, whatever is put off: what cannot be planned is raised, as in a worker's housekeeping."""
    for minute in range(minutes):
        with travel(app, 20 + 61 * minute), suppress(AdvancementFailed):
            drain(app)
