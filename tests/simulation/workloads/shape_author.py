"""Pipelines of random shape: those of the planner's own tests, with child runs and with waits that do not last."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json, to_json

from penstock.pipelines.define.graph import wait_for
from penstock.pipelines.model.definition import Definition, NodeKind
from tests.pure.pipelines.programs import Program, Writer
from tests.simulation import virtual

if TYPE_CHECKING:
    from penstock.app import Penstock

FAILING = (0.0, 0.0, 0.1, 0.3)
LATE = "late"
"""What a wait has come to that has lasted too long."""
OFTEN_BREAKS = 0.5


def shaped(app: Penstock, shape: int, strategy: str) -> Any:
    """The pipeline of that shape, declared in this app."""
    name = f"shape-{shape}-{strategy}"
    if name in app.pipelines:
        return app.pipelines[name]

    class Author(Writer):
        longest = 10
        losing = False

        def __init__(self, choose: random.Random, strategies: bool) -> None:
            super().__init__(choose, strategies)
            self.value = app.tasks["shapes.value"]
            self.sources = {kind: app.tasks[f"shapes.{kind}"] for kind in ("list", "label")}

        def call(self, known: list[Any], depth: int) -> None:
            if self.choose.random() < 0.15:
                child = self.choose.choice(["small", "fragile"])
                known.append(app.pipelines[child](self.choose.choice(known)))
            else:
                super().call(known, depth)

        def wait(self, name: str, passed: Any) -> Any:
            if self.choose.random() < 0.6:
                return super().wait(name, passed)
            return wait_for(name, after=[passed], timeout=self.choose.choice([0.5, 3.0]), default=LATE)

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


def waits(definition: Definition) -> list[str]:
    return [node.target for node in definition.nodes if node.kind is NodeKind.WAIT]


def signalled(name: str) -> str:
    return f"{name}!"


def breaks(seed: int, given: object) -> bool:
    """Whether a fragile child fails that is given this, as long as it has not been revived."""
    return random.Random(f"{seed} {plain(given)}").random() < OFTEN_BREAKS * (FAILING[seed % 4] > 0)


def plain(value: object) -> str:
    """A value as every reader sees it: what was a tuple comes back as a list."""
    return str(from_json(to_json(value)))
