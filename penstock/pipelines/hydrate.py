"""Steps that have just been claimed: their inputs, and whether they may start at all.

A claim is where the mode of a run is looked at, because a settle may have read an old one. Steps of a run that starts
nothing more end here, unstarted, and what follows from that follows; steps of a paused run go back to being available,
without a place in the queue, until the run is resumed. A child run is opened here: its step waits, and holds nobody.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.database.transaction import Transaction
from penstock.errors import AdvancementFailed, ArgumentError, PenstockError
from penstock.pipelines import children, revive, runs, streams
from penstock.pipelines.changes import RunMode
from penstock.pipelines.closing import follow
from penstock.pipelines.definition import Kind, Node
from penstock.pipelines.desk import Desk
from penstock.pipelines.inputs import arguments
from penstock.pipelines.paths import Path, path_of
from penstock.pipelines.runs import RunView
from penstock.pipelines.stored import Values, fetch
from penstock.pipelines.trigger import open_runs
from penstock.queue.claim import forget_receipts
from penstock.queue.jobs import Claim, Ended
from penstock.values.jsontext import loads
from penstock.values.status import JobStatus, Reason

SKIP = """
UPDATE {job_states} {by_key} SET status = :status, reason = :reason, token = NULL, process_id = NULL,
  finished_at = {now}
WHERE job_id {among:ids:uuid}
"""
PUT_ASIDE = """
UPDATE {job_states} {by_key} SET status = :status, token = NULL, process_id = NULL WHERE job_id {among:ids:uuid}
"""
STILL_OURS = """
SELECT job_id, token, cancel_requested FROM {job_states} {by_key}
WHERE job_id {among:ids:uuid} AND status = 'running' ORDER BY job_id {lock}
"""
# Whoever resumes a run locks its row first, and looks for steps without a place after that.
STILL_PAUSED = "SELECT id, paused_at FROM {runs} {by_key} WHERE id {among:ids:uuid} ORDER BY id {lock}"

NOT_STARTED = {
    RunMode.HALTED: (JobStatus.SKIPPED, Reason.RUN_HALTED),
    RunMode.STOPPED: (JobStatus.SKIPPED, Reason.RUN_STOPPED),
    RunMode.CANCELLED: (JobStatus.CANCELLED, Reason.CANCELLED),
}


def hydrate(desk: Desk, tx: Transaction, claims: list[Claim], by_reading: bool = False) -> list[Claim]:
    """The claims that are to run, steps with their arguments. By reading alone: none, if that takes more."""
    tx.stage("hydrate")
    lost: list[Claim] = []
    try:
        found = runs.views(desk, tx, _runs_of(claims))
    except AdvancementFailed:
        lost = _unreadable(desk, tx, claims)
        claims = [claim for claim in claims if claim.run_id not in {one.run_id for one in lost}]
        found = runs.views(desk, tx, _runs_of(claims))
    return [] if by_reading and lost else _sorted_out(desk, tx, found, claims, lost, by_reading)


def _runs_of(claims: Iterable[Claim]) -> list[str]:
    return list(dict.fromkeys([claim.run_id for claim in claims if claim.run_id is not None]))


def _unreadable(desk: Desk, tx: Transaction, claims: Sequence[Claim]) -> list[Claim]:
    """The steps of runs whose definitions cannot be read, each with that as its error."""
    lost: list[Claim] = []
    for id in _runs_of(claims):
        try:
            runs.views(desk, tx, [id])
        except AdvancementFailed as error:
            mine = [claim for claim in claims if claim.run_id == id]
            if any(desk.host.find_task(claim.task) is None for claim in mine):
                error.spend()
                raise
            lost += [claim._replace(fault=error, call=((), {})) for claim in mine]
    return lost


def _sorted_out(
    desk: Desk,
    tx: Transaction,
    found: dict[str, RunView],
    claims: list[Claim],
    lost: list[Claim],
    by_reading: bool,
) -> list[Claim]:
    trace = desk.trace(tx)
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
        elif _node(run, claim).kind is Kind.CHILD:
            children.append(claim)
        else:
            going.append(claim)
    if by_reading and (len(going) < len(claims) or any(run.revived_from for run in found.values())):
        return []
    left = revive.keep(desk, tx, found, going + children)
    ids = {claim.job_id for claim in going}
    going = [claim for claim in left if claim.job_id in ids]
    ready = gather(desk, tx, found, going + [claim for claim in left if claim.job_id not in ids])
    if len(going) < len(claims):
        forget_receipts(tx, claims, going + lost)
        held = _still_ours(tx, [*paused, *children, *refused])
        _start_children(
            desk, tx, found, [claim for claim in ready[len(going) :] if held.get(claim.job_id) is False]
        )
        unwanted = [claim for claim in [*paused, *children] if held.get(claim.job_id)]
        _refuse(desk, tx, found, [claim for claim in refused if claim.job_id in held], unwanted)
        _wait_for_resume(desk, tx, [claim for claim in paused if held.get(claim.job_id) is False])
    return ready[: len(going)] + lost


def gather(desk: Desk, tx: Transaction, found: dict[str, RunView], claims: Sequence[Claim]) -> list[Claim]:
    """The claims, steps with the arguments that their inputs make."""
    places = [
        (found[claim.run_id], str(claim.node), path_of(claim.path or ""))
        for claim in claims
        if claim.run_id is not None
    ]
    values = Values()
    lazy = {(run.definition, node): streams.streamed(desk, run, node) for run, node, _ in places}
    wanted = [
        (run.id, streams.needs_of(run, node, path, lazy[run.definition, node])) for run, node, path in places
    ]
    fetch(desk, tx, values, wanted)
    ready = []
    at = iter(places)
    for claim in claims:
        if claim.run_id is None:
            ready.append(claim)
            continue
        run, node, path = next(at)
        try:
            call = _call(desk, run, node, path, values, claim, lazy[run.definition, node])
        except Exception as error:
            # It cannot be told what it is to work on: an error of its own, which others need not wait for.
            ready.append(claim._replace(fault=_fault(desk, run.id, error), call=((), {})))
            continue
        spreads = run.wiring.places[node].spreads
        ready.append(claim._replace(call=call, spreads=spreads, definition=run.definition))
    return ready


def _call(
    desk: Desk, run: RunView, node: str, path: Path, values: Values, claim: Claim, later: Any
) -> tuple[Sequence[object], Mapping[str, object]]:
    element = loads(claim.payload) if run.wiring.places[node].node.is_entry else None
    if later:
        return streams.arguments_of(desk, run, node, path, values.of(run), element, later)
    return arguments(run.wiring, node, path, values.of(run), element)


def _fault(desk: Desk, run: str, error: Exception) -> PenstockError:
    if isinstance(error, ArgumentError):
        return error
    fault = desk.troubles.of(run, error)
    fault.__cause__ = error
    return fault


def not_started(tx: Transaction, mode: RunMode, steps: Iterable[tuple[str, str, str, str]]) -> list[Ended]:
    """End steps (job, run, node, path) that have not started, because of their run's mode; what is to follow."""
    status, reason = NOT_STARTED[mode]
    ended = [Ended(job, run, node, path, status, reason, None) for job, run, node, path in steps]
    ids = sorted([step.job_id for step in ended])
    if ids:
        tx.run(SKIP, status=status.value, reason=reason.value, ids=ids)
    return ended


def _still_ours(tx: Transaction, claims: Sequence[Claim]) -> dict[str, bool]:
    """The claim may have been committed before this transaction: what was lost since then is not ours to end.

    What is ours, and whether somebody has asked to cancel it meanwhile.
    """
    tokens = {claim.job_id: claim.token for claim in claims}
    rows = tx.rows(STILL_OURS, ids=sorted(tokens))
    return {str(job): bool(asked) for job, token, asked in rows if tokens[str(job)] == token}


def _refuse(
    desk: Desk,
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
    ended: list[Ended] = []
    for mode, group in sorted(groups.items()):
        ended += not_started(tx, mode, [(c.job_id, str(c.run_id), str(c.node), c.path or "") for c in group])
    if ended:
        follow(desk, tx, ended)


def _wait_for_resume(desk: Desk, tx: Transaction, claims: Sequence[Claim]) -> None:
    """Steps of runs that were paused when we looked. If one was resumed since then, nobody else will give its step a
    place: it was held. The runs are locked last, as always."""
    if not claims:
        return
    rows = tx.rows(STILL_PAUSED, ids=sorted(_runs_of(claims)))
    paused = {str(run) for run, since in rows if since is not None}
    _put_aside(tx, claims, JobStatus.AVAILABLE)
    back = [claim for claim in claims if claim.run_id not in paused]
    if back:
        places = [{"job_id": c.job_id, "task": c.task, "queue": c.queue, "tier": c.tier} for c in back]
        tx.insert("availabilities", places)
        desk.trace(tx).made.update({claim.job_id: (claim.queue, claim.tier) for claim in back})
        desk.tell_ready(tx)


def _put_aside(tx: Transaction, claims: Sequence[Claim], status: JobStatus) -> None:
    if claims:
        tx.run(PUT_ASIDE, status=status.value, ids=sorted([claim.job_id for claim in claims]))


def _start_children(desk: Desk, tx: Transaction, found: dict[str, RunView], claims: Sequence[Claim]) -> None:
    if not claims:
        return
    news, wrong = children.prepare(desk, tx, found, claims)
    parents = {new.parent_job for new in news}
    _put_aside(tx, [claim for claim in claims if claim.job_id in parents], JobStatus.WAITING)
    open_runs(desk, tx, news)
    if wrong:
        children.fail(tx, wrong)
        follow(desk, tx, [children.ended(attempt) for attempt in wrong])


def _node(run: RunView, claim: Claim) -> Node:
    return run.wiring.places[str(claim.node)].node
