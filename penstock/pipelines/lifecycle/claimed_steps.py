"""Prepares claimed steps: fetches their inputs, and decides whether they may start.

A claim is where the mode of a run is looked at, because a settle may have read an old one. Steps of a run that starts
nothing more end here, unstarted, and the run advances; steps of a paused run go back to being available, without a
place in the queue, until the run is resumed. A child run is opened here: its step waits, and holds no worker.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.database.database import Database
from penstock.database.transaction import Transaction
from penstock.errors import AdvancementFailed, ArgumentError, PenstockError
from penstock.pipelines.advance import run_rows
from penstock.pipelines.advance.finish import follow
from penstock.pipelines.advance.run_rows import RunView
from penstock.pipelines.advance.state import EngineState
from penstock.pipelines.advance.values import OUTPUTS_BELOW, Values, fetch
from penstock.pipelines.lifecycle import child_runs, revive, signal_rows
from penstock.pipelines.lifecycle.start import open_runs
from penstock.pipelines.model.definition import Node, NodeKind
from penstock.pipelines.model.expressions import Expr, Output, Path, path_of, path_text
from penstock.pipelines.plan.changes import RunMode
from penstock.pipelines.plan.inputs import FetchedInputs, InputQuery, arguments, inputs_of, spread, value_of
from penstock.queue import states
from penstock.queue.jobs import Claim, EndedStep
from penstock.values.status import JobStatus, Reason
from penstock.values.typed_json.converter import RawStream
from penstock.values.typed_json.json_text import loads
from penstock.values.typed_json.tags import MISSING

# A collapse that takes an iterator: the elements are read in chunks while the handler goes through them.
#
# A parameter annotated `Iterable[...]` or `Iterator[...]` that is given all elements of an expand gets them one after
# the other, in element order, and no more than a chunk of them is held at a time. Every other parameter gets a list.

CHUNK = 1000


class Streamed(NamedTuple):
    """A collect whose elements are read in chunks, and the step whose outputs they are."""

    collect: str
    step: str


class StepStream(RawStream):
    """The outputs of one step for all elements; missing where there is none."""

    def __init__(self, database: Database, run: str, step: str, path: Path, width: int) -> None:
        self.database = database
        self.run = run
        self.step = step
        self.path = path
        self.width = width

    def __iter__(self) -> Iterator[object]:
        for start in range(0, self.width, CHUNK):
            stop = min(start + CHUNK, self.width)
            found = self.database.read(self._chunk, start, stop)
            for index in range(start, stop):
                text = found.get(index)
                yield MISSING if text is None else loads(text)

    def _chunk(self, tx: Transaction, start: int, stop: int) -> dict[int, str]:
        first, last = path_text((*self.path, start)), path_text((*self.path, stop))
        rows = tx.rows(OUTPUTS_BELOW, run=self.run, node=self.step, first=first, last=last)
        return {path_of(path)[-1]: output for _, _, path, output in rows}


def streamed(engine_state: EngineState, run: RunView, node: str) -> Mapping[int | str, Streamed]:
    """The parameters of a step, by position or name, that read their elements in chunks."""
    place = run.wiring.places[node].node
    task = engine_state.host.find_task(place.target) if place.kind is NodeKind.TASK else None
    if task is None or task.executor == "process":
        return {}
    given: list[tuple[int | str, Expr]] = [*enumerate(place.args), *place.kwargs]
    return {
        where: found
        for where, expr in given
        if (found := _elements(run, expr)) is not None and task.codec.takes_stream(where)
    }


def needs_of(run: RunView, node: str, path: Path, streams: Mapping[int | str, Streamed]) -> InputQuery:
    """The inputs of a step to fetch now: all except the elements that are read in chunks later."""
    needs = inputs_of(run.wiring, node, path)
    later = {stream.step for stream in streams.values()}
    outputs = tuple([cell for cell in needs.outputs if not (cell.below and cell.node in later)])
    return InputQuery(outputs, needs.joins) if later else needs


def arguments_of(
    engine_state: EngineState,
    run: RunView,
    node: str,
    path: Path,
    stored: FetchedInputs,
    element: object,
    streams: Mapping[int | str, Streamed],
) -> tuple[list[object], dict[str, object]]:
    """The arguments of a step, if some of its parameters read their elements in chunks."""

    def value(where: int | str, expr: Expr) -> object:
        stream = streams.get(where)
        if stream is None:
            return value_of(run.wiring, expr, path, stored, element)
        inside = path[: run.wiring.places[stream.collect].node.depth]
        width = stored.width(stream.collect, inside) or 0
        return StepStream(engine_state.host.database, run.id, stream.step, inside, width)

    place = run.wiring.places[node].node
    args = [value(where, expr) for where, expr in enumerate(place.args)]
    return spread(place, args, {name: value(name, expr) for name, expr in place.kwargs})


def _elements(run: RunView, expr: Expr) -> Streamed | None:
    if not isinstance(expr, Output):
        return None
    collect = run.wiring.places[expr.node].node
    if collect.kind is not NodeKind.COLLECT or not isinstance(collect.args[0], Output):
        return None
    inner = run.wiring.places[collect.args[0].node].node
    simple = inner.kind.is_step and inner.depth == collect.depth + 1
    return Streamed(collect.key, inner.key) if simple else None


# A caller that resumes a run locks its row first, and then looks for steps without a row in the queue.
STILL_PAUSED = "SELECT id, paused_at FROM {runs} {by_key} WHERE id {among:ids:uuid} ORDER BY id {lock}"

NOT_STARTED = {
    RunMode.HALTED: (JobStatus.SKIPPED, Reason.RUN_HALTED),
    RunMode.STOPPED: (JobStatus.SKIPPED, Reason.RUN_STOPPED),
    RunMode.CANCELLED: (JobStatus.CANCELLED, Reason.CANCELLED),
}


def prepare_claimed_steps(
    engine_state: EngineState, tx: Transaction, claims: list[Claim], by_reading: bool = False
) -> list[Claim]:
    """The claims that are to run, steps with their arguments. `by_reading`: no claims, if anything must be written."""
    tx.stage("hydrate")
    lost: list[Claim] = []
    try:
        found = run_rows.views(engine_state, tx, _runs_of(claims))
    except AdvancementFailed:
        lost = _unreadable(engine_state, tx, claims)
        claims = [claim for claim in claims if claim.run_id not in {one.run_id for one in lost}]
        found = run_rows.views(engine_state, tx, _runs_of(claims))
    return [] if by_reading and lost else _sorted_out(engine_state, tx, found, claims, lost, by_reading)


def _runs_of(claims: Iterable[Claim]) -> list[str]:
    return list(dict.fromkeys([claim.run_id for claim in claims if claim.run_id is not None]))


def _unreadable(engine_state: EngineState, tx: Transaction, claims: Sequence[Claim]) -> list[Claim]:
    """The steps of runs whose definitions cannot be read, each with that as its error."""
    lost: list[Claim] = []
    for id in _runs_of(claims):
        try:
            run_rows.views(engine_state, tx, [id])
        except AdvancementFailed as error:
            mine = [claim for claim in claims if claim.run_id == id]
            if any(engine_state.host.find_task(claim.task) is None for claim in mine):
                error.spend()
                raise
            lost += [claim._replace(fault=error, call=((), {})) for claim in mine]
    return lost


def _sorted_out(
    engine_state: EngineState,
    tx: Transaction,
    found: dict[str, RunView],
    claims: list[Claim],
    lost: list[Claim],
    by_reading: bool,
) -> list[Claim]:
    trace = engine_state.trace(tx)
    for claim in claims:
        trace.made.pop(claim.job_id, None)
    going, refused, paused, children = [], [], [], []
    for claim in claims:
        run = found.get(claim.run_id or "")
        if claim.run_id is None:
            going.append(claim)
        elif run is None or run.mode is not RunMode.RUNNING:
            refused.append(claim)
        elif run.paused:
            paused.append(claim)
        elif _node(run, claim).kind is NodeKind.CHILD:
            children.append(claim)
        else:
            going.append(claim)
    is_revival = any(run.revived_from for run in found.values())
    if by_reading and (len(going) < len(claims) or is_revival):
        return []
    left = going + children
    left = revive.keep(engine_state, tx, found, left) if is_revival else left
    ids = {claim.job_id for claim in going}
    going = [claim for claim in left if claim.job_id in ids]
    ready = gather(engine_state, tx, found, going + [claim for claim in left if claim.job_id not in ids])
    if len(going) < len(claims):
        held = _still_ours(tx, [*paused, *children, *refused])
        begun = [claim for claim in ready[len(going) :] if held.get(claim.job_id) is False]
        _start_children(engine_state, tx, found, begun)
        unwanted = [claim for claim in [*paused, *children] if held.get(claim.job_id)]
        _refuse(engine_state, tx, found, [claim for claim in refused if claim.job_id in held], unwanted)
        _wait_for_resume(engine_state, tx, [claim for claim in paused if held.get(claim.job_id) is False])
    return ready[: len(going)] + lost


def gather(
    engine_state: EngineState, tx: Transaction, found: dict[str, RunView], claims: Sequence[Claim]
) -> list[Claim]:
    """The claims, steps with the arguments that their inputs make."""
    places = [
        (found[claim.run_id], str(claim.node), path_of(claim.path or ""))
        for claim in claims
        if claim.run_id is not None
    ]
    values = Values()
    lazy = {(run.definition, node): streamed(engine_state, run, node) for run, node, _ in places}
    wanted = [(run.id, needs_of(run, node, path, lazy[run.definition, node])) for run, node, path in places]
    fetch(engine_state, tx, values, wanted)
    signalled = signal_rows.headers_before(tx, places) if engine_state.host.enqueue_middlewares else {}
    ready = []
    at = iter(enumerate(places))
    for claim in claims:
        if claim.run_id is None:
            ready.append(claim)
            continue
        number, (run, node, path) = next(at)
        try:
            call = _call(engine_state, run, node, path, values, claim, lazy[run.definition, node])
        except Exception as error:
            # The arguments cannot be made: that is the error of this step, and must not stop the others.
            ready.append(claim._replace(fault=_fault(engine_state, run.id, error), call=((), {})))
            continue
        is_expanded = run.wiring.places[node].is_expanded
        of_run = claim._replace(definition=run.definition, scheduled_for=run.scheduled_for)
        ready.append(
            of_run._replace(call=call, is_expanded=is_expanded, signal_headers=signalled.get(number, ()))
        )
    return ready


def _call(
    engine_state: EngineState, run: RunView, node: str, path: Path, values: Values, claim: Claim, later: Any
) -> tuple[Sequence[object], Mapping[str, object]]:
    element = loads(claim.payload) if run.wiring.places[node].node.is_entry else None
    if later:
        return arguments_of(engine_state, run, node, path, values.of(run), element, later)
    return arguments(run.wiring, node, path, values.of(run), element)


def _fault(engine_state: EngineState, run: str, error: Exception) -> PenstockError:
    if isinstance(error, ArgumentError):
        return error
    fault = engine_state.planning_failures.of(run, error)
    fault.__cause__ = error
    return fault


def not_started(
    tx: Transaction, mode: RunMode, steps: Iterable[tuple[str, str, str, str]]
) -> list[EndedStep]:
    """End steps (job, run, node, path) that have not started, because of their run's mode; what is to follow."""
    status, reason = NOT_STARTED[mode]
    ended = [EndedStep(job, run, node, path, status, reason, None) for job, run, node, path in steps]
    states.end(tx, [step.job_id for step in ended], status, reason)
    return ended


def _still_ours(tx: Transaction, claims: Sequence[Claim]) -> dict[str, bool]:
    """Check which claims still hold: a claim may have been committed before this transaction, and lost since.

    Returns the jobs that are ours, and whether a caller has asked to cancel them meanwhile.
    """
    tokens = {claim.job_id: claim.token for claim in claims}
    running = states.lock_running(tx, sorted(tokens))
    return {job.job_id: bool(job.cancel_requested) for job in running if tokens[job.job_id] == job.token}


def _refuse(
    engine_state: EngineState,
    tx: Transaction,
    found: dict[str, RunView],
    claims: Sequence[Claim],
    unwanted: Sequence[Claim],
) -> None:
    groups: dict[RunMode, list[Claim]] = defaultdict(list)
    groups[RunMode.CANCELLED] += unwanted
    for claim in claims:
        run = found.get(claim.run_id or "")
        groups[run.mode if run is not None else RunMode.CANCELLED].append(claim)
    ended: list[EndedStep] = []
    for mode, group in sorted(groups.items()):
        ended += not_started(tx, mode, [(c.job_id, str(c.run_id), str(c.node), c.path or "") for c in group])
    if ended:
        follow(engine_state, tx, ended)


def _wait_for_resume(engine_state: EngineState, tx: Transaction, claims: Sequence[Claim]) -> None:
    """Put back steps of runs that were paused when we looked.

    If a run was resumed since then, only we can give its step a
    place: it was held. The runs are locked last, as always."""
    if not claims:
        return
    rows = tx.rows(STILL_PAUSED, ids=sorted(_runs_of(claims)))
    paused = {str(run) for run, since in rows if since is not None}
    states.give_back(tx, [claim.job_id for claim in claims])
    back = [claim for claim in claims if claim.run_id not in paused]
    if back:
        places = [{"job_id": c.job_id, "task": c.task, "queue": c.queue, "tier": c.tier} for c in back]
        states.put_in_place(tx, JobStatus.AVAILABLE, places)
        engine_state.trace(tx).made.update({claim.job_id: (claim.queue, claim.tier) for claim in back})
        engine_state.tell_ready(tx)


def _start_children(
    engine_state: EngineState, tx: Transaction, found: dict[str, RunView], claims: Sequence[Claim]
) -> None:
    if not claims:
        return
    news, wrong = child_runs.prepare(engine_state, tx, found, claims)
    parents = {new.parent_job for new in news}
    waiting = [claim.job_id for claim in claims if claim.job_id in parents]
    states.give_back(tx, waiting, JobStatus.WAITING)
    open_runs(engine_state, tx, news)
    if wrong:
        child_runs.fail(tx, wrong)
        follow(engine_state, tx, [child_runs.ended(attempt) for attempt in wrong])


def _node(run: RunView, claim: Claim) -> Node:
    return run.wiring.places[str(claim.node)].node
