"""pipelines/advance: Deaths, restarts and deploys around a run: what others lose, spend or wedge on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import penstock
from penstock import Penstock
from penstock.pipelines.run import Run, Step
from penstock.queue import processes, reclaim
from penstock.queue.jobs import Claim
from penstock.runtime.worker import Worker
from penstock.telemetry import fault_points
from penstock.testing import crash_at, drain, travel
from tests.conformance.embedded import beside_a_worker
from tests.conformance.pipelines.advance.test_simultaneous_finishers import claim_all
from tests.conformance.pipelines.random_worker import RandomWorker
from tests.conformance.rows import rows
from tests.waiting import until


def one_step(app: Penstock, **options: Any) -> Run:
    @app.task(name="step", **options)
    def step() -> str:
        return "done"

    @app.pipeline(name="single")
    def single() -> Any:
        return step()

    return single.trigger()


def held(app: Penstock) -> tuple[RandomWorker, list[Claim]]:
    """A process that holds everything there is."""
    worker = RandomWorker(app, 0)
    return worker, claim_all(worker)


def only(run: Run) -> Step:
    (step,) = run.steps()
    return step


@pytest.mark.parametrize("role", ["worker", "advancer", "reconciler"])
def test_every_role_alone_takes_back_the_steps_of_a_silent_process(
    make_app: Callable[..., Penstock], role: str
) -> None:
    app = make_app(heartbeat_interval=0.1)
    run = one_step(app)
    held(app)
    assert only(run).status == "running"
    with travel(app, app.settings.reap_after + 60):

        async def main(_: Worker) -> None:
            await until(lambda: only(run).status != "running")

        beside_a_worker(app, main, role=role)
        assert only(run).attempts()[0].outcome == "crashed"
        drain(app)
    assert run.result(0) == "done"


def test_twenty_restarts_during_one_step_spend_nothing(app: Penstock) -> None:
    run = one_step(app, retries=0, max_crashes=1)
    for _ in range(20):
        worker, claims = held(app)
        assert len(claims) == 1
        app.database.in_transaction(processes.leave, [worker.identity.id])
        app.database.in_transaction(reclaim.reclaim, app.follow)
    assert run.status == "running"
    drain(app)
    assert run.result(0) == "done"
    outcomes = [attempt.outcome.value for attempt in only(run).attempts()]
    assert set(outcomes[:-1]) <= {"released"}
    assert outcomes[-1] == "succeeded"


def test_a_crash_after_the_halt_does_not_lose_the_callback(app: Penstock) -> None:
    told: list[str] = []

    @app.task(name="hear")
    def hear(run_id: str, status: str, reasons: list[str]) -> None:
        told.append(f"{run_id} {status} {reasons}")

    @app.task(name="fail", retries=0)
    def fail() -> None:
        raise ValueError("no")

    @app.pipeline(name="failing", on_halt=hear)
    def failing() -> Any:
        return fail()

    run = failing.trigger()
    with crash_at("advance.committed") as crash:
        drain(app)
    assert crash.crashed
    assert (run.status, told) == ("halted", [])
    drain(app)
    assert told == [f"{run.id} halted ['retries_exhausted']"]


def test_a_run_is_never_there_without_its_first_steps(app: Penstock) -> None:
    one_step(app)
    single = app.pipelines["single"]
    reached: list[str] = []
    with fault_points.watching(reached.append):
        single.trigger()
    windows = [point for point in reached if point.startswith("trigger.")]
    assert len(windows) > 3
    for point in windows:
        with crash_at(point) as crash:
            single.trigger()
        assert crash.crashed
    written = rows(app, "SELECT id FROM {runs}")
    queued = rows(app, "SELECT j.run_id FROM {jobs} j JOIN {availabilities} a ON a.job_id = j.id")
    assert sorted(queued) == sorted(written)
    assert len(written) == 3, "the two that were whole, and the one whose trigger died after its commit"


def test_a_step_that_set_the_context_and_died_may_set_it_again(app: Penstock) -> None:
    @app.task(name="note")
    def note() -> int:
        job = penstock.current()
        job.context["cursor"] = job.attempt
        return job.attempt

    @app.pipeline(name="noted")
    def noted() -> Any:
        return note()

    run = noted.trigger()
    with crash_at("execute.after") as crash:
        drain(app)
    assert crash.crashed
    assert run.context["cursor"] == 1
    drain(app)
    assert (run.result(0), run.context["cursor"]) == (2, 2)


def test_two_processes_with_the_same_host_and_pid_are_two(app: Penstock) -> None:
    app.prepare()
    first, second = RandomWorker(app, 0), RandomWorker(app, 1)
    run = one_step(app)
    claims = claim_all(second)
    described = rows(app, "SELECT DISTINCT host, pid FROM {processes}")
    assert len(described) == 1
    assert first.identity.id != second.identity.id
    app.database.in_transaction(reclaim.remove_process, first.identity.id)
    assert app.database.in_transaction(reclaim.reclaim, app.follow) == []
    assert [claim.job_id for claim in claims] == [only(run).id]
    assert only(run).status == "running", "the death of the one is not the death of the other"


def test_a_revived_join_sees_what_was_finished_before(app: Penstock) -> None:
    broken = {2}
    calls: list[int] = []

    @app.task(name="part", retries=0)
    def part(number: int) -> int:
        calls.append(number)
        if number in broken:
            raise ValueError(number)
        return number * 10

    @app.task(name="whole")
    def whole(parts: list[int]) -> list[int]:
        return parts

    @app.pipeline(name="joined", on_failure="continue")
    def joined() -> Any:
        return whole([part(1), part(2), part(3)])

    run = joined.trigger()
    drain(app)
    broken.clear()
    calls.clear()
    again = run.revive()
    drain(app)
    assert (again.result(0), calls) == ([10, 20, 30], [2])


def test_a_deploy_that_changes_a_pipeline_disturbs_no_run_under_way(
    make_app: Callable[..., Penstock],
) -> None:
    old, new = make_app(), make_app()
    for app in (old, new):

        @app.task(name="begin")
        def begin(value: int) -> int:
            return value + 1

        @app.task(name="finish")
        def finish(value: int) -> int:
            return value * 10

    def one_way(value: int) -> Any:
        return old.tasks["finish"](old.tasks["begin"](value))

    def another(value: int) -> Any:
        return new.tasks["begin"].options(key="renamed")(new.tasks["begin"](value))

    first = old.pipeline(name="changing")(one_way)
    second = new.pipeline(name="changing")(another)
    assert first.definition.hash != second.definition.hash
    under_way = first.trigger(1)
    drain(old, limit=1)
    fresh = second.trigger(1)
    drain(new)
    assert (new.run(under_way.id).result(0), fresh.result(0)) == (20, 3)
    assert [step.key for step in under_way.steps()] == ["begin", "finish"]
