"""Cached plans for plain successes: a step outside of expands succeeded, and its run goes on.

What follows was planned when a step of that node succeeded for the first time, and is the same every time: a plan
knows no values. Most of all that is plain steps which need its output. Then nothing is looked up or read either, and
a worker that holds the next step at once gets its arguments right here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from penstock.pipelines.advance.run_rows import RunView
from penstock.pipelines.advance.state import CachedSteps, EngineState, Mode, NextStep, RunHeader
from penstock.pipelines.advance.step_rows import KnownArguments, NewStep
from penstock.pipelines.model.definition import NodeKind
from penstock.pipelines.model.expressions import TOP, Path
from penstock.pipelines.model.wiring import Wiring
from penstock.pipelines.plan.changes import Plan, RunMode, Start
from penstock.pipelines.plan.inputs import InputQuery, OutputRef, arguments, inputs_of
from penstock.queue.jobs import EndedStep
from penstock.values.ids import new_id
from penstock.values.status import JobStatus
from penstock.values.typed_json.json_text import loads


def is_plain_success(ended: EndedStep) -> bool:
    """True if the step ended in the usual way of its node, as far as its own row tells."""
    run = ended.run
    goes_on = isinstance(run, Mode) and run.mode == RunMode.RUNNING and not run.paused
    return goes_on and ended.status is JobStatus.SUCCEEDED and ended.reason is None and not ended.path


def learn(engine_state: EngineState, run: RunView, node: str, plan: Plan) -> None:
    """Remember the plan for such an end; and what is to be done, if plain steps are all there is to it."""
    engine_state.plans[run.definition, node] = plan
    if plan == Plan(plan.starts) and all(_is_plain(run.wiring, start, node) for start in plan.starts):
        steps = [
            NextStep(
                one.node.key,
                engine_state.template(run.definition, one.node),
                run.wiring.places[one.node.key].is_expanded,
            )
            for one in plan.starts
        ]
        engine_state.cached_steps[run.definition, node] = CachedSteps(run.wiring, tuple(steps))


def _is_plain(wiring: Wiring, start: Start, after: str) -> bool:
    """True if the step starts at once and needs no output but that of the step before it."""
    needs = inputs_of(wiring, start.node.key, start.path)
    of_one = needs in (InputQuery(), InputQuery((OutputRef(after, TOP),)))
    return of_one and start.node.kind is NodeKind.TASK and start.path == TOP and not start.delay


def steps_after(engine_state: EngineState, ended: EndedStep) -> list[NewStep] | None:
    """The steps that follow; None: that has to be planned."""
    origin = engine_state.origin(ended.run_id)
    if origin is None or not isinstance(ended.run, Mode) or origin.definition != ended.run.definition:
        return None
    cached = engine_state.cached_steps.get((origin.definition, ended.node))
    if cached is None:
        return None
    known = _Known(ended, origin)
    return [
        NewStep(
            new_id(),
            ended.run_id,
            step.node,
            TOP,
            step.template,
            JobStatus.AVAILABLE,
            intake=None if origin.revived_from else _intake(cached.wiring, step, known, origin.scheduled_for),
        )
        for step in cached.steps
    ]


def _intake(wiring: Wiring, step: NextStep, known: _Known, nominal: int | None) -> KnownArguments | None:
    try:
        call = arguments(wiring, step.node, TOP, known)
    except Exception:
        return None  # as if it were not known: the worker that claims the step meets the same error, and settles it
    return KnownArguments(call, step.is_expanded, known.definition, nominal)


class _Known:
    """The sources of a step's arguments: those of the run, and the output of the step that has just ended."""

    __slots__ = ("_args", "_output", "definition")

    def __init__(self, ended: EndedStep, origin: RunHeader) -> None:
        self.definition = origin.definition
        self._args = origin.args
        self._output = loads(ended.output) if ended.output is not None else None

    def param(self, name: str) -> object:
        return cast("Mapping[str, object]", loads(self._args))[name]

    def output(self, node: str, path: Path) -> object:
        return self._output

    def succeeded(self, node: str, path: Path) -> bool:
        return True

    def winner(self, node: str, path: Path) -> str | None:
        return None

    def width(self, node: str, path: Path) -> int | None:
        return None
