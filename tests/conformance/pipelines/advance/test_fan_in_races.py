"""pipelines/advance/join_rows: of fifty steps that end at the same moment, exactly one fires the join.

Each finisher is a thread with a connection and a transaction of its own, as if it were a process; a barrier lets all
of them go at once. A transaction settles a step of each of several runs, so that joins of many runs are fought for at a
time, in batches that overlap: a worker that locked them in another order than the rest would deadlock here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock import Penstock, switch, wait_for
from penstock.queue.jobs import Attempt, Claim
from penstock.queue.settle import settle
from penstock.testing import drain
from penstock.values.outcome import Outcome
from penstock.values.status import OutcomeKind, RunStatus
from tests.conformance.pipelines.advance.test_simultaneous_finishers import claim_all
from tests.conformance.pipelines.random_worker import RandomWorker
from tests.conformance.rows import rows

FINISHERS = 50
ROUNDS = 200
"""Runs whose join is fought for."""
TOGETHER = 10
"""Runs that are fought for at a time."""
ONE_WRITER = (10, 50)
"""Finishers and rounds where the database lets one write at a time anyway."""


def declare(app: Penstock) -> Any:
    @app.task(name="one")
    def one(x: int) -> int:
        return x

    @app.task(name="fold")
    def fold(xs: list[int]) -> int:
        return sum(xs)

    @app.pipeline(name="many")
    def many(xs: list[int]) -> Any:
        return fold(one.map(xs).collect())

    return many


class Race:
    """All finishers, round after round."""

    def __init__(self, app: Penstock, process: str, shares: list[list[list[Claim]]]) -> None:
        self.app = app
        self.process = process
        self.barrier = threading.Barrier(len(shares))
        self.problems: list[BaseException] = []
        self.threads = [threading.Thread(target=self.finish, args=(share,)) for share in shares]

    def run(self) -> None:
        for thread in self.threads:
            thread.start()
        for thread in self.threads:
            thread.join()
        assert self.problems == []

    def finish(self, share: list[list[Claim]]) -> None:
        try:
            for claims in share:
                attempts = [Attempt(claim, Outcome(OutcomeKind.SUCCEEDED, output="1")) for claim in claims]
                self.barrier.wait(120)
                self.app.database.in_transaction(settle, attempts, self.process, (), self.app.follow)
        except BaseException as error:
            self.problems.append(error)
            self.barrier.abort()


def transient_errors(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Errors after which a transaction was tried again, as they come."""
    seen: list[str] = []
    judge = app.database.is_passing

    def is_passing(error: BaseException) -> bool:
        seen.append(repr(error))
        return judge(error)

    monkeypatch.setattr(app.database, "is_passing", is_passing)
    return seen


@pytest.mark.slow
@pytest.mark.standard_profile  # so many at once, each refused for the sake of another, run out of tries
@pytest.mark.timeout(300)
def test_a_join_fires_once_in_every_round(
    make_app: Callable[..., Penstock], database_kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    finishers, rounds = ONE_WRITER if database_kind == "sqlite" else (FINISHERS, ROUNDS)
    app = make_app(pool_size=finishers + 2)
    many = declare(app)
    runs = [many.trigger([1] * finishers) for _ in range(rounds)]
    worker = RandomWorker(app, 0)
    by_place = {(claim.run_id, claim.path): claim for claim in claim_all(worker)}
    assert len(by_place) == finishers * rounds
    paths = sorted({path for _, path in by_place if path is not None})
    shares = [
        [
            [by_place[run.id, path] for run in runs[start : start + TOGETHER]]
            for start in range(0, rounds, TOGETHER)
        ]
        for path in paths
    ]
    errors = transient_errors(app, monkeypatch)
    Race(app, worker.identity.id, shares).run()
    assert errors == [], "locks are taken in one order"
    folds = rows(app, "SELECT run_id, COUNT(*) FROM {jobs} WHERE node = 'fold' GROUP BY run_id")
    assert dict(folds) == {run.id: 1 for run in runs}
    joins = rows(app, "SELECT DISTINCT node, still_open, fired FROM {joins}")
    assert [(node, left, bool(fired)) for node, left, fired in joins] == [("@collect.one", 0, True)]
    limit = 20
    drain(app, limit=limit)
    ended = [run for run in runs if run.status is RunStatus.SUCCEEDED]
    assert [run.result(0) for run in ended] == [finishers] * limit


def test_two_pipelines_that_share_everything_never_deadlock(app: Penstock) -> None:
    """The same tasks, the same child, switches, waits and failures; settled in mixed batches by several at once."""

    @app.task(name="same")
    def same(x: Any) -> Any:
        return x

    @app.task(name="odd", retries=0)
    def odd(x: int) -> int:
        if x % 2:
            raise ValueError(x)
        return x

    @app.task(name="fold")
    def fold(xs: list[Any]) -> int:
        return len(xs)

    @app.pipeline(name="shared")
    def shared(x: int) -> Any:
        return fold([same(x), same(x)])

    def body(xs: list[int]) -> Any:
        x = same.map(xs)
        chosen = switch(x, {"1": same}, otherwise=shared)
        odd.options(on_failure="ignore")(x)
        return fold([fold(chosen.collect()), wait_for("go")])

    left = app.pipeline(name="left")(body)
    right = app.pipeline(name="right", on_failure="continue")(body)
    runs = [pipeline.trigger([0, 1, 2, 3]) for _ in range(3) for pipeline in (left, right)]
    workers = [RandomWorker(app, seed) for seed in range(4)]
    problems: list[BaseException] = []

    def work(worker: RandomWorker) -> None:
        try:
            runs[workers.index(worker)].signal("go", 1)
            worker.run()
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for run in runs[4:]:
        run.signal("go", 1)
    for thread in threads:
        thread.join(90)
    assert problems == []
    drain(app)
    assert {run.status.value for run in runs} == {"failed"}, (
        "ignored failures count, and nothing else went wrong"
    )
    assert all(step.status.terminal for run in runs for step in run.steps())
