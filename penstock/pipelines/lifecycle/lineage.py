"""The lineage of a revived run: the runs before it, and the results of a step in them.

They may have had another definition. Then only those steps count that come to the same in both: they and all that they
were made from are not changed. The others are new, and have new idempotency keys.

The same goes for what depends on a step that was retried by itself: it is made from something else now. Whatever the
runs before that one made of it does not count, neither then nor when that run is revived in its turn.

A run that was forked at a step does that step and its dependants anew, all elements, whatever became of them before. A
fork of which no step is named is a child run: that of a fork (see `child_runs`), and keeps all that is finished.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from penstock.database.transaction import Transaction
from penstock.pipelines.advance.run_rows import RunView, wiring_for
from penstock.pipelines.advance.state import EngineState
from penstock.pipelines.model.compatibility import dependants, stable_nodes
from penstock.pipelines.model.definition import Node
from penstock.pipelines.model.expressions import path_of, path_text
from penstock.values.fork_safety import cached_property
from penstock.values.status import JobStatus, Reason

ANCESTOR = "SELECT revived_from, definition, only_step, forked_from FROM {runs} WHERE id = :id"
STEPS = """
SELECT j.run_id, j.node, j.path, j.id, s.status, s.reason FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id
WHERE j.run_id {among:runs:uuid} AND j.node {among:nodes:text}
"""
AT_PATHS = " AND j.path {among:paths:text}"
INSIDE = " AND j.path LIKE :inside"
OUTPUTS = "SELECT job_id, output FROM {executions} WHERE job_id {among:ids:uuid} AND outcome = 'succeeded'"
CHILDREN = """
SELECT r.parent_run_id, j.node, j.path, r.id, r.definition FROM {runs} r JOIN {jobs} j ON j.id = r.parent_job_id
WHERE r.parent_run_id {among:runs:uuid} AND j.node {among:nodes:text} AND j.path {among:paths:text} ORDER BY r.id
"""

Place = tuple[str, str]
"""A node, and a path as text."""


class EarlierResult(NamedTuple):
    """The result of a step in earlier runs."""

    first: str
    """The job of the step in the first of these runs: its id is the idempotency key."""
    succeeded: str | None
    """The job that has its output."""
    failed: tuple[str, str | None] | None
    """The job that failed last, and why."""
    stopped: bool = False
    """True if the step succeeded by `stop_run()`."""


class ChildRun(NamedTuple):
    """A run that was a step of another."""

    id: str
    definition: str
    shared: bool = False
    """True if a fork lies between: the run that forked may be revived too, and then continues the same child."""


class _EarlierRun(NamedTuple):
    """A run: this one, or one that it was revived or forked from."""

    id: str
    definition: str
    only: str | None
    forked: bool


class _Step(NamedTuple):
    job: str
    status: JobStatus
    reason: str | None


def before(
    engine_state: EngineState, tx: Transaction, run: RunView, places: Iterable[Place]
) -> dict[Place, EarlierResult]:
    """The results of the steps at these places in the runs that this one was revived from."""
    wanted = set(places)
    history = _History(engine_state, tx, run, wanted)
    return {place: known for place in wanted if (known := history.made(place)) is not None}


def keeps_failure(engine_state: EngineState, tx: Transaction, run: RunView, place: Place) -> bool:
    """True if the step failed in an earlier run and this run was revived for another step."""
    if run.only is None or run.only == place[0]:
        return False
    known = before(engine_state, tx, run, [place]).get(place)
    return known is not None and known.failed is not None


def children(
    engine_state: EngineState, tx: Transaction, run: RunView, places: Iterable[Place]
) -> dict[Place, ChildRun]:
    """The child runs that steps at these places had, each in the nearest run that had one."""
    wanted = set(places)
    history = _History(engine_state, tx, run, wanted)
    nodes, paths = sorted({node for node, _ in wanted}), sorted({path for _, path in wanted})
    rows = tx.rows(CHILDREN, runs=[past.id for past in history.runs[1:]], nodes=nodes, paths=paths)
    known: dict[tuple[str, Place], ChildRun] = {}
    for parent, node, path, child, definition in rows:
        known.setdefault((str(parent), (str(node), str(path or ""))), ChildRun(str(child), str(definition)))
    found: dict[Place, ChildRun] = {}
    for place in wanted:
        for past in history.counting(place):
            if (past.id, place) in known and place not in found:
                found[place] = known[past.id, place]._replace(shared=history.is_across_a_fork(past))
    return found


def outputs(tx: Transaction, known: Iterable[EarlierResult]) -> dict[str, str | None]:
    """The outputs of the steps that succeeded, by job, without those that were pruned."""
    jobs = sorted({one.succeeded for one in known if one.succeeded is not None})
    return {str(job): output for job, output in tx.rows(OUTPUTS, ids=jobs)} if jobs else {}


class _History:
    """The runs that a run comes from, nearest first, and what they made of some steps."""

    def __init__(
        self, engine_state: EngineState, tx: Transaction, run: RunView, places: Iterable[Place]
    ) -> None:
        self.engine_state = engine_state
        self.tx = tx
        self.run = run
        self.places = set(places)
        self.runs = [_EarlierRun(run.id, run.definition, run.only, run.forked)]
        next_one = run.revived_from
        while next_one is not None and (row := tx.row(ANCESTOR, id=next_one)) is not None:
            only = None if row[2] is None else str(row[2])
            self.runs.append(_EarlierRun(next_one, str(row[1]), only, row[3] is not None))
            next_one = None if row[0] is None else str(row[0])
        self._known: dict[tuple[int, Place], EarlierResult | None] = {}

    def made(self, place: Place, since: int = 0) -> EarlierResult | None:
        """The result of a step in the runs before the one of this number: the nearest one that has a result counts."""
        if (since, place) not in self._known:
            found: EarlierResult | None = None
            for past in self.counting(place, since):
                step = self._steps.get((past.id, place))
                found = found if step is None else _added(found, step)
            self._known[since, place] = found
        return self._known[since, place]

    def counting(self, place: Place, since: int = 0) -> list[_EarlierRun]:
        """The runs before the one of this number whose result of a step counts, nearest first."""
        found: list[_EarlierRun] = []
        for number in range(since, len(self.runs) - 1):
            if self._is_redone(number, place):
                break
            if self._is_same(self.runs[number + 1].definition, place[0]):
                found.append(self.runs[number + 1])
        return found

    def is_across_a_fork(self, past: _EarlierRun) -> bool:
        """True if this run, or one between it and the earlier one, was forked."""
        return any(later.forked for later in self.runs[: self.runs.index(past)])

    @cached_property
    def _steps(self) -> dict[tuple[str, Place], _Step]:
        places = self._with_retried(self.places)
        nodes, paths = sorted({node for node, _ in places}), sorted({path for _, path in places})
        earlier = [past.id for past in self.runs[1:]]
        return _read(self.tx.rows(STEPS + AT_PATHS, runs=earlier, nodes=nodes, paths=paths))

    def _with_retried(self, places: set[Place]) -> set[Place]:
        """These places, and those of the retried steps of the same element that they depend on."""
        found, left = set(places), list(places)
        while left:
            node, path = left.pop()
            for past in self.runs:
                shared = self._dependants(past).get(node)
                if past.only is not None and shared is not None:
                    place = (past.only, path_text(path_of(path)[:shared]))
                    left += [place] if place not in found else []
                    found.add(place)
        return found

    def _is_redone(self, number: int, place: Place) -> bool:
        """True if this run did the step again, or was to do it, because a step that it depends on was redone."""
        past, (node, path) = self.runs[number], place
        shared = self._dependants(past).get(node)
        if past.only is None or shared is None:
            return past.forked and node == past.only
        if past.forked:
            return True
        start, retried = path_text(path_of(path)[:shared]), self._retried(past)
        if shared == retried.depth:
            known = self.made((past.only, start), number)
            # An expand has a row only if it failed.
            return retried.kind.is_step if known is None else known.succeeded is None
        return not start or self._has_redone_element(number, past.only, start)

    def _has_redone_element(self, number: int, node: str, start: str) -> bool:
        """True if an element that a nested collapse has collected was redone."""
        earlier = [past.id for past in self.runs[1:]]
        rows = self.tx.rows(STEPS + INSIDE, runs=earlier, nodes=[node], inside=f"{start}.%")
        self._steps.update(_read(rows))
        made = [self.made((node, str(row[2])), number) for row in rows]
        return any(known is None or known.succeeded is None for known in made)

    def _dependants(self, past: _EarlierRun) -> Mapping[str, int]:
        if past.only is None:
            return {}
        pair = (past.definition, past.only)
        if pair not in self.engine_state.dependants:
            self.engine_state.dependants[pair] = dependants(
                wiring_for(self.engine_state, self.tx, past.definition), past.only
            )
        return self.engine_state.dependants[pair]

    def _retried(self, past: _EarlierRun) -> Node:
        return wiring_for(self.engine_state, self.tx, past.definition).places[str(past.only)].node

    def _is_same(self, definition: str, node: str) -> bool:
        if definition == self.run.definition:
            return True
        pair = (definition, self.run.definition)
        if pair not in self.engine_state.stable:
            self.engine_state.stable[pair] = stable_nodes(
                wiring_for(self.engine_state, self.tx, definition), self.run.wiring
            )
        return node in self.engine_state.stable[pair]


def _read(rows: Iterable[Iterable[object]]) -> dict[tuple[str, Place], _Step]:
    return {
        (str(run), (str(node), str(path or ""))): _Step(
            str(job), JobStatus.stored(str(status)), None if reason is None else str(reason)
        )
        for run, node, path, job, status, reason in rows
    }


def _added(known: EarlierResult | None, step: _Step) -> EarlierResult:
    found = known or EarlierResult(step.job, None, None)
    if found.succeeded is None and step.status is JobStatus.SUCCEEDED:
        stopped = step.reason == Reason.RUN_STOPPED
        found = found._replace(succeeded=step.job, stopped=stopped)
    if found.failed is None and step.status is JobStatus.FAILED:
        found = found._replace(failed=(step.job, step.reason))
    return found._replace(first=step.job)
