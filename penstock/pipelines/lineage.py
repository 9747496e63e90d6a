"""Where a revived run comes from: the runs before it, and what they made of a step.

They may have had another definition. Then only those steps count that come to the same in both: they and all that they
were made from are not changed. The others are new, and have new idempotency keys.

The same goes for what depends on a step that was retried by itself: it is made from something else now. Whatever the
runs before that one made of it does not count, neither then nor when that run is revived in its turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from penstock.database.transaction import Transaction
from penstock.pipelines.definition import Node
from penstock.pipelines.dependants import dependants
from penstock.pipelines.desk import Desk
from penstock.pipelines.moving import stable_nodes
from penstock.pipelines.paths import path_of, path_text
from penstock.pipelines.runs import RunView, wiring_for
from penstock.values.cached import cached_property
from penstock.values.status import JobStatus, Reason

ANCESTOR = "SELECT revived_from, definition, only_step FROM {runs} WHERE id = :id"
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


class Before(NamedTuple):
    """What earlier runs made of a step."""

    first: str
    """The job of its first incarnation: its idempotency key."""
    succeeded: str | None
    """The job that has its output."""
    failed: tuple[str, str | None] | None
    """The job that failed last, and why."""
    stopped: bool = False
    """With its success it has stopped the run."""


class Child(NamedTuple):
    """A run that was a step of another."""

    id: str
    definition: str


class _Past(NamedTuple):
    """A run: this one, or one that it was revived from."""

    id: str
    definition: str
    only: str | None


class _Step(NamedTuple):
    job: str
    status: JobStatus
    reason: str | None


def before(desk: Desk, tx: Transaction, run: RunView, places: Iterable[Place]) -> dict[Place, Before]:
    """What the runs that this one was revived from made of the steps at these places."""
    wanted = set(places)
    history = _History(desk, tx, run, wanted)
    return {place: known for place in wanted if (known := history.made(place)) is not None}


def keeps_failure(desk: Desk, tx: Transaction, run: RunView, place: Place) -> bool:
    """It failed before, and is none of what this run was revived for."""
    if run.only is None or run.only == place[0]:
        return False
    known = before(desk, tx, run, [place]).get(place)
    return known is not None and known.failed is not None


def children(desk: Desk, tx: Transaction, run: RunView, places: Iterable[Place]) -> dict[Place, Child]:
    """The child runs that steps at these places had, each in the nearest run that had one."""
    wanted = set(places)
    history = _History(desk, tx, run, wanted)
    nodes, paths = sorted({node for node, _ in wanted}), sorted({path for _, path in wanted})
    rows = tx.rows(CHILDREN, runs=[past.id for past in history.runs[1:]], nodes=nodes, paths=paths)
    known: dict[tuple[str, Place], Child] = {}
    for parent, node, path, *child in rows:
        known.setdefault((str(parent), (str(node), str(path or ""))), Child(*[str(part) for part in child]))
    found: dict[Place, Child] = {}
    for place in wanted:
        for past in history.counting(place):
            if (past.id, place) in known:
                found.setdefault(place, known[past.id, place])
    return found


def outputs(tx: Transaction, known: Iterable[Before]) -> dict[str, str | None]:
    """The outputs of those that succeeded, by job; what was pruned is not there."""
    jobs = sorted({one.succeeded for one in known if one.succeeded is not None})
    return {str(job): output for job, output in tx.rows(OUTPUTS, ids=jobs)} if jobs else {}


class _History:
    """The runs that a run comes from, nearest first, and what they made of some steps."""

    def __init__(self, desk: Desk, tx: Transaction, run: RunView, places: Iterable[Place]) -> None:
        self.desk = desk
        self.tx = tx
        self.run = run
        self.places = set(places)
        self.runs = [_Past(run.id, run.definition, run.only)]
        next_one = run.revived_from
        while next_one is not None and (row := tx.row(ANCESTOR, id=next_one)) is not None:
            self.runs.append(_Past(next_one, str(row[1]), None if row[2] is None else str(row[2])))
            next_one = None if row[0] is None else str(row[0])
        self._known: dict[tuple[int, Place], Before | None] = {}

    def made(self, place: Place, since: int = 0) -> Before | None:
        """What the runs before the one of this number made of a step: the nearest one has the word."""
        if (since, place) not in self._known:
            found: Before | None = None
            for past in self.counting(place, since):
                step = self._steps.get((past.id, place))
                found = found if step is None else _added(found, step)
            self._known[since, place] = found
        return self._known[since, place]

    def counting(self, place: Place, since: int = 0) -> list[_Past]:
        """The runs before the one of this number whose word on a step counts, nearest first."""
        found: list[_Past] = []
        for number in range(since, len(self.runs) - 1):
            if self._is_anew(number, place):
                break
            if self._is_same(self.runs[number + 1].definition, place[0]):
                found.append(self.runs[number + 1])
        return found

    @cached_property
    def _steps(self) -> dict[tuple[str, Place], _Step]:
        places = self._with_retried(self.places)
        nodes, paths = sorted({node for node, _ in places}), sorted({path for _, path in places})
        earlier = [past.id for past in self.runs[1:]]
        return _read(self.tx.rows(STEPS + AT_PATHS, runs=earlier, nodes=nodes, paths=paths))

    def _with_retried(self, places: set[Place]) -> set[Place]:
        """These, and the retried steps that they depend on, as far as those are of the same element."""
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

    def _is_anew(self, number: int, place: Place) -> bool:
        """In this run the step was done again, or was to be, because one was that it depends on."""
        past, (node, path) = self.runs[number], place
        shared = self._dependants(past).get(node)
        if past.only is None or shared is None:
            return False
        start, retried = path_text(path_of(path)[:shared]), self._retried(past)
        if shared == retried.depth:
            known = self.made((past.only, start), number)
            # An expand leaves a row only where it has failed.
            return retried.kind.is_step if known is None else known.succeeded is None
        return not start or self._is_one_anew_inside(number, past.only, start)

    def _is_one_anew_inside(self, number: int, node: str, start: str) -> bool:
        """Some of the elements that a nested collapse has put together were to be done again."""
        earlier = [past.id for past in self.runs[1:]]
        rows = self.tx.rows(STEPS + INSIDE, runs=earlier, nodes=[node], inside=f"{start}.%")
        self._steps.update(_read(rows))
        made = [self.made((node, str(row[2])), number) for row in rows]
        return any(known is None or known.succeeded is None for known in made)

    def _dependants(self, past: _Past) -> Mapping[str, int]:
        if past.only is None:
            return {}
        pair = (past.definition, past.only)
        if pair not in self.desk.dependants:
            self.desk.dependants[pair] = dependants(
                wiring_for(self.desk, self.tx, past.definition), past.only
            )
        return self.desk.dependants[pair]

    def _retried(self, past: _Past) -> Node:
        return wiring_for(self.desk, self.tx, past.definition).places[str(past.only)].node

    def _is_same(self, definition: str, node: str) -> bool:
        if definition == self.run.definition:
            return True
        pair = (definition, self.run.definition)
        if pair not in self.desk.stable:
            self.desk.stable[pair] = stable_nodes(wiring_for(self.desk, self.tx, definition), self.run.wiring)
        return node in self.desk.stable[pair]


def _read(rows: Iterable[Iterable[object]]) -> dict[tuple[str, Place], _Step]:
    return {
        (str(run), (str(node), str(path or ""))): _Step(
            str(job), JobStatus(str(status)), None if reason is None else str(reason)
        )
        for run, node, path, job, status, reason in rows
    }


def _added(known: Before | None, step: _Step) -> Before:
    found = known or Before(step.job, None, None)
    if found.succeeded is None and step.status is JobStatus.SUCCEEDED:
        stopped = step.reason == Reason.RUN_STOPPED
        found = found._replace(succeeded=step.job, stopped=stopped)
    if found.failed is None and step.status is JobStatus.FAILED:
        found = found._replace(failed=(step.job, step.reason))
    return found._replace(first=step.job)
