"""Applying plans: everything that follows from ended steps, in the transaction that ended them. Invariants 4, 5 and 6.

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
from penstock.pipelines import budget, expand, joins, lineage, runs, steps, usual
from penstock.pipelines.changes import (
    Ask,
    Contribution,
    Decided,
    Failed,
    Fan,
    FiredJoin,
    OpenJoin,
    Plan,
    RunMode,
    Skip,
    Start,
    StepEnded,
)
from penstock.pipelines.definition import Kind
from penstock.pipelines.desk import Desk, Mode
from penstock.pipelines.inputs import asked_value, inputs_of
from penstock.pipelines.joins import Arrival, At
from penstock.pipelines.measure import to_expand, to_match
from penstock.pipelines.paths import path_of, path_text
from penstock.pipelines.plan import advance, begin, fire, resolve
from penstock.pipelines.runs import RunView
from penstock.pipelines.steps import NewStep
from penstock.pipelines.stored import Values, fetch
from penstock.queue.jobs import Ended
from penstock.values.ids import new_id
from penstock.values.status import JobStatus, Reason


@dataclass(slots=True)
class RunChange:
    """What is to be written to a run's row."""

    failures: list[Failed] = field(default_factory=list)
    mode: RunMode | None = None
    result: str | None = None
    waits: list[NewStep] = field(default_factory=list)
    reserved: int = 0
    ended: bool = False
    abandoned: bool = False
    """Nothing can be planned for it any more: it is halted, and ends when nothing of it is left."""


class Application:
    """One batch of consequences, in one transaction."""

    def __init__(self, desk: Desk, tx: Transaction) -> None:
        self.desk = desk
        self.tx = tx
        self.runs: dict[str, RunView] = {}
        self.values = Values()
        self.changes: dict[str, RunChange] = {}
        self._steps: list[NewStep] = []
        self._joins: list[dict[str, object]] = []
        self._asks: list[tuple[RunView, Ask]] = []
        self._arrivals: dict[tuple[str, int, str], dict[At, Arrival]] = defaultdict(dict)

    def begin(self, run: RunView) -> None:
        """The first steps of a new run."""
        self.runs[run.id] = run
        self.take(run, self.desk.troubles.planned(run.id, begin, run.wiring, run.facts))

    def ended(self, ended: Sequence[Ended]) -> None:
        """Steps have ended, whichever way."""
        unusual = {step.run_id for step in ended if not usual.is_usual(step)}
        ended = [step for step in ended if step.run_id in unusual or not self._lead_on(step)]
        missing = [id for id in dict.fromkeys([step.run_id for step in ended]) if id not in self.runs]
        if missing:
            self._look_anew(ended)
            self.runs |= runs.views(self.desk, self.tx, missing)
        recent = self.desk.trace(self.tx).outputs
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
            as_ever = usual.is_usual(step) and run.mode is RunMode.RUNNING
            plan = self.desk.plans.get((run.definition, step.node)) if as_ever else None
            if plan is None:
                end = StepEnded(step.node, path, step.status, step.reason, stops, step.kept)
                plan = self.desk.troubles.planned(run.id, advance, run.wiring, run.facts, end)
                if as_ever:
                    usual.learn(self.desk, run, step.node, plan)
            self.take(run, plan)

    def _lead_on(self, step: Ended) -> bool:
        """Without a plan, if that can be: see `usual`."""
        run = self.runs.get(step.run_id)
        going_on = run is None or run.mode is RunMode.RUNNING
        following = usual.steps_after(self.desk, step) if going_on else None
        if following is None:
            return False
        self.desk.trace(self.tx).outputs[step.run_id, step.node, step.path] = step.output
        self._steps += following
        return True

    def _look_anew(self, ended: Sequence[Ended]) -> None:
        """Their states are locked now, and only what is read after that is certain (see `runs`)."""
        modes = self.desk.trace(self.tx).modes
        for step in ended:
            if step.mode is None and step.run_id not in self.runs:
                modes.pop(step.run_id, None)

    def work_off(self) -> None:
        """Follow everything to where it ends or waits, and write it. What is left is for `ending.settle_runs`."""
        while self._asks or self._arrivals:
            if self._asks:
                self._answer()
            else:
                self._join(min(self._arrivals))
        self._write_joins()
        written, self._steps = self._steps, []
        if written:
            steps.write(self.desk, self.tx, written)

    def change(self, run: RunView) -> RunChange:
        return self.changes.setdefault(run.id, RunChange())

    # a plan, change by change

    def take(self, run: RunView, plan: Plan, value: object = None) -> None:
        """Note everything a plan says; `value` is what an expand in it runs over."""
        if plan.mode is not run.mode:
            run.mode = self.change(run).mode = plan.mode
            self.desk.trace(self.tx).modes[run.id] = Mode(plan.mode.value, run.paused, run.definition)
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
        self._asks.extend([(run, ask) for ask in plan.asks])
        if plan.ended:
            self.change(run).ended = True

    def _fail(self, run: RunView, failed: Failed) -> None:
        self.change(run).failures.append(failed)
        if failed.detail:
            mould = self.desk.mould(run.definition, failed.node)
            self._steps.append(
                NewStep(
                    new_id(),
                    run.id,
                    failed.node.key,
                    failed.path,
                    mould,
                    JobStatus.FAILED,
                    reason=failed.reason,
                    error=failed.detail,
                )
            )

    def _start(self, run: RunView, start: Start) -> None:
        mould = self.desk.mould(run.definition, start.node)
        status = JobStatus.SCHEDULED if start.delay > 0 else JobStatus.AVAILABLE
        if start.node.kind is Kind.WAIT:
            status = JobStatus.WAITING
        step = NewStep(new_id(), run.id, start.node.key, start.path, mould, status, delay=start.delay)
        self._steps.append(step)
        if start.node.kind is Kind.WAIT:
            self.change(run).waits.append(step)

    def _skip(self, run: RunView, skip: Skip) -> None:
        mould = self.desk.mould(run.definition, skip.node)
        step = NewStep(new_id(), run.id, skip.node.key, skip.path, mould, skip.status, reason=skip.reason)
        self._steps.append(step)
        self.values.outputs[run.id, skip.node.key, skip.path] = None

    def _open(self, run: RunView, opened: OpenJoin) -> None:
        self._joins.append(joins.row(run.id, opened.node, opened.path, opened.tokens, width=opened.width))
        self.values.marks[run.id, opened.node, opened.path] = (None, opened.width)

    def _decide(self, run: RunView, decided: Decided) -> None:
        self._joins.append(joins.row(run.id, decided.node, decided.path, 0, winner=decided.winner))
        self.values.marks[run.id, decided.node, decided.path] = (decided.winner, None)

    def _fan(self, run: RunView, fan: Fan, value: object) -> None:
        budget.reserve(run, self.change, fan)
        if fan.width > self.desk.host.settings.inline_fanout:
            expand.begin(self.tx, run, fan)
        else:
            self._steps.extend(expand.first_steps(self.desk, run, fan, value))

    def _contribute(self, run: RunView, added: Contribution) -> None:
        key = (run.definition, run.wiring.ranks[added.node], added.node)
        at = (run.id, added.path)
        known = self._arrivals[key].get(at)
        if known is None:
            self._arrivals[key][at] = Arrival(added.tokens, added.tally, added.count)
        else:
            known.tokens += added.tokens
            known.tally = known.tally.plus(added.tally)

    # following

    def _answer(self) -> None:
        asks, self._asks = self._asks, []
        self._write_joins()
        wanted = [(run.id, inputs_of(run.wiring, ask.node, ask.path)) for run, ask in asks]
        fetch(self.desk, self.tx, self.values, wanted)
        budget.look(self.tx, [run for run, _ in asks])
        for run, ask in asks:
            kept = lineage.keeps_failure(self.desk, self.tx, run, (ask.node, path_text(ask.path)))
            self.take(run, *self.desk.troubles.planned(run.id, self._resolved, run, ask, kept))

    def _resolved(self, run: RunView, ask: Ask, kept: bool) -> tuple[Plan, object]:
        value = asked_value(run.wiring, ask.node, ask.path, self.values.of(run))
        switch = run.wiring.places[ask.node].node.kind is Kind.SWITCH
        measure = to_match(value) if switch else to_expand(value)
        return resolve(run.wiring, run.facts, ask, measure, kept), value

    def _join(self, key: tuple[str, int, str]) -> None:
        arrivals = self._arrivals.pop(key)
        self._write_joins()
        node = key[2]
        some = self.runs[next(iter(arrivals))[0]]
        for fired in joins.arrive(self.tx, some.wiring.places[node], arrivals):
            run = self.runs[fired.run]
            self.values.marks[run.id, node, fired.path] = (fired.tally.winner, fired.width)
            due = FiredJoin(node, fired.path, fired.tally)
            self.take(run, self.desk.troubles.planned(run.id, fire, run.wiring, run.facts, due))

    def _write_joins(self) -> None:
        rows, self._joins = self._joins, []
        if rows:
            joins.write(self.tx, sorted(rows, key=lambda row: (row["run_id"], row["node"], row["path"])))
