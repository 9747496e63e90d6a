"""Plans what follows when something in a run has happened, as a list of changes. No values, no SQL.

`begin` starts a run, `advance` follows a step that has ended, `fire` follows a join that is due, `resolve`
follows the value that a switch or an expand asked for, `admit` follows a door that is open. The caller that applies
a plan writes its rows, adds its contributions to the joins, and comes back with `fire`, `resolve` and `admit` until
nothing is left, all in the transaction that settled the step. Nothing here needs to lock the run.

Rows of skipped steps: every step that was reached has one. Steps inside an expand that was never expanded
have none: there is no element they could belong to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.pipelines.model.definition import Definition, Node, NodeKind, Strategy
from penstock.pipelines.model.expressions import TOP, Path
from penstock.pipelines.model.wiring import Wiring
from penstock.pipelines.plan.cascade import Cascade
from penstock.pipelines.plan.changes import Ask, Fan, FiredJoin, Plan, RunMode, Start, StepEnded
from penstock.pipelines.plan.tokens import EdgeToken, Tally
from penstock.values.status import JobStatus, Reason, RunStatus
from penstock.values.typed_json import tags

# The state of a run, derived from its steps by one function.


@dataclass(frozen=True, slots=True)
class RunState:
    """The state of a run as its rows count it. `failed` counts failed steps, optional ones not included.

    `ended`: every step has ended. `refused`: it never started, because a run it follows did not succeed.
    """

    started: bool = True
    ended: bool = False
    failed: int = 0
    halted: bool = False
    paused: bool = False
    cancelled: bool = False
    refused: bool = False


def status_of(run: RunState) -> RunStatus:
    """The status of a run, derived from its state; no other code decides it."""
    if run.refused:
        return RunStatus.SKIPPED
    if not run.ended:
        if run.cancelled:
            return RunStatus.CANCELLING
        if not run.started:
            return RunStatus.PENDING
        return RunStatus.PAUSED if run.paused else RunStatus.RUNNING
    if run.cancelled:
        return RunStatus.CANCELLED
    if run.failed == 0:
        return RunStatus.SUCCEEDED
    return RunStatus.HALTED if run.halted else RunStatus.FAILED


def events_of(status: RunStatus) -> tuple[str, ...]:
    """The callbacks that a terminal status calls. Skipped and cancelled runs only complete."""
    match status:
        case RunStatus.SUCCEEDED:
            return "on_complete", "on_success"
        case RunStatus.FAILED:
            return "on_complete", "on_failure"
        case RunStatus.HALTED:
            return "on_complete", "on_failure", "on_halt"
        case RunStatus.CANCELLED | RunStatus.SKIPPED:
            return ("on_complete",)
    return ()


# The facts that a plan may know of a value: which arm it chooses, and how many elements it has.


@dataclass(frozen=True, slots=True)
class Measure:
    """`width` is None for a value that cannot be expanded; `type` is what it is instead."""

    type: str = ""
    label: str = ""
    width: int | None = None


def to_match(raw: object) -> Measure:
    """Measure the value of a switch: `str(value)` is the label."""
    return Measure(label=str(tags.read(raw)))


def to_expand(raw: object) -> Measure:
    """Measure the value of an expand. A string is one value, not its letters; an ignored failure has no elements."""
    if tags.is_missing(raw):
        return Measure(width=0)
    found = tags.raw_elements(raw)
    return Measure(type=found) if isinstance(found, str) else Measure(width=len(found))


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Facts of the run that a plan needs: how it goes on, how wide an expand may be, how many steps may still come."""

    mode: RunMode = RunMode.RUNNING
    max_fanout: int | None = None
    steps_left: int | None = None


GOING_ON = RunFacts()


def begin(wiring: Wiring, facts: RunFacts = GOING_ON) -> Plan:
    """The first steps of a run."""
    cascade = Cascade(wiring, facts.mode)
    for key in wiring.roots:
        cascade.decide(key, TOP)
    return cascade.plan()


def advance(wiring: Wiring, facts: RunFacts, ended: StepEnded) -> Plan:
    """Plan what follows from the end of a step."""
    cascade = Cascade(wiring, facts.mode)
    place = wiring.places[ended.node]
    token = EdgeToken.PASS
    if ended.status is JobStatus.SKIPPED or (ended.status is JobStatus.CANCELLED and cascade.over):
        token = EdgeToken.BLOCKED
    elif ended.status in (JobStatus.FAILED, JobStatus.CANCELLED):
        strategy = strategy_of(wiring.definition, place.node)
        reason = ended.reason or Reason.RETRIES_EXHAUSTED
        token = cascade.fail(ended.node, ended.path, strategy, reason, kept=ended.kept)
    elif ended.stops_run:
        cascade.stop()
    cascade.release(place, ended.path, token)
    return cascade.plan()


def fire(wiring: Wiring, facts: RunFacts, join: FiredJoin) -> Plan:
    """Plan what follows from a join that is due (see `tokens.due`)."""
    cascade = Cascade(wiring, facts.mode)
    cascade.decide(join.node, join.path, join.tally)
    return cascade.plan()


def admit(wiring: Wiring, facts: RunFacts, door: str, path: Path, tally: Tally) -> Plan:
    """Plan what follows when a node comes through an open door; `tally` has what came to the door as well."""
    cascade = Cascade(wiring, facts.mode)
    cascade.enter(door, path, tally)
    return cascade.plan()


def resolve(wiring: Wiring, facts: RunFacts, ask: Ask, measure: Measure, kept: bool = False) -> Plan:
    """Plan what follows from the value a switch decides on, or an expand runs over.

    `kept`: that failed in an earlier run already, and it is not what was revived for (see `StepEnded`).
    """
    cascade = Cascade(wiring, facts.mode)
    node = wiring.places[ask.node].node
    if facts.mode is not RunMode.RUNNING:
        cascade.skip(ask.node, ask.path, EdgeToken.BLOCKED)
    elif node.kind is NodeKind.SWITCH:
        _choose(cascade, node, ask, measure, kept)
    else:
        _expand(cascade, node, ask, measure, facts, kept)
    return cascade.plan()


def elements(wiring: Wiring, fan: Fan, start: int = 0, stop: int | None = None) -> Iterator[Start]:
    """The first steps inside an expand, for a chunk of its elements."""
    node = wiring.places[fan.entry].node
    for index in range(start, fan.width if stop is None else min(stop, fan.width)):
        yield Start.of(node, (*fan.path, index))


def strategy_of(definition: Definition, node: Node) -> Strategy:
    """The effect of a failure of the node. A value that cannot be expanded halts, unless the step says less."""
    if node.options.on_failure is not None:
        return node.options.on_failure
    return definition.on_failure if node.kind.is_step else Strategy.HALT


def _choose(cascade: Cascade, node: Node, ask: Ask, measure: Measure, kept: bool) -> None:
    labels = list(node.arms)
    if measure.label in labels:
        cascade.choose(node.key, ask.path, labels.index(measure.label))
    elif None in labels:
        cascade.choose(node.key, ask.path, labels.index(None))
    else:
        known = ", ".join([str(label) for label in labels])
        detail = f"the value {measure.label[:200]!r} matches no arm of the switch; its arms are {known}"
        cascade.fail(node.key, ask.path, Strategy.HALT, Reason.CONDITION_UNMATCHED, detail, kept)
        cascade.pass_on(node.key, ask.path, EdgeToken.BLOCKED)


def _expand(cascade: Cascade, node: Node, ask: Ask, measure: Measure, facts: RunFacts, kept: bool) -> None:
    problem: tuple[Reason, str] | None = None
    limits = (node.options.max_fanout, cascade.wiring.definition.max_fanout, facts.max_fanout)
    limit = next((one for one in limits if one is not None), None)
    steps = (measure.width or 0) * cascade.wiring.inside(node.key)
    if measure.width is None:
        detail = f"cannot expand over a value of type {measure.type}: return a list or a dict"
        problem = Reason.TRANSITION_INVALID, detail
    elif limit is not None and measure.width > limit:
        detail = f"{measure.width:,} elements are more than max_fanout={limit:,} allows"
        problem = Reason.MAX_FANOUT_EXCEEDED, detail
    elif facts.steps_left is not None and steps > facts.steps_left:
        most = cascade.wiring.definition.max_steps
        detail = f"{steps:,} steps more than there are would exceed max_steps={most:,}"
        problem = Reason.MAX_STEPS_EXCEEDED, detail
    if problem is None:
        if ask.entered or not measure.width or not cascade.wait_at_doors(node.key, ask.path):
            cascade.open(node.key, ask.path, measure.width or 0)
        return
    strategy = strategy_of(cascade.wiring.definition, node)
    if cascade.fail(node.key, ask.path, strategy, *problem, kept) is EdgeToken.EMPTY:
        cascade.open(node.key, ask.path, 0)
    else:
        cascade.pass_on(node.key, ask.path, EdgeToken.BLOCKED)
