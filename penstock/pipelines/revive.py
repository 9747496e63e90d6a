"""Revive: a new run that keeps what the old one has finished and does the rest again.

The new run begins like any other. What makes it a revival is looked at when a step of it is claimed: if that step
succeeded in the run it was revived from, or in one before that, the claim is settled at once with the old output,
and its handler does not run. So any reason for which a run stopped can be revived, whatever its shape and size, and
nothing is special about a crash in the middle. A step that is done again keeps the idempotency key of its first
incarnation. A wait that has ended is over when it begins (see `signals`); a child run that did not succeed is itself
revived when its step is done again (see `children`).

The new run may have another definition, the app's of now. Then finished work is kept where it comes to the same there
(see `lineage`), and the rest is new.

With `only`, steps that had failed keep their failure too, but for that one; without it, those whose failure was dealt
with by the step that stands in for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from penstock.database.transaction import Transaction
from penstock.errors import ReviveError
from penstock.pipelines import labels, lineage, reading, revivals, trigger
from penstock.pipelines.closing import follow
from penstock.pipelines.current import Current
from penstock.pipelines.desk import Desk
from penstock.pipelines.edges import within
from penstock.pipelines.expressions import Failed
from penstock.pipelines.lineage import Before, Place
from penstock.pipelines.runs import RunView, wiring_for
from penstock.pipelines.trigger import NewRun
from penstock.queue import audit
from penstock.queue.jobs import Attempt, Claim
from penstock.queue.read import LAST_ERROR
from penstock.queue.settle import settle
from penstock.values.failure import Failure
from penstock.values.outcome import Outcome
from penstock.values.status import OutcomeKind, Reason, RunStatus

LOCK = "SELECT status FROM {runs} WHERE id = :id {lock}"
COPY_SIGNALS = """
INSERT INTO {signals} (run_id, name, value, signalled_at)
SELECT :new, name, value, signalled_at FROM {signals} WHERE run_id = :old
"""
COPY_ELEMENT_SIGNALS = """
INSERT INTO {element_signals} (run_id, name, path, value, signalled_at)
SELECT :new, name, path, value, signalled_at FROM {element_signals} WHERE run_id = :old
"""
COPY_CONTEXT = """
INSERT INTO {tuples} (run_id, tuple_key, value, setter, set_at)
SELECT :new, tuple_key, value, setter, set_at FROM {tuples} WHERE run_id = :old
"""
FAILED_STEPS = """
SELECT DISTINCT j.node FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id
WHERE j.run_id = :run AND s.status = 'failed'
"""

Where = tuple[str, str, str]


def revive(
    desk: Desk,
    tx: Transaction,
    old: str,
    new: str,
    duplicate_context: bool,
    args: str | None,
    only: str | None,
    current: Current | None,
) -> None:
    """Write the new run. The old one must have ended badly, and is revived once.

    `current`: it is to have the app's definition of now, instead of that of the old one.
    """
    tx.stage("revive")
    row = tx.row(LOCK, id=old)
    standing = reading.standings(tx, [old]).get(old)
    if row is None or standing is None:
        raise ReviveError(f"there is no run {old}; it may have been pruned")
    if standing.status not in (RunStatus.HALTED, RunStatus.FAILED):
        raise ReviveError(f"run {old} is {standing.status}: only a halted or failed run can be revived")
    if only is not None:
        _check_failed(tx, old, only)
    holder = revivals.take(tx, standing.pipeline, old, new)
    if holder == old:
        raise ReviveError(f"run {old} is just being pruned: it cannot be revived any more")
    if holder != new:
        raise ReviveError(f"run {old} was revived already: go on with run {holder}")
    inherit(tx, old, new, duplicate_context)
    labels.copy(tx, old, new)
    definition = wiring_for(desk, tx, standing.definition).definition if current is None else current[0]
    given = args if args is not None else _adapted(old, standing.args, current)
    fresh = NewRun(new, definition, given, revived_from=old, only=only, redefined=current is not None)
    trigger.open_runs(desk, tx, [fresh])
    act = "revive" if only is None else "retry_step"
    now = None if current is None else definition.hash
    audit.of_run(tx, act, old, new_run=new, step=only, new_arguments=args is not None or None, definition=now)


def _adapted(run: str, stored: str, current: Current | None) -> str:
    given, lacking = (stored, []) if current is None else current.arguments(stored)
    if lacking:
        raise ReviveError(f"run {run} cannot be revived with the app's definition: {lacking[0]}: give args=")
    return given


def inherit(tx: Transaction, old: str, new: str, context: bool) -> None:
    """What a revived run is given of the old one beside its outputs: its signals and, if wished, its context."""
    tx.run(COPY_SIGNALS, new=new, old=old)
    tx.run(COPY_ELEMENT_SIGNALS, new=new, old=old)
    if context:
        tx.run(COPY_CONTEXT, new=new, old=old)


def _check_failed(tx: Transaction, run: str, step: str) -> None:
    failed = sorted(str(node) for (node,) in tx.rows(FAILED_STEPS, run=run))
    if step not in failed:
        raise ReviveError(
            f"step {step!r} of run {run} has not failed; failed are {', '.join(failed) or 'none'}"
        )


def keep(desk: Desk, tx: Transaction, found: dict[str, RunView], claims: Sequence[Claim]) -> list[Claim]:
    """Settle the claims of steps that earlier runs have finished; the others, with their old idempotency keys."""
    revived = [claim for claim in claims if claim.run_id is not None and found[claim.run_id].revived_from]
    if not revived:
        return list(claims)
    before = _before(desk, tx, found, revived)
    outputs = lineage.outputs(tx, before.values())
    kept: list[Attempt] = []
    left: list[Claim] = []
    for claim in claims:
        known = before.get((str(claim.run_id), str(claim.node), claim.path or ""))
        outcome = (
            None if known is None else _outcome(desk, tx, found[str(claim.run_id)], claim, known, outputs)
        )
        if known is None:
            left.append(claim)
        elif outcome is not None:
            kept.append(Attempt(claim, outcome, kept=True))
        else:
            left.append(claim._replace(origin_id=known.first))
    if kept:
        settle(tx, kept, None, (), partial(follow, desk))
    return left


def _taken_over(desk: Desk, tx: Transaction, run: RunView, claim: Claim) -> bool:
    """Whether the step's failure was dealt with: the one that stands in for it has succeeded."""
    nodes = run.wiring.definition.by_key
    asked = [node.key for node in nodes.values() if node.args[:1] == (Failed(str(claim.node)),)]
    if not asked:
        return False
    inside = [node.key for node in nodes.values() if node.kind.is_step and within(nodes, node, (asked[0], 0))]
    known = lineage.before(desk, tx, run, [(key, claim.path or "") for key in inside])
    return any(one.succeeded is not None for one in known.values())


def _outcome(
    desk: Desk, tx: Transaction, run: RunView, claim: Claim, known: Before, outputs: dict[str, str | None]
) -> Outcome | None:
    """What the step comes to without being run; None: it is to be run."""
    if known.succeeded is not None and known.succeeded in outputs:
        # Who has stopped the run has done so as well: what it said was the run's value, not only its own.
        reason = Reason.RUN_STOPPED if known.stopped else None
        return Outcome(OutcomeKind.SUCCEEDED, output=outputs[known.succeeded], reason=reason)
    if known.failed is None or claim.node == run.only:
        return None
    if run.only is None and not _taken_over(desk, tx, run, claim):
        return None
    job, why = known.failed
    error = tx.row(LAST_ERROR, id=job)
    failure = Failure.note(*error) if error is not None else None
    return Outcome(OutcomeKind.ERRORED, failure=failure, reason=Reason(why) if why else None)


def _before(
    desk: Desk, tx: Transaction, found: dict[str, RunView], claims: Sequence[Claim]
) -> dict[Where, Before]:
    by_run: dict[str, list[Place]] = {}
    for claim in claims:
        by_run.setdefault(str(claim.run_id), []).append((str(claim.node), claim.path or ""))
    return {
        (run, *where): known
        for run, places in by_run.items()
        for where, known in lineage.before(desk, tx, found[run], places).items()
    }
