"""pipelines/lifecycle/claimed_steps: a resume or a cancel while a claimed step is being put back because of a pause.

On PostgreSQL a claim may be committed before it is known that its run is paused. The caller that resumes the run in
between sees a step that is held, and leaves it alone; the worker that holds it must not leave it without a place.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock import Penstock
from penstock.pipelines.run import Run
from penstock.telemetry import fault_points
from penstock.testing import drain
from penstock.testing.drain import ManualWorker
from tests.conformance.rows import count

Strike = Callable[[], object]
BLOCKED = 0.3
"""A thread that has not come back after that waits for this one: this one goes on first."""


@pytest.fixture
def app(app_on: Callable[[str], Penstock], postgres_url: str) -> Penstock:
    return app_on(postgres_url)


@pytest.fixture
def paused(app: Penstock) -> Callable[[], Run]:
    """Makes paused runs, whose first steps are in the queue."""

    @app.task(name="step", retries=0)
    def step(number: int) -> int:
        return number + 1

    @app.pipeline(name="two")
    def two(number: int) -> Any:
        return step(step(number))

    def make() -> Run:
        run = two.trigger(1)
        run.pause()
        return run

    return make


def test_the_step_goes_on_whenever_the_resume_comes(app: Penstock, paused: Callable[[], Run]) -> None:
    points_met = _looks_once(app, paused())
    assert points_met.count("hydrate.1") == 2, "it is claimed first, and left in a transaction of its own"
    for at, point in enumerate(points_met):
        run = paused()
        _looks_once(app, run, at, run.resume)
        assert run.result(0) == 3, point
        assert count(app, "availabilities") == 0


def test_a_step_that_is_cancelled_meanwhile_never_runs(app: Penstock, paused: Callable[[], Run]) -> None:
    for at, point in enumerate(_looks_once(app, paused())):
        run = paused()
        step = app.job(run.steps()[0].id)
        _looks_once(app, run, at, step.cancel)
        if not run.status.terminal:
            run.resume()
            drain(app)
        assert (step.status, step.attempts()) == ("cancelled", []), point
        assert run.status.terminal, point


def _looks_once(app: Penstock, run: Run, at: int | None = None, strike: Strike = bool) -> list[str]:
    """A worker looks for work; at one of the points that it comes to, another process acts. The points of the first
    look. Then it works until it finds nothing more."""
    mine, reached = threading.get_ident(), list[str]()
    other = threading.Thread(target=strike)

    def reach(point: str) -> None:
        if threading.get_ident() == mine:
            reached.append(point)
            if len(reached) - 1 == at:
                other.start()
                other.join(BLOCKED)

    with ManualWorker(app, None) as hand:
        hand.source.one_statement = True
        hand.source.lanes.force_sweep()
        with fault_points.watching(reach):
            hand.pump.turn()
        if at is None:
            run.cancel()
        else:
            other.join()
        while (claim := hand.take()) is not None:
            work = hand.begin(claim)
            assert work is not None
            hand.finish(work, work.run_here(hand.around))
    return reached
