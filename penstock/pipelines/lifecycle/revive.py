"""Revive: starts a new run that keeps the finished steps of the old one and does the others again.

The new run begins like any other. What makes it a revival is looked at when a step of it is claimed: if that step
succeeded in the run it was revived from, or in one before that, the claim is settled at once with the old output,
and its handler does not run. So any reason for which a run stopped can be revived, whatever its shape and size, and
nothing is special about a crash in the middle. A step that is done again keeps the idempotency key of its first
incarnation. A wait that has ended is over when it begins (see `signals`); a child run that did not succeed is itself
revived when its step is done again (see `child_runs`).

The new run may have another definition, the app's of now. Then finished work is kept where it comes to the same there
(see `lineage`), and the rest is new.

With `only`, steps that had failed keep their failure too, but for that one; without it, those whose failure was dealt
with by the step that stands in for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from penstock.database.transaction import Transaction
from penstock.errors import ActionRefused, ReviveError
from penstock.pipelines.advance import read, run_headers, run_rows
from penstock.pipelines.advance.finish import follow
from penstock.pipelines.advance.run_rows import CERTIFY, RunView, wiring_for
from penstock.pipelines.advance.state import EngineState
from penstock.pipelines.lifecycle import lineage, revivals, start
from penstock.pipelines.lifecycle.lineage import EarlierResult, Place
from penstock.pipelines.lifecycle.start import NewRun
from penstock.pipelines.model.diff import Current
from penstock.pipelines.model.edges import within
from penstock.pipelines.model.expressions import StepFailed
from penstock.queue import audit
from penstock.queue.job_records import LAST_ERROR
from penstock.queue.jobs import Attempt, Claim
from penstock.queue.settle import settle
from penstock.values.failure import Failure
from penstock.values.outcome import Outcome
from penstock.values.status import OutcomeKind, Reason, RunStatus

LOCK = "SELECT status FROM {runs} WHERE id = :id {lock}"
COPY_SIGNALS = """
INSERT INTO {signals} (run_id, name, value, signalled_at, headers)
SELECT :new, name, value, signalled_at, headers FROM {signals} WHERE run_id = :old
"""
COPY_ELEMENT_SIGNALS = """
INSERT INTO {element_signals} (run_id, name, path, value, signalled_at, headers)
SELECT :new, name, path, value, signalled_at, headers FROM {element_signals} WHERE run_id = :old
"""
EXCEPT_SIGNALS = "AND NOT (name {among:names:text})"
COPY_CONTEXT = """
INSERT INTO {tuples} (run_id, tuple_key, value, setter, set_at)
SELECT :new, t.tuple_key, t.value, t.setter, t.set_at FROM {tuples} t WHERE t.run_id = :old
"""
EXCEPT_SETTERS = "AND NOT EXISTS (SELECT 1 FROM {jobs} j WHERE j.id = t.setter AND j.node {among:nodes:text})"
FAILED_STEPS = """
SELECT DISTINCT j.node FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id
WHERE j.run_id = :run AND s.status = 'failed'
"""

Where = tuple[str, str, str]


def revive(
    engine_state: EngineState,
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
    state = read.run_states(tx, [old]).get(old)
    if row is None or state is None:
        raise ReviveError(f"there is no run {old}; it may have been pruned")
    tx.certify(CERTIFY, ids=[old])
    if state.status not in (RunStatus.HALTED, RunStatus.FAILED):
        raise ReviveError(f"run {old} is {state.status}: only a halted or failed run can be revived")
    if only is not None:
        _check_failed(tx, old, only)
    holder = revivals.claim_revival(tx, state.pipeline, old, new)
    if holder == old:
        raise ReviveError(f"run {old} is just being pruned: it cannot be revived any more")
    if holder != new:
        raise ReviveError(f"run {old} was revived already: go on with run {holder}")
    inherit(tx, old, new, duplicate_context)
    run_rows.copy_labels(tx, old, new)
    definition = wiring_for(engine_state, tx, state.definition).definition if current is None else current[0]
    given = args if args is not None else _adapted(old, state.args, current)
    fresh = NewRun(new, definition, given, revived_from=old, only=only, redefined=current is not None)
    start.open_runs(engine_state, tx, [fresh._replace(scheduled_for=start.nominal_of(tx, old))])
    act = "revive" if only is None else "retry_step"
    now = None if current is None else definition.hash
    audit.of_run(tx, act, old, new_run=new, step=only, new_arguments=args is not None or None, definition=now)


def _adapted(run: str, stored: str, current: Current | None) -> str:
    given, lacking = (stored, []) if current is None else current.arguments(stored)
    if lacking:
        raise ReviveError(f"run {run} cannot be revived with the app's definition: {lacking[0]}: give args=")
    return given


def inherit(
    tx: Transaction,
    old: str,
    new: str,
    context: bool,
    without: Sequence[str] = (),
    redone: Sequence[str] = (),
) -> None:
    """Copy the signals of the old run to the new one and, if wished, its context.

    `without`: signals that must be given again. `redone`: nodes whose steps write their values again.
    """
    for copy in (COPY_SIGNALS, COPY_ELEMENT_SIGNALS):
        if without:
            tx.run(copy + EXCEPT_SIGNALS, new=new, old=old, names=list(without))
        else:
            tx.run(copy, new=new, old=old)
    if context and redone:
        tx.run(COPY_CONTEXT + EXCEPT_SETTERS, new=new, old=old, nodes=list(redone))
    elif context:
        tx.run(COPY_CONTEXT, new=new, old=old)


def _check_failed(tx: Transaction, run: str, step: str) -> None:
    failed = sorted(str(node) for (node,) in tx.rows(FAILED_STEPS, run=run))
    if step not in failed:
        raise ReviveError(
            f"step {step!r} of run {run} has not failed; failed are {', '.join(failed) or 'none'}"
        )


def keep(
    engine_state: EngineState, tx: Transaction, found: dict[str, RunView], claims: Sequence[Claim]
) -> list[Claim]:
    """Settle the claims of steps that earlier runs have finished; the others, with their old idempotency keys."""
    revived = [claim for claim in claims if claim.run_id is not None and found[claim.run_id].revived_from]
    if not revived:
        return list(claims)
    before = _before(engine_state, tx, found, revived)
    outputs = lineage.outputs(tx, before.values())
    kept: list[Attempt] = []
    left: list[Claim] = []
    for claim in claims:
        known = before.get((str(claim.run_id), str(claim.node), claim.path or ""))
        outcome = (
            None
            if known is None
            else _outcome(engine_state, tx, found[str(claim.run_id)], claim, known, outputs)
        )
        if known is None:
            left.append(claim)
        elif outcome is not None:
            kept.append(Attempt(claim, outcome, kept=True))
        else:
            left.append(claim._replace(origin_id=known.first))
    if kept:
        settle(tx, kept, None, (), partial(follow, engine_state))
    return left


def _taken_over(engine_state: EngineState, tx: Transaction, run: RunView, claim: Claim) -> bool:
    """True if the fallback of a failed step has succeeded."""
    nodes = run.wiring.definition.by_key
    asked = [node.key for node in nodes.values() if node.args[:1] == (StepFailed(str(claim.node)),)]
    if not asked:
        return False
    inside = [node.key for node in nodes.values() if node.kind.is_step and within(nodes, node, (asked[0], 0))]
    known = lineage.before(engine_state, tx, run, [(key, claim.path or "") for key in inside])
    return any(one.succeeded is not None for one in known.values())


def _outcome(
    engine_state: EngineState,
    tx: Transaction,
    run: RunView,
    claim: Claim,
    known: EarlierResult,
    outputs: dict[str, str | None],
) -> Outcome | None:
    """The outcome that the step has without being run; None if it is to be run."""
    if known.succeeded is not None and known.succeeded in outputs:
        # A step that stopped the run stops the new run too: its value was the run's value.
        reason = Reason.RUN_STOPPED if known.stopped else None
        return Outcome(OutcomeKind.SUCCEEDED, output=outputs[known.succeeded], reason=reason)
    if known.failed is None or claim.node == run.only:
        return None
    if run.only is None and not _taken_over(engine_state, tx, run, claim):
        return None
    job, why = known.failed
    error = tx.row(LAST_ERROR, id=job)
    failure = Failure.note(*error) if error is not None else None
    return Outcome(OutcomeKind.ERRORED, failure=failure, reason=Reason.stored(why) if why else None)


def _before(
    engine_state: EngineState, tx: Transaction, found: dict[str, RunView], claims: Sequence[Claim]
) -> dict[Where, EarlierResult]:
    by_run: dict[str, list[Place]] = {}
    for claim in claims:
        by_run.setdefault(str(claim.run_id), []).append((str(claim.node), claim.path or ""))
    return {
        (run, *where): known
        for run, places in by_run.items()
        for where, known in lineage.before(engine_state, tx, found[run], places).items()
    }


# Re-run: starts an ended run once more from the beginning, as a new run that records which one it repeats.


def rerun(
    engine_state: EngineState, tx: Transaction, old: str, new: str, current: Current, args: str | None
) -> None:
    """Write the new run: with the app's definition of now, and the old run's arguments unless others are given."""
    tx.stage("rerun")
    state = read.run_states(tx, [old]).get(old)
    if state is None:
        raise ActionRefused(f"there is no run {old}; it may have been pruned")
    if not state.status.terminal:
        raise ActionRefused(f"run {old} is {state.status}: only a run that has ended can be run again")
    given, lacking = (args, []) if args is not None else current.arguments(state.args)
    if lacking:
        raise ActionRefused(f"run {old} cannot be run again with its arguments: {lacking[0]}: give args=")
    again = NewRun(new, current.definition, given, rerun_of=old, scheduled_for=start.nominal_of(tx, old))
    start.open_runs(engine_state, tx, [again._replace(headers=run_headers.find(tx, old))])
    run_rows.copy_labels(tx, old, new)
    audit.of_run(tx, "rerun", old, new_run=new, new_arguments=args is not None or None)
