"""Pipelines of random shape, steered from outside: signals, pauses, cancels, revives, chains.

The shapes are those of the planner's own tests: nested expands, switches, joins, any-of, barriers, waits, failure
strategies; and child runs. What each step does is decided by the seed, its node and its path, so that the reference
interpreter of those tests can say how every run must end.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.context import current
from penstock.errors import ActionRefused, PenstockError, ReviveError
from penstock.pipelines.definition import Definition, Kind
from penstock.pipelines.paths import path_of
from penstock.values.retry import Retry
from tests.pure.pipelines.programs import Program, Writer
from tests.simulation import virtual
from tests.simulation.workloads import Act, shape_checks

if TYPE_CHECKING:
    from penstock.app import Penstock
    from tests.simulation.hosts import ClientHost
    from tests.simulation.story import Story

SOON = Retry(max=2, delay=0.5, factor=1, jitter=0)
FAILING = (0.0, 0.0, 0.1, 0.3)
STRATEGIES = ("continue", "continue", "ignore", "halt")
OVER = ("succeeded", "failed", "halted", "cancelled", "skipped")
SOME_TIME = 0.2

Ids = dict[int, str]
"""The runs that were accepted, by their number."""


class Shapes:
    """The workload."""

    name = "shapes"
    often = 3
    unfinished = f"SELECT COUNT(*) FROM penstock_runs WHERE status NOT IN {OVER}"

    def prepare(self, connection: sqlite3.Connection) -> None:
        """Nothing of its own."""

    def declare(self, app: Penstock) -> None:
        for name in ("value", "list", "label"):
            app.task(name=f"shapes.{name}", retries=SOON)(_step)
        same = app.task(name="shapes.same", retries=SOON)(_same)
        app.task(name="shapes.told", retries=SOON)(_told)

        def small(given: Any) -> Any:
            return same(given)

        app.pipeline(name="small")(small)

    def fill(self, connection: sqlite3.Connection, rng: random.Random) -> Sequence[str]:
        return ()

    def script(self, rng: random.Random) -> Sequence[Act]:
        ids: Ids = {}
        acts: list[Act] = []
        for number in range(rng.choice([1, 1, 2])):
            shape, strategy = rng.randrange(1 << 40), rng.choice(STRATEGIES)
            acts.append(_insisting(_trigger(number, shape, strategy, ids)))
            steering = rng.choice([(), (), (_pause,), (_cancel,), (_then,)])
            acts += [_insisting(steer(number, ids)) for steer in steering]
            acts.append(_insisting(_signal_all(number, shape, strategy, ids)))
            if rng.random() < 0.3:
                acts.append(_insisting(_revive(number, shape, strategy, ids)))
        return acts

    def check(self, story: Story) -> list[str]:
        return shape_checks.check(story)


def shaped(app: Penstock, shape: int, strategy: str) -> Any:
    """The pipeline of that shape, declared in this app."""
    name = f"shape-{shape}-{strategy}"
    if name in app.pipelines:
        return app.pipelines[name]

    class Author(Writer):
        longest = 10

        def __init__(self, choose: random.Random, strategies: bool) -> None:
            super().__init__(choose, strategies)
            self.value = app.tasks["shapes.value"]
            self.sources = {kind: app.tasks[f"shapes.{kind}"] for kind in ("list", "label")}

        def call(self, known: list[Any], depth: int) -> None:
            if self.choose.random() < 0.1:
                known.append(app.pipelines["small"](self.choose.choice(known)))
            else:
                super().call(known, depth)

    def written(given: Any) -> Any:
        return Author(random.Random(shape), strategies=True).write(given)

    pipeline = app.pipeline(name=name, on_failure=strategy, on_complete=[app.tasks["shapes.told"]])(written)
    known = virtual.here().definitions
    if name in known:
        vars(pipeline).update(known[name])
    else:
        known[name] = {"definition": pipeline.definition, "codec": pipeline.codec}
    return pipeline


def program(definition: Definition, seed: int) -> Program:
    return Program(definition, seed, FAILING[seed % len(FAILING)])


# what clients do


def _insisting(act: Act) -> Act:
    """Again and again until it is done: what is asked for here names its run, so it can be repeated."""

    def insist(client: ClientHost) -> None:
        client.world.sleep(client.world.rng.choice([0.0, 0.0, 0.3, 2.0]))
        while True:
            try:
                return act(client)
            except (ActionRefused, ReviveError) as refused:
                client.world.note(client.name, f"was refused: {refused}")
                return None
            except PenstockError as error:
                client.world.note(client.name, f"tries again: {error}")
                client.world.sleep(1.0)

    return insist


def _trigger(number: int, shape: int, strategy: str, ids: Ids) -> Act:
    def act(client: ClientHost) -> None:
        run = shaped(client.app, shape, strategy).options(key=f"shape-{number}").trigger("hello")
        ids[number] = run.id
        client.world.record("triggered", run.id, "shape", f"shape-{number}")

    return act


def _run(client: ClientHost, number: int, ids: Ids) -> Any:
    """The run of that number, once the other client has it."""
    while number not in ids:
        client.world.sleep(1.0)
    return client.app.run(ids[number])


def _signal_all(number: int, shape: int, strategy: str, ids: Ids) -> Act:
    def act(client: ClientHost) -> None:
        run = _run(client, number, ids)
        for name in waits(shaped(client.app, shape, strategy).definition):
            if run.signal(name, signalled(name)):
                client.world.record("signalled", run.id, name)

    return act


def waits(definition: Definition) -> list[str]:
    return [node.target for node in definition.nodes if node.kind is Kind.WAIT]


def signalled(name: str) -> str:
    return f"{name}!"


def _cancel(number: int, ids: Ids) -> Act:
    def act(client: ClientHost) -> None:
        run = _run(client, number, ids)
        client.world.record("asks run cancel", run.id)
        run.cancel(grace=1)

    return act


def _pause(number: int, ids: Ids) -> Act:
    """For a while."""

    def act(client: ClientHost) -> None:
        run = _run(client, number, ids)
        run.pause()
        client.world.sleep(client.world.rng.choice([0.0, 1.0, 5.0]))
        run.resume()

    return act


def _then(number: int, ids: Ids) -> Act:
    def act(client: ClientHost) -> None:
        run = _run(client, number, ids)
        run.then(client.app.pipelines["small"], number)

    return act


def _revive(number: int, shape: int, strategy: str, ids: Ids) -> Act:
    def act(client: ClientHost) -> None:
        run = _run(client, number, ids)
        for _ in range(20):
            if run.status in OVER:
                break
            client.world.sleep(2.0)
        ids[number] = run.revive().id
        client.world.record("revived", run.id, ids[number])
        _signal_all(number, shape, strategy, ids)(client)

    return act


# what steps do


def _observed(work: Callable[[], Any]) -> Any:
    world, job = virtual.here(), current()
    facts = (job.id, job.attempt, job._claim.token)
    world.record("began", *facts)
    try:
        if SOME_TIME * world.rng.random() > SOME_TIME / 2:
            world.sleep(SOME_TIME)
        value = work()
    except Exception as error:
        world.record("raised", *facts, type(error).__name__)
        raise
    world.record("returned", *facts, "")
    return value


def _step(*values: Any) -> Any:
    def work() -> Any:
        claim = current()._claim
        path = path_of(claim.path or "")
        return program(None, virtual.here().seed).outcome(  # type: ignore[arg-type]
            str(claim.node), path, list(values), {}
        )

    return _observed(work)


def _same(given: Any) -> Any:
    return _observed(lambda: given)


def _told(**event: Any) -> None:
    """Told that a run is over."""
    _observed(lambda: None)
