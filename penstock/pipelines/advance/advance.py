"""Applies plans: writes everything that follows from ended steps, in the transaction that ended them.

Invariants 4, 5 and 6.

Planning is pure and is told only what it asks for. Here its changes are collected over all runs of a batch and
written together: values are looked up first, then joins are worked off in the order of the definition, then the new
steps are written, and last the rows of those runs that have failed, changed their mode or come to their end.
That last part may end steps of other runs (the parent of a child run), and then it all begins anew.

Locks: the caller holds the states of the steps that ended; joins follow in their one order; rows of runs come last
and only where there is something to write. A transaction that locks a run first must lock nothing after it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.database.transaction import Transaction
from penstock.pipelines.advance import expand, fast_path, join_rows, run_rows, step_rows
from penstock.pipelines.advance.join_rows import Arrival, At
from penstock.pipelines.advance.run_rows import RunView
from penstock.pipelines.advance.state import EngineState, Mode
from penstock.pipelines.advance.step_rows import NewStep
from penstock.pipelines.advance.values import Values, fetch
from penstock.pipelines.model.definition import DOOR, NodeKind
from penstock.pipelines.model.expressions import Path, path_of, path_text
from penstock.pipelines.plan.changes import (
    Ask,
    Contribution,
    Decided,
    DoorArrival,
    Failed,
    Fan,
    FiredJoin,
    Losers,
    OpenJoin,
    Plan,
    RunMode,
    Skip,
    Start,
    StepEnded,
)
from penstock.pipelines.plan.inputs import asked_value, inputs_of
from penstock.pipelines.plan.plan import admit, advance, begin, fire, resolve, to_expand, to_match
from penstock.pipelines.plan.tokens import Tally
from penstock.queue.jobs import EndedStep
from penstock.values.ids import new_id
from penstock.values.status import JobStatus, Reason


@dataclass(slots=True)
class RunChange:
    """Changes that the transaction will write to a run's row."""

    failures: list[Failed] = field(default_factory=list)
    mode: RunMode | None = None
    result: str | None = None
    waits: list[NewStep] = field(default_factory=list)
    losers: list[Losers] = field(default_factory=list)
    reserved: int = 0
    ended: bool = False
    abandoned: bool = False
    """Nothing can be planned for it any more: it is halted, and ends when nothing of it is left."""


class Advance:
    """One batch of consequences, in one transaction."""

    def __init__(self, engine_state: EngineState, tx: Transaction) -> None:
        self.engine_state = engine_state
        self.tx = tx
        self.runs: dict[str, RunView] = {}
        self.values = Values()
        self.changes: dict[str, RunChange] = {}
        self._steps: list[NewStep] = []
        self._joins: list[dict[str, object]] = []
        self._asks: list[tuple[RunView, Ask]] = []
        self._arrivals: dict[tuple[str, int, str], dict[At, Arrival]] = defaultdict(dict)
        self._door_arrivals: dict[tuple[str, int, str], dict[At, Tally]] = defaultdict(dict)

    def begin(self, run: RunView) -> None:
        """The first steps of a new run."""
        self.runs[run.id] = run
        self.take(run, self.engine_state.planning_failures.planned(run.id, begin, run.wiring, run.facts))

    def ended(self, ended: Sequence[EndedStep]) -> None:
        """Take in steps that have ended."""
        unusual = {step.run_id for step in ended if not self._has_cached_plan(step)}
        ended = [step for step in ended if step.run_id in unusual or not self._use_fast_path(step)]
        missing = [id for id in dict.fromkeys([step.run_id for step in ended]) if id not in self.runs]
        if missing:
            self._forget_cached_modes(ended)
            self.runs |= run_rows.views(self.engine_state, self.tx, missing)
        recent = self.engine_state.trace(self.tx).outputs
        for step in ended:
            run = self.runs.get(step.run_id)
            if run is None:
                continue
            path = path_of(step.path)
            output = step.output if step.status is JobStatus.SUCCEEDED else None
            self.values.outputs[run.id, step.node, path] = output
            recent[run.id, step.node, step.path] = output
            stops = step.status is JobStatus.SUCCEEDED and step.reason is Reason.RUN_STOPPED
            if stops and run.mode is RunMode.RUNNING:
                self.change(run).result = step.output
            is_plain = self._has_cached_plan(step) and run.mode is RunMode.RUNNING
            plan = self.engine_state.plans.get((run.definition, step.node)) if is_plain else None
            if plan is None:
                end = StepEnded(step.node, path, step.status, step.reason, stops, step.kept)
                plan = self.engine_state.planning_failures.planned(
                    run.id, advance, run.wiring, run.facts, end
                )
                if is_plain:
                    fast_path.learn(self.engine_state, run, step.node, plan)
            self.take(run, plan)

    def _has_cached_plan(self, step: EndedStep) -> bool:
        """True if the plan after this step may be a remembered one."""
        return self.tx.dialect.fast_path.plan and fast_path.is_plain_success(step)

    def _use_fast_path(self, step: EndedStep) -> bool:
        """Write the next steps from a cached plan, if there is one (see `fast_path`); True if that was done."""
        run = self.runs.get(step.run_id)
        going_on = run is None or run.mode is RunMode.RUNNING
        following = fast_path.steps_after(self.engine_state, step) if going_on else None
        if following is None:
            return False
        self.engine_state.trace(self.tx).outputs[step.run_id, step.node, step.path] = step.output
        self._steps += following
        return True

    def _forget_cached_modes(self, ended: Sequence[EndedStep]) -> None:
        """Their states are locked now, and only what is read after that is certain (see `run_rows`)."""
        modes = self.engine_state.trace(self.tx).modes
        for step in ended:
            if step.run is None and step.run_id not in self.runs:
                modes.pop(step.run_id, None)

    def work_off(self) -> None:
        """Apply all plans until each ends or waits, and write the rows; `finish.finish` writes the rows of runs."""
        while self._asks or self._arrivals or self._door_arrivals:
            if self._asks:
                self._answer()
                continue
            key = min([*self._arrivals, *self._door_arrivals])
            if key[2].startswith(DOOR):
                self._door(key)
            else:
                self._join(key)
        self._write_joins()
        written, self._steps = self._steps, []
        if written:
            step_rows.write(self.engine_state, self.tx, written)

    def change(self, run: RunView) -> RunChange:
        return self.changes.setdefault(run.id, RunChange())

    # a plan, change by change

    def take(self, run: RunView, plan: Plan, value: object = None) -> None:
        """Collect the changes of a plan; `value` is the value that its expand runs over."""
        if plan.mode is not run.mode:
            run.mode = self.change(run).mode = plan.mode
            self.engine_state.trace(self.tx).modes[run.id] = Mode(plan.mode.value, run.paused, run.definition)
        for failed in plan.failures:
            self._fail(run, failed)
        for start in plan.starts:
            self._start(run, start)
        for skip in plan.skips:
            self._skip(run, skip)
        for opened in plan.opens:
            self._open(run, opened)
        for decided in plan.decided:
            self._decide(run, decided)
        for fan in plan.fans:
            self._fan(run, fan, value)
        for added in plan.contributions:
            self._contribute(run, added)
        for arrival in plan.door_arrivals:
            self._arrive_at_door(run, arrival)
        self._asks.extend([(run, ask) for ask in plan.asks])
        if plan.losers:
            self.change(run).losers.extend(plan.losers)
        if plan.ended:
            self.change(run).ended = True

    def _fail(self, run: RunView, failed: Failed) -> None:
        self.change(run).failures.append(failed)
        if failed.detail:
            template = self.engine_state.template(run.definition, failed.node)
            self._steps.append(
                NewStep(
                    new_id(),
                    run.id,
                    failed.node.key,
                    failed.path,
                    template,
                    JobStatus.FAILED,
                    reason=failed.reason,
                    error=failed.detail,
                )
            )

    def _start(self, run: RunView, start: Start) -> None:
        template = self.engine_state.template(run.definition, start.node)
        status = JobStatus.SCHEDULED if start.delay > 0 else JobStatus.AVAILABLE
        if start.node.kind is NodeKind.WAIT:
            status = JobStatus.WAITING
        step = NewStep(new_id(), run.id, start.node.key, start.path, template, status, delay=start.delay)
        self._steps.append(step)
        if start.node.kind is NodeKind.WAIT:
            self.change(run).waits.append(step)

    def _skip(self, run: RunView, skip: Skip) -> None:
        template = self.engine_state.template(run.definition, skip.node)
        step = NewStep(new_id(), run.id, skip.node.key, skip.path, template, skip.status, reason=skip.reason)
        self._steps.append(step)
        self.values.outputs[run.id, skip.node.key, skip.path] = None

    def _open(self, run: RunView, opened: OpenJoin) -> None:
        self._joins.append(join_rows.row(run.id, opened.node, opened.path, opened.tokens, width=opened.width))
        self.values.marks[run.id, opened.node, opened.path] = (None, opened.width)

    def _decide(self, run: RunView, decided: Decided) -> None:
        self._joins.append(join_rows.row(run.id, decided.node, decided.path, 0, winner=decided.winner))
        self.values.marks[run.id, decided.node, decided.path] = (decided.winner, None)

    def _fan(self, run: RunView, fan: Fan, value: object) -> None:
        run_rows.reserve(run, self.change, fan)
        if fan.width > self.engine_state.host.settings.inline_fanout:
            expand.begin(self.tx, run, fan)
        else:
            self._steps.extend(expand.first_steps(self.engine_state, run, fan, value))

    def _contribute(self, run: RunView, added: Contribution) -> None:
        key = (run.definition, run.wiring.ranks[added.node], added.node)
        at = (run.id, added.path)
        known = self._arrivals[key].get(at)
        if known is None:
            self._arrivals[key][at] = Arrival(added.tokens, added.tally, added.count)
        else:
            known.tokens += added.tokens
            known.tally = known.tally.plus(added.tally)

    def _arrive_at_door(self, run: RunView, arrival: DoorArrival) -> None:
        key = (run.definition, run.wiring.ranks[arrival.door], arrival.door)
        self._door_arrivals[key][run.id, arrival.path] = arrival.tally

    # following

    def _answer(self) -> None:
        asks, self._asks = self._asks, []
        self._write_joins()
        wanted = [(run.id, inputs_of(run.wiring, ask.node, ask.path)) for run, ask in asks]
        fetch(self.engine_state, self.tx, self.values, wanted)
        run_rows.read_reserved(self.tx, [run for run, _ in asks])
        for run, ask in asks:
            place = (ask.node, path_text(ask.path))
            kept = self.engine_state.features.keeps_failure(self.engine_state, self.tx, run, place)
            self.take(
                run, *self.engine_state.planning_failures.planned(run.id, self._resolved, run, ask, kept)
            )

    def _resolved(self, run: RunView, ask: Ask, kept: bool) -> tuple[Plan, object]:
        value = asked_value(run.wiring, ask.node, ask.path, self.values.of(run))
        switch = run.wiring.places[ask.node].node.kind is NodeKind.SWITCH
        measure = to_match(value) if switch else to_expand(value)
        return resolve(run.wiring, run.facts, ask, measure, kept), value

    def _join(self, key: tuple[str, int, str]) -> None:
        arrivals = self._arrivals.pop(key)
        self._write_joins()
        node = key[2]
        some = self.runs[next(iter(arrivals))[0]]
        for fired in join_rows.arrive(self.tx, some.wiring.places[node], arrivals):
            run = self.runs[fired.run]
            self.values.marks[run.id, node, fired.path] = (fired.tally.winner, fired.width)
            due = FiredJoin(node, fired.path, fired.tally)
            self.take(
                run, self.engine_state.planning_failures.planned(run.id, fire, run.wiring, run.facts, due)
            )

    def _door(self, key: tuple[str, int, str]) -> None:
        """Handle the tokens and elements that came to a door, from outside and from inside. Its row is locked
        while it is not open: so no element begins to wait while the door opens."""
        arrivals, door_arrivals = self._arrivals.pop(key, {}), self._door_arrivals.pop(key, {})
        self._write_joins()
        node, some = key[2], self.runs[next(iter([*arrivals, *door_arrivals]))[0]]
        place = some.wiring.places[node]
        behind = {(run, path[: place.node.depth]) for run, path in door_arrivals}
        closed = behind - join_rows.fired_among(self.tx, node, behind).keys()
        for at in closed:
            arrivals.setdefault(at, Arrival(0, Tally(), place.count))
        for opened in join_rows.arrive(self.tx, place, arrivals):
            self._let_in(self.runs[opened.run], node, opened.path, opened.tally)
        is_open = join_rows.fired_among(self.tx, node, behind)
        for (id, path), tally in door_arrivals.items():
            found = is_open.get((id, path[: place.node.depth]))
            if found is None:
                self._joins.append(join_rows.waiting_row(id, node, path, tally))
            else:
                self.admit(self.runs[id], node, path, tally.plus(found))

    def _let_in(self, run: RunView, door: str, path: Path, tally: Tally) -> None:
        """A door has opened: those who wait at it go on, many of them chunk by chunk (see `expand`)."""
        most = self.engine_state.host.settings.inline_fanout
        waiting = join_rows.waiting_at(self.tx, run.id, door, path, most + 1)
        if len(waiting) > most:
            expand.open_door(self.tx, run, door, path)
            return
        if waiting:
            join_rows.remove(self.tx, run.id, door, waiting)
        for at, came in waiting.items():
            self.admit(run, door, at, came.plus(tally))

    def admit(self, run: RunView, door: str, path: Path, tally: Tally) -> None:
        """A node goes through a door."""
        self.take(
            run,
            self.engine_state.planning_failures.planned(
                run.id, admit, run.wiring, run.facts, door, path, tally
            ),
        )

    def _write_joins(self) -> None:
        rows, self._joins = self._joins, []
        if rows:
            join_rows.write(self.tx, sorted(rows, key=lambda row: (row["run_id"], row["node"], row["path"])))
