"""pipelines/advance/finish: after a halt the other running steps finish, or are told to stop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import Penstock, wait_for
from penstock.queue.jobs import Attempt
from penstock.runtime.worker import Worker
from penstock.telemetry import fault_points
from penstock.testing import SimulatedCrash, crash_at, drain, travel
from penstock.values.failure import Failure
from penstock.values.outcome import Outcome
from penstock.values.status import OutcomeKind, Reason
from tests.conformance.embedded import beside_a_worker
from tests.conformance.pipelines.random_worker import RandomWorker
from tests.waiting import until


class Pair:
    """A step that fails, beside one that takes long and a child that waits."""

    def __init__(self, app: Penstock, **settings: Any) -> None:
        self.told: list[str] = []

        @app.task(name="fails", retries=0)
        async def fails() -> None:
            await until(lambda: "long" in self.told)
            raise ValueError("no")

        @app.task(name="long")
        async def long() -> str:
            self.told.append("long")
            try:
                await asyncio.sleep(600 if settings else 0.3)
            finally:
                self.told.append("stopped" if settings else "finished")
            return "done"

        @app.pipeline(name="child")
        def child() -> Any:
            return wait_for("never")

        @app.pipeline(name="pair", **settings)
        def pair() -> Any:
            return [fails(), long(), *([child()] if settings else [])]

        self.pipeline = pair


def test_by_default_what_runs_finishes(app: Penstock) -> None:
    pair = Pair(app)

    async def main(_: Worker) -> None:
        run = await pair.pipeline.trigger_async()
        await until(lambda: run.status == "halted")
        assert {step.key: step.status for step in run.steps()} == {"fails": "failed", "long": "succeeded"}
        assert pair.told == ["long", "finished"]

    beside_a_worker(app, main)


def test_with_cancel_it_is_told_to_stop_and_so_are_child_runs(app: Penstock) -> None:
    pair = Pair(app, halt_running="cancel")

    async def main(_: Worker) -> None:
        run = await pair.pipeline.trigger_async()
        await until(lambda: run.status == "halted")
        steps = {step.key: (step.status, step.reason) for step in run.steps()}
        assert steps == {
            "fails": ("failed", "retries_exhausted"),
            "long": ("cancelled", "cancelled"),
            "child": ("cancelled", "cancelled"),
        }
        assert run.reasons == ["retries_exhausted"], "only what failed by itself is a reason"
        assert pair.told == ["long", "stopped"]
        assert [child.status for child in app.runs(pipeline="child")] == ["cancelled"]

    beside_a_worker(app, main)


def failed(claim: Any) -> Attempt:
    failure = Failure.note("ValueError", "no")
    return Attempt(claim, Outcome(OutcomeKind.ERRORED, failure=failure, reason=Reason.RETRIES_EXHAUSTED))


@pytest.fixture
def stubborn(app: Penstock) -> Any:
    @app.task(name="work", retries=0)
    def work(x: int) -> int:
        return x

    @app.pipeline(name="stubborn", halt_running="cancel")
    def stubborn() -> Any:
        return [work.options(key="one")(1), work.options(key="two")(2)]

    return stubborn


def both(app: Penstock, worker: RandomWorker) -> dict[str, Any]:
    claims = app.database.in_transaction(worker.settle_and_claim, [], 10)
    worker.source.committed()
    return {str(claim.node): claim for claim in claims}


def test_what_does_not_stop_is_given_up_on(app: Penstock, stubborn: Any) -> None:
    run = stubborn.trigger()
    worker = RandomWorker(app, 0)
    held = both(app, worker)
    app.database.in_transaction(worker.settle_and_claim, [failed(held["one"])], 0)
    drain(app)
    assert run.status == "running", "it has its grace"
    with travel(app, 11):
        drain(app)
    assert run.status == "halted"
    step = next(step for step in run.steps() if step.key == "two")
    assert (step.status, step.reason) == ("cancelled", "run_halted")
    assert "grace of its run's halt" in str(step.error)
    late = Attempt(held["two"], Outcome(OutcomeKind.SUCCEEDED, output="2"))
    app.database.in_transaction(worker.settle_and_claim, [late], 0)
    assert next(step for step in run.steps() if step.key == "two").status == "cancelled"
    again = run.revive()
    drain(app)
    assert again.result(1) == [1, 2]


def test_killed_anywhere_in_the_halt_it_is_told_all_the_same(app: Penstock, stubborn: Any) -> None:
    passed: list[str] = []

    def halt(point: str | None) -> Any:
        run = stubborn.trigger()
        worker = RandomWorker(app, 0)
        held = both(app, worker)
        attempt = [failed(held["one"])]
        if point is None:
            with fault_points.watching(passed.append):
                app.database.in_transaction(worker.settle_and_claim, attempt, 0)
        else:
            with crash_at(point), pytest.raises(SimulatedCrash):
                app.database.in_transaction(worker.settle_and_claim, attempt, 0)
            worker.source.rolled_back()
            app.database.in_transaction(worker.settle_and_claim, attempt, 0)
        with travel(app, 11):
            drain(app)
        return run

    halt(None)
    for point in dict.fromkeys(passed):
        run = halt(point)
        assert run.status == "halted", point
        assert {step.key: step.status for step in run.steps()} == {"one": "failed", "two": "cancelled"}
