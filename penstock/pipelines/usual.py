"""The usual end of a step: it has succeeded, at the top of a run that goes on.

What follows was planned when a step of that node succeeded for the first time, and is the same every time: a plan
knows no values. Most of all that is plain steps which need its output. Then nothing is looked up or read either, and
whoever holds the next step at once is told its arguments right here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from penstock.pipelines.changes import Plan, RunMode, Start
from penstock.pipelines.definition import Kind
from penstock.pipelines.desk import Desk, Next, Origin, Usual
from penstock.pipelines.inputs import Cell, Needs, arguments, inputs_of
from penstock.pipelines.paths import TOP, Path
from penstock.pipelines.runs import RunView
from penstock.pipelines.steps import Intake, NewStep
from penstock.pipelines.wiring import Wiring
from penstock.queue.jobs import Ended
from penstock.values.ids import new_id
from penstock.values.jsontext import loads
from penstock.values.status import JobStatus


def is_usual(ended: Ended) -> bool:
    """It leads on as any other of its node, as far as can be seen from it alone."""
    return (
        ended.mode == RunMode.RUNNING
        and ended.status is JobStatus.SUCCEEDED
        and ended.reason is None
        and not ended.path
        and not ended.paused
    )


def learn(desk: Desk, run: RunView, node: str, plan: Plan) -> None:
    """Remember the plan for such an end; and what is to be done, if plain steps are all there is to it."""
    desk.plans[run.definition, node] = plan
    if plan == Plan(plan.starts) and all(_is_plain(run.wiring, start, node) for start in plan.starts):
        steps = [
            Next(one.node.key, desk.mould(run.definition, one.node), run.wiring.places[one.node.key].spreads)
            for one in plan.starts
        ]
        desk.usual[run.definition, node] = Usual(run.wiring, tuple(steps))


def _is_plain(wiring: Wiring, start: Start, after: str) -> bool:
    """It starts at once, and what it needs of other steps is the output of the one before it."""
    needs = inputs_of(wiring, start.node.key, start.path)
    of_one = needs in (Needs(), Needs((Cell(after, TOP),)))
    return of_one and start.node.kind is Kind.TASK and start.path == TOP and not start.delay


def steps_after(desk: Desk, ended: Ended) -> list[NewStep] | None:
    """The steps that follow; None: that has to be planned."""
    usual, origin = desk.usual.get((ended.definition, ended.node)), desk.origin(ended.run_id)
    if usual is None or origin is None or origin.definition != ended.definition:
        return None
    known = _Known(ended, origin)
    return [
        NewStep(
            new_id(),
            ended.run_id,
            step.node,
            TOP,
            step.mould,
            JobStatus.AVAILABLE,
            intake=None if origin.revived_from else _intake(usual.wiring, step, known),
        )
        for step in usual.steps
    ]


def _intake(wiring: Wiring, step: Next, known: _Known) -> Intake | None:
    try:
        call = arguments(wiring, step.node, TOP, known)
    except Exception:
        return None  # as if it were not known: whoever claims the step comes upon the same error, and deals with it
    return Intake(call, step.spreads, known.ended.definition)


class _Known:
    """What the arguments are made of: those of the run, and the output of the step that has just ended."""

    __slots__ = ("_args", "_output", "ended")

    def __init__(self, ended: Ended, origin: Origin) -> None:
        self.ended = ended
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
