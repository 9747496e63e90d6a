"""pipelines/advance: the graphs that other systems get wrong, each on every database: the planner's own tests, run
by the engine.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock import Penstock, current
from penstock.pipelines.lifecycle.start import NewRun
from penstock.pipelines.model.definition import Definition, NodeKind
from penstock.pipelines.model.expressions import Path, path_of
from penstock.pipelines.run import Step
from penstock.values.ids import new_id
from penstock.values.status import JobStatus, RunStatus
from penstock.values.typed_json.json_text import dumps
from tests.conformance.pipelines.random_worker import RandomWorker
from tests.pure.pipelines import test_graph_shapes as planner
from tests.pure.pipelines.machine import Outcome

SEEDS = (0, 1)


class EngineRun:
    """A run on a database, looked at as the planner's tests look at theirs."""

    def __init__(self, app: Penstock, id: str) -> None:
        self.handle = app.run(id)
        self.steps: dict[tuple[str, Path], Step] = {(s.key, s.path): s for s in self.handle.steps()}

    @property
    def result(self) -> object:
        return self.handle.result(0)

    @property
    def status(self) -> RunStatus:
        return self.handle.status

    @property
    def failures(self) -> list[tuple[str, Path, None, Any, str]]:
        failed = [step for step in self.steps.values() if step.status is JobStatus.FAILED]
        return [(step.key, step.path, None, step.reason, step.error or "") for step in failed]

    def statuses(self, node: str) -> list[str]:
        return [self.steps[at].status.value for at in sorted(self.steps) if at[0] == node]

    def outputs(self, node: str) -> list[object]:
        return [self.steps[at].output for at in sorted(self.steps) if at[0] == node]


class Bench:
    """Runs a definition whose tasks do what the test says."""

    def __init__(self, app: Penstock) -> None:
        self.app = app
        self.outcome: Outcome | None = None

    def run(
        self, definition: Definition, seed: int = 0, max_fanout: int | None = None, **values: Any
    ) -> EngineRun:
        self.app.settings = replace(self.app.settings, max_fanout=max_fanout)
        self.outcome = planner.outcome_of(**values)
        for node in definition.nodes:
            if node.kind is NodeKind.TASK and node.target not in self.app.tasks:
                self.app.task(name=node.target, retries=0)(self.body())
        new = NewRun(new_id(), definition, dumps(dict.fromkeys(definition.params, 1)))
        self.app.engine.trigger(new, None)
        RandomWorker(self.app, seed).run()
        return EngineRun(self.app, new.id)

    def body(self) -> Callable[..., Any]:
        def body(*args: Any) -> Any:
            claim = current()._claim
            assert self.outcome is not None
            return self.outcome(str(claim.node), path_of(claim.path or ""), list(args), {})

        return body


def cases() -> list[Any]:
    found = []
    for name, test in vars(planner).items():
        if not name.startswith("test_"):
            continue
        wanted = inspect.signature(test).parameters
        given: list[dict[str, object]] = [{}]
        if "seed" in wanted:
            given = [{"seed": seed} for seed in SEEDS]
        if "value" in wanted:
            given = [{"value": 7, "strategy": "halt"}, {"value": "text", "strategy": "ignore"}]
        found += [pytest.param(test, some, id=f"{name[5:]}-{number}") for number, some in enumerate(given)]
    return found


@pytest.mark.parametrize(("test", "given"), cases())
def test_on_a_database(
    app: Penstock, monkeypatch: pytest.MonkeyPatch, test: Callable[..., None], given: dict[str, object]
) -> None:
    monkeypatch.setattr(planner, "run", Bench(app).run)
    test(**given)
