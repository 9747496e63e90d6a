"""queue/jobs, pipelines/advance/step_rows: a next step that the settling worker holds is a claim like any other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock import Penstock
from penstock.database.transaction import Transaction
from penstock.pipelines.run import Run
from penstock.queue import reclaim
from penstock.queue.jobs import Attempt, Claim
from penstock.runtime.pump.lanes import Lanes
from penstock.telemetry import fault_points
from penstock.telemetry.fault_points import SimulatedCrash
from penstock.testing import crash_at, drain
from penstock.values.parse import QueueLimit
from penstock.values.status import OutcomeKind
from tests.conformance.pipelines.random_worker import RandomWorker
from tests.conformance.rows import rows


@pytest.fixture
def run(app: Penstock) -> Run:
    @app.task(name="one")
    def one(number: int) -> int:
        return number + 1

    return app.flow("two").start(one).chain(one).trigger(1)


def first(worker: RandomWorker) -> Attempt:
    """The first step, claimed and done."""

    def take(tx: Transaction) -> list[Claim]:
        worker.source.lanes.force_sweep()
        return worker.source.complete(tx, worker.source.claim(tx, 1))

    (claim,) = worker.app.database.in_transaction(take)
    worker.source.committed()
    return worker.execute(claim)


def settle(worker: RandomWorker, attempt: Attempt) -> list[Claim]:
    """Settle with room for what follows, as a pump does."""

    def both(tx: Transaction) -> list[Claim]:
        return worker.source.complete(tx, worker.source.settle(tx, [attempt], room=10))

    claims = worker.app.database.in_transaction(both)
    worker.source.committed()
    return claims


def queued(app: Penstock) -> int:
    return len(rows(app, "SELECT seq FROM {availabilities}"))


def test_the_next_step_needs_no_place_in_the_queue(app: Penstock, run: Run) -> None:
    worker = RandomWorker(app, 0)
    (held,) = settle(worker, first(worker))
    assert queued(app) == 0
    assert [token for (token,) in rows(app, "SELECT token FROM {claims}")] == [held.token]
    assert held.call is not None
    assert settle(worker, worker.execute(held)) == []
    assert rows(app, "SELECT token FROM {claims}") == []
    assert run.result(0) == 3


def end_with(app: Penstock, worker: RandomWorker) -> None:
    """The worker is dead: others do the rest."""
    app.database.in_transaction(reclaim.remove_process, worker.identity.id)
    drain(app)


@pytest.mark.parametrize("way", ["planned", "usual"])
def test_killed_at_any_statement_it_is_held_completely_or_not_at_all(
    app: Penstock, run: Run, way: str
) -> None:
    """By the way that the first run of a pipeline takes, and by the shorter one of those after it."""
    drain(app)
    assert run.result(0) == 3
    passed: list[str] = []
    for point in _points_then_each(passed):
        again = app.pipelines["two"].trigger(1)
        worker = RandomWorker(app, 0)
        attempt = first(worker)
        if way == "planned":
            app.engine.engine_state.cached_steps.clear()
        if point is None:
            with fault_points.watching(passed.append):
                settle(worker, attempt)
        else:
            with crash_at(point) as crash, pytest.raises(SimulatedCrash):
                settle(worker, attempt)
            assert crash.crashed
            worker.source.rolled_back()
        assert queued(app) == 0
        assert len(rows(app, "SELECT token FROM {claims}")) == 1, "one of the two is held, with its receipt"
        end_with(app, worker)
        assert again.result(0) == 3
        crashes = [attempt.outcome for step in again.steps() for attempt in step.attempts()]
        assert crashes.count(OutcomeKind.CRASHED) == 1
    assert {"settle.1", "advance.commit", "advance.committed"} <= set(passed)


def _points_then_each(passed: list[str]) -> Iterator[str | None]:
    """First without a crash, to see which points there are; then with a crash at each of them."""
    yield None
    yield from dict.fromkeys(passed)


def test_who_was_taken_for_dead_holds_nothing_more(app: Penstock, run: Run) -> None:
    worker = RandomWorker(app, 0)
    attempt = first(worker)
    app.database.in_transaction(reclaim.remove_process, worker.identity.id)
    assert settle(worker, attempt) == []
    assert queued(app) == 1


@pytest.mark.parametrize(("busy", "limit", "held"), [(1, 1, 0), (0, 1, 1), (1, None, 1)])
def test_limits_of_queues_hold(app: Penstock, run: Run, busy: int, limit: int | None, held: int) -> None:
    worker = RandomWorker(app, 0)
    attempt = first(worker)
    worker.source.lanes = Lanes((QueueLimit("default", limit),), 0.0, uses_floor=False)
    worker.source.holdings.clear()
    worker.source.holdings.busy["default"] = busy
    assert len(settle(worker, attempt)) == held
    assert queued(app) == 1 - held


def test_steps_of_other_queues_are_left_to_others(app: Penstock, run: Run) -> None:
    worker = RandomWorker(app, 0)
    attempt = first(worker)
    worker.source.lanes = Lanes((QueueLimit("mail", None),), 0.0, uses_floor=False)
    assert settle(worker, attempt) == []
    assert queued(app) == 1
