"""The planner at work, in memory: rows are dicts, and the test decides which step ends next.

It does what storage does with a plan, and checks on the way what storage must be able to rely on: nothing is
created twice, a join is decided once, and a run ends when, and only when, all its steps have ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from penstock.pipelines.define.validation import check
from penstock.pipelines.model.definition import Definition, NodeKind, Strategy
from penstock.pipelines.model.expressions import Path
from penstock.pipelines.plan.changes import Ask, DoorArrival, FiredJoin, Plan, RunMode, StepEnded
from penstock.pipelines.plan.inputs import arguments, asked_value, inputs_of, result_of, value_of
from penstock.pipelines.plan.plan import (
    RunFacts,
    RunState,
    admit,
    advance,
    begin,
    elements,
    fire,
    resolve,
    status_of,
    to_expand,
    to_match,
)
from penstock.pipelines.plan.tokens import JoinState, Tally, due
from penstock.values.status import JobStatus, Reason, RunStatus
from penstock.values.typed_json import tags

Where = tuple[str, Path]


class Boom(Exception):
    """What an outcome raises to fail its step."""


class Stop(Exception):
    """What an outcome raises to stop the run with a value."""


Outcome = Callable[[str, Path, list[object], dict[str, object]], object]


@dataclass
class Step:
    status: JobStatus
    reason: Reason | None = None
    output: object = None
    element: object = None
    delay: float = 0.0


@dataclass
class Row:
    open: int
    tally: Tally = field(default_factory=Tally)
    fired: bool = False
    width: int = 0


class Machine:
    """One run."""

    def __init__(
        self,
        definition: Definition,
        outcome: Outcome,
        params: dict[str, object] | None = None,
        seed: int = 0,
        max_fanout: int | None = None,
    ) -> None:
        self.wiring = check(definition)
        self.outcome = outcome
        self.params = params or {}
        self.random = Random(seed)
        self.max_fanout = max_fanout
        self.mode = RunMode.RUNNING
        self.steps: dict[Where, Step] = {}
        self.joins: dict[Where, Row] = {}
        self.fired: dict[Where, int] = {}
        self.waiting: list[DoorArrival] = []
        self.lost: set[Where] = set()
        self.failures: list[tuple[str, Path, Strategy, Reason, str]] = []
        self.order: list[Where] = []
        self.ended = False
        self.stop_value: object = None

    # driving

    def run(self) -> Machine:
        """Start, and let steps end in random order until nothing is left."""
        self.apply(begin(self.wiring, self.facts))
        while ready := [at for at, step in self.steps.items() if not step.status.terminal]:
            self.finish(*self.random.choice(ready))
        return self

    def finish(self, node: str, path: Path = ()) -> None:
        """Let one step run and end."""
        step = self.steps[node, path]
        assert step.status in (JobStatus.AVAILABLE, JobStatus.RUNNING, JobStatus.WAITING), (node, path, step)
        self._check_needs(node, path)
        raw = arguments(self.wiring, node, path, self, step.element)
        args, kwargs = (
            [tags.read(value) for value in raw[0]],
            {name: tags.read(raw[1][name]) for name in raw[1]},
        )
        self.order.append((node, path))
        step.status, stops = JobStatus.RUNNING, False
        try:
            step.output = self.outcome(node, path, args, kwargs)
            step.status = JobStatus.SUCCEEDED
        except Boom:
            step.status, step.reason = JobStatus.FAILED, Reason.RETRIES_EXHAUSTED
        except Stop as stop:
            step.status, stops = JobStatus.SUCCEEDED, True
            step.output = self.stop_value = stop.args[0]
        self.end(node, path, stops)

    def end(self, node: str, path: Path = (), stops: bool = False) -> None:
        """The step has ended; apply what follows."""
        step = self.steps[node, path]
        ended = StepEnded(node, path, step.status, step.reason, stops)
        self.apply(advance(self.wiring, self.facts, ended))

    def cancel(self) -> None:
        """Cancel the run: what is not running ends as cancelled."""
        self.mode = RunMode.CANCELLED
        self._sweep(JobStatus.CANCELLED, Reason.CANCELLED)

    @property
    def facts(self) -> RunFacts:
        return RunFacts(self.mode, self.max_fanout)

    # applying

    def apply(self, plan: Plan) -> None:
        swept = plan.mode is not self.mode
        self.mode = plan.mode
        for failed in plan.failures:
            self.failures.append(
                (failed.node.key, failed.path, failed.strategy, failed.reason, failed.detail)
            )
            if not failed.node.kind.is_step:
                assert failed.detail
        self.lost |= {(node, losers.path) for losers in plan.losers for node in losers.nodes}
        for start in plan.starts:
            status = JobStatus.WAITING if start.node.kind is NodeKind.WAIT else JobStatus.AVAILABLE
            self._create((start.node.key, start.path), Step(status, delay=start.delay))
        for skip in plan.skips:
            self._create((skip.node.key, skip.path), Step(skip.status, skip.reason))
        for opened in plan.opens:
            assert (opened.node, opened.path) not in self.joins
            self.joins[opened.node, opened.path] = Row(
                opened.tokens, fired=not opened.tokens, width=opened.width
            )
        for decided in plan.decided:
            assert (decided.node, decided.path) not in self.joins
            self.joins[decided.node, decided.path] = Row(0, Tally(winner=decided.winner), fired=True)
        for fan in plan.fans:
            values = tags.raw_elements(asked_value(self.wiring, fan.node, fan.path, self))
            for start in elements(self.wiring, fan):
                self._create(
                    (start.node.key, start.path), Step(JobStatus.AVAILABLE, element=values[start.path[-1]])
                )
        if swept:
            self._sweep(JobStatus.SKIPPED, Reason.RUN_HALTED)
        self._contribute(plan)
        for arrival in plan.door_arrivals:
            self._arrive_at_door(arrival)
        for ask in plan.asks:
            self._answer(ask)
        self._end_losers()
        if plan.ended:
            self._end()

    def _end_losers(self) -> None:
        """Waits that have lost end, whether they began before or after that."""
        for at in sorted(self.lost):
            step = self.steps.get(at)
            if step is not None and step.status is JobStatus.WAITING:
                assert self.wiring.places[at[0]].node.kind is NodeKind.WAIT
                step.status, step.reason = JobStatus.SKIPPED, Reason.FIRST_DECIDED
                self.end(*at)

    def _contribute(self, plan: Plan) -> None:
        for added in plan.contributions:
            at = (added.node, added.path)
            if at not in self.joins:
                assert added.count is not None, at
                self.joins[at] = Row(added.count)
            row = self.joins[at]
            row.open -= added.tokens
            row.tally = row.tally.plus(added.tally)
            assert row.open >= 0, at
            if due(self.wiring.places[added.node], JoinState(row.open, row.tally, row.fired)):
                row.fired = True
                self.fired[at] = self.fired.get(at, 0) + 1
                if self.wiring.places[added.node].is_door:
                    self._open(added.node, added.path, row.tally)
                    continue
                self.apply(fire(self.wiring, self.facts, FiredJoin(added.node, added.path, row.tally)))

    def _arrive_at_door(self, arrival: DoorArrival) -> None:
        row = self.joins.get((arrival.door, arrival.path[: self.wiring.places[arrival.door].node.depth]))
        if row is not None and row.fired:
            self._admit(arrival, row.tally)
        else:
            assert arrival not in self.waiting
            self.waiting.append(arrival)

    def _open(self, door: str, path: Path, tally: Tally) -> None:
        """Those who wait go on in any order, and not before all of them are known."""
        ready = [one for one in self.waiting if one.door == door and one.path[: len(path)] == path]
        self.waiting = [one for one in self.waiting if one not in ready]
        self.random.shuffle(ready)
        for arrival in ready:
            self._admit(arrival, tally)

    def _admit(self, arrival: DoorArrival, tally: Tally) -> None:
        tally = arrival.tally.plus(tally)
        self.apply(admit(self.wiring, self.facts, arrival.door, arrival.path, tally))

    def _answer(self, ask: Ask) -> None:
        self._check_needs(ask.node, ask.path)
        value = asked_value(self.wiring, ask.node, ask.path, self)
        switch = self.wiring.places[ask.node].node.kind is NodeKind.SWITCH
        measure = to_match(value) if switch else to_expand(value)
        self.apply(resolve(self.wiring, self.facts, ask, measure))

    def _create(self, at: Where, step: Step) -> None:
        assert at not in self.steps, f"{at} was created twice"
        assert not self.ended, f"{at} was created after the end"
        self.steps[at] = step

    def _sweep(self, status: JobStatus, reason: Reason) -> None:
        for (node, path), step in list(self.steps.items()):
            # Half of them are running already, and finish.
            if step.status is JobStatus.AVAILABLE and self.random.random() < 0.5:
                step.status = JobStatus.RUNNING
            elif step.status in (JobStatus.AVAILABLE, JobStatus.WAITING):
                step.status, step.reason = status, reason
                self.end(node, path)

    def _end(self) -> None:
        assert not self.ended, "the run ended twice"
        self.ended = True
        still = [at for at, step in self.steps.items() if not step.status.terminal]
        assert not still, f"the run ended before {still}"

    def _check_needs(self, node: str, path: Path) -> None:
        """Reading a step's arguments touches nothing that `inputs_of` did not name."""
        self._allowed = inputs_of(self.wiring, node, path)

    # what a test looks at; also what was "stored"

    def param(self, name: str) -> object:
        return self.params[name]

    def output(self, node: str, path: Path) -> object:
        assert any(
            cell.node == node and _covers(cell.path, cell.below, path) for cell in self._allowed.outputs
        )
        step = self.steps.get((node, path))
        return step.output if step and step.status is JobStatus.SUCCEEDED else tags.MISSING

    def succeeded(self, node: str, path: Path) -> bool:
        self.output(node, path)
        step = self.steps.get((node, path))
        return step is not None and step.status is JobStatus.SUCCEEDED

    def winner(self, node: str, path: Path) -> str | None:
        assert any(cell.node == node and _covers(cell.path, cell.below, path) for cell in self._allowed.joins)
        row = self.joins.get((node, path))
        return row.tally.winner if row else None

    def width(self, node: str, path: Path) -> int | None:
        assert any(cell.node == node and _covers(cell.path, cell.below, path) for cell in self._allowed.joins)
        row = self.joins.get((node, path))
        return row.width if row else None

    @property
    def result(self) -> object:
        if self.mode is RunMode.STOPPED:
            return self.stop_value
        self._allowed = result_of(self.wiring)
        return tags.read(value_of(self.wiring, self.wiring.definition.result, (), self))

    @property
    def status(self) -> RunStatus:
        failed = sum(strategy is not Strategy.OPTIONAL for _, _, strategy, _, _ in self.failures)
        halted = any(strategy is Strategy.HALT for _, _, strategy, _, _ in self.failures)
        cancelled = self.mode is RunMode.CANCELLED
        return status_of(RunState(ended=self.ended, failed=failed, halted=halted, cancelled=cancelled))

    def statuses(self, node: str) -> list[str]:
        """The statuses of a node's steps, in element order."""
        return [self.steps[at].status.value for at in sorted(self.steps) if at[0] == node]

    def outputs(self, node: str) -> list[object]:
        return [self.steps[at].output for at in sorted(self.steps) if at[0] == node]


def _covers(prefix: Path, below: bool, path: Path) -> bool:
    return path[: len(prefix)] == prefix if below else path == prefix
