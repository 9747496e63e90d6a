"""pipelines/advance, queue/settle: statements and transactions of a run, which no load on the machine can change."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from penstock import Penstock
from penstock.queue.jobs import Attempt
from penstock.queue.settle import settle
from penstock.runtime.worker import Worker
from penstock.telemetry import fault_points
from penstock.testing import drain
from penstock.values.outcome import Outcome
from penstock.values.status import OutcomeKind, RunStatus
from tests.conformance.embedded import beside_a_worker
from tests.conformance.pipelines.advance.test_simultaneous_finishers import claim_all
from tests.conformance.pipelines.random_worker import RandomWorker
from tests.conformance.rows import count, rows
from tests.waiting import until

BATCH = 50


def numbers(app: Penstock) -> Any:
    @app.task(name="same")
    def same(value: Any) -> Any:
        return value

    @app.task(name="total")
    def total(values: list[int]) -> int:
        return sum(values)

    @app.pipeline(name="folded")
    def folded(values: list[int]) -> Any:
        return total(same.map(values).collect())

    @app.pipeline(name="chain")
    def chain(value: int) -> Any:
        for _ in range(5):
            value = same(value)
        return value

    return folded, chain


def fan_in(app: Penstock, folded: Any, width: int) -> int:
    """Statements of all settles of a fan-in, in batches."""
    run = folded.trigger([1] * width)
    worker = RandomWorker(app, 0)
    statements: list[str] = []
    while claims := claim_all(worker):
        value = "1" if claims[0].node == "same" else str(width)
        with fault_points.watching(lambda point: statements.append(point) if point[-1].isdigit() else None):
            for start in range(0, len(claims), BATCH):
                attempts = [
                    Attempt(claim, Outcome(OutcomeKind.SUCCEEDED, output=value))
                    for claim in claims[start : start + BATCH]
                ]
                app.database.in_transaction(settle, attempts, worker.identity.id, (), app.follow)
    assert run.result(0) == width
    return len(statements)


def test_the_cost_of_a_fan_in_grows_with_its_width_and_no_faster(app: Penstock) -> None:
    folded, _ = numbers(app)
    fan_in(app, folded, BATCH)
    small, large = fan_in(app, folded, 4 * BATCH), fan_in(app, folded, 8 * BATCH)
    assert large <= 2 * small, "statements per element do not grow"
    assert large < 8 * BATCH, "a batch of finishers is a handful of statements"


def test_a_large_expand_goes_in_bounded_transactions_and_nothing_runs_before_all_is_there(
    make_app: Callable[..., Penstock],
) -> None:
    app = make_app(inline_fanout=10)
    folded, _ = numbers(app)
    chores, width, chunk = app.engine.chores, 100, 16
    chores.advancer.chunk = chunk
    run = folded.trigger([1] * width)
    assert count(app, "jobs") == 0, "the trigger itself writes none of them"
    staged = [count(app, "jobs")]
    while staged[-1] < width:
        assert chores.turn()
        staged.append(count(app, "jobs"))
        assert count(app, "availabilities") == 0, "no worker sees half a fan-out"
    assert max(after - before for before, after in pairwise(staged)) <= chunk
    while chores.turn():
        pass
    assert count(app, "availabilities") == width
    drain(app)
    assert run.result(0) == width


def test_the_worker_that_settles_a_step_holds_the_next_by_the_same_commit(app: Penstock) -> None:
    _, chain = numbers(app)
    chain.trigger(1)
    drain(app)
    run = chain.trigger(2)
    reached: list[str] = []
    with fault_points.watching(reached.append):
        drain(app)
    assert run.result(0) == 2
    commits = transactions(reached)
    both = [stages for stages in commits if "settle" in stages and ("claim" in stages or "hydrate" in stages)]
    assert len(both) >= 4, "each step but the first is claimed by the commit that made it"
    work = [stages for stages in commits if {"settle", "claim"} & stages]
    assert len(work) <= 5 * 2, "at most two commits for a step"
    statements = [point for point in reached if point.split(".")[0] in STEPS and point[-1].isdigit()]
    assert len(statements) <= 5 * 20, "a handful of statements for a step, also where each is cheap"


STEPS = {"claim", "hydrate", "settle", "advance"}


def transactions(reached: list[str]) -> list[set[str]]:
    """The stages that were committed together, commit by commit."""
    found: list[set[str]] = []
    fresh = True
    for point in reached:
        stage, _, part = point.rpartition(".")
        if part == "commit":
            if fresh:
                found.append(set())
            found[-1].add(stage)
        fresh = part != "commit"
    return found


@pytest.mark.parametrize("pipelines", [40])
def test_many_pipelines_share_one_crew(app: Penstock, pipelines: int) -> None:
    @app.task(name="same")
    async def same(value: int) -> int:
        return value

    def declare(number: int) -> Any:
        def body(value: int) -> Any:
            return same(value)

        return app.pipeline(name=f"pipeline {number}")(body)

    declared = [declare(number) for number in range(pipelines)]

    async def main(_: Worker) -> int:
        few = (await declared[0].trigger_async(0),)
        await until(lambda: all(run.status is RunStatus.SUCCEEDED for run in few))
        alone = threading.active_count()
        runs = [await pipeline.trigger_async(number) for number, pipeline in enumerate(declared)]
        left = "SELECT COUNT(*) FROM {runs} WHERE ended_at IS NULL"
        await until(lambda: rows(app, left)[0][0] == 0)
        assert [await run.result_async(1) for run in runs] == list(range(pipelines))
        return threading.active_count() - alone

    assert beside_a_worker(app, main) < pipelines / 2, "no thread for each pipeline"
