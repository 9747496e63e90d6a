"""Pipelines of random shape, steered from outside: signals, pauses, cancels, revives, chains.

The shapes are those of the planner's own tests: nested expands, switches, joins, any-of, barriers, waits, failure
strategies; and child runs. What each step does is decided by the seed, its node and its path, so that the reference
interpreter of those tests can say how every run must end.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.context import current
from penstock.pipelines.model.expressions import path_of
from penstock.values.limits import Concurrency
from penstock.values.retry import Retry
from tests.pure.pipelines.machine import Boom
from tests.simulation import limit_model, virtual
from tests.simulation.workloads import Act, shape_acts, shape_checks
from tests.simulation.workloads.shape_acts import OVER, Deed, Given, aside, insisting
from tests.simulation.workloads.shape_author import breaks, program

if TYPE_CHECKING:
    from penstock.app import Penstock
    from tests.simulation.story import Story

SOON = Retry(max=2, delay=0.5, factor=1, jitter=0)
STRATEGIES = ("continue", "continue", "ignore", "halt")
SOME_TIME = 0.2
STEERING: tuple[tuple[Deed, ...], ...] = (
    *((), ()),
    *((shape_acts.pause,), (shape_acts.cancel,), (shape_acts.then,)),
    (shape_acts.pause, shape_acts.cancel),
    (shape_acts.pause, shape_acts.revive, shape_acts.signal_all),
    (shape_acts.pause, shape_acts.cancel_child),
    (shape_acts.cancel_step, shape_acts.revive_child),
)
AGAIN: tuple[tuple[Deed, ...], ...] = (
    *((), (), (shape_acts.fork,), (shape_acts.revive,), (shape_acts.retry_step,)),
    (shape_acts.fork, shape_acts.revive),
    (shape_acts.revive_child, shape_acts.revive),
    (shape_acts.revive, shape_acts.retry_step),
)


class Shapes:
    """The workload."""

    def __init__(
        self, steering: Sequence[tuple[Deed, ...]] = STEERING, again: Sequence[tuple[Deed, ...]] = AGAIN
    ) -> None:
        self.steering = steering
        self.again = again

    name = "shapes"
    often = 3
    unfinished = f"""
    SELECT EXISTS (SELECT 1 FROM penstock_runs WHERE status NOT IN {OVER}) OR EXISTS (SELECT 1 FROM penstock_parked)
    """

    def prepare(self, connection: sqlite3.Connection) -> None:
        """Nothing of its own."""

    def declare(self, app: Penstock) -> None:
        for name in ("value", "list"):
            app.task(name=f"shapes.{name}", retries=SOON)(_step)
        app.task(name="shapes.label", retries=SOON, limits=[Concurrency(1)])(_step_async)
        same = app.task(name="shapes.same", retries=SOON)(_same)
        frail = app.task(name="shapes.frail", retries=SOON)(_frail)
        app.task(name="shapes.told", retries=SOON)(_told)

        def small(given: Any) -> Any:
            return same(given)

        def fragile(given: Any) -> Any:
            return same(frail(same(given)))

        app.pipeline(name="small")(small)
        app.pipeline(name="fragile")(fragile)

    def fill(self, connection: sqlite3.Connection, rng: random.Random) -> Sequence[str]:
        return ()

    def script(self, rng: random.Random) -> Sequence[Act]:
        ids: shape_acts.Ids = {}
        acts: list[Act] = []
        for number in range(rng.choice([1, 1, 2])):
            given = Given(number, rng.randrange(1 << 40), rng.choice(STRATEGIES), ids)
            steering = [insisting(deed, given) for deed in rng.choice(self.steering)]
            acts.append(insisting(shape_acts.trigger, given))
            acts += [aside(act) for act in steering[1:]]
            acts += steering[:1]
            acts.append(insisting(shape_acts.signal_all, given))
            acts += [insisting(deed, given) for deed in rng.choice(self.again)]
            if steering[1:]:
                acts.append(shape_acts.stay)
        return acts

    def check(self, story: Story) -> list[str]:
        return [*shape_checks.check(story), *limit_model.check(story)]


# what steps do


def _observed(work: Callable[[], Any], takes: float = SOME_TIME) -> Any:
    world, job = virtual.here(), current()
    facts = (job.id, job.attempt, job._claim.token)
    world.record("began", *facts)
    try:
        if takes and world.rng.random() > 0.5:
            world.sleep(takes)
        value = work()
    except Exception as error:
        world.record("raised", *facts, type(error).__name__)
        raise
    world.record("returned", *facts, "")
    return value


def _step(*values: Any) -> Any:
    return _observed(lambda: _outcome(values))


async def _step_async(*values: Any) -> Any:
    await asyncio.sleep(SOME_TIME * virtual.here().rng.choice([0, 1, 10]))
    return _observed(lambda: _outcome(values), takes=0)


def _outcome(values: Sequence[Any]) -> Any:
    claim = current()._claim
    path = path_of(claim.path or "")
    return program(None, virtual.here().seed).outcome(  # type: ignore[arg-type]
        str(claim.node), path, list(values), {}
    )


def _frail(given: Any) -> Any:
    def work() -> Any:
        job = current()
        if job.idempotency_key == job.id and breaks(virtual.here().seed, given):
            raise Boom
        return given

    return _observed(work)


def _same(given: Any) -> Any:
    return _observed(lambda: given)


def _told(**event: Any) -> None:
    """Told that a run is over."""
    _observed(lambda: None)
