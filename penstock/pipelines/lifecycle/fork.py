"""Fork: starts a new run from an ended one: redoes one step and all that depends on it, and keeps the other steps.

A fork is a revival in which one step and all that depends on it are redone in all their elements, whatever became of
them: as new work, with new idempotency keys. The lineage of the new run decides that when its steps are claimed (see
`lineage`), so a crash in the middle needs no care of its own. The other steps are treated as in a retried step (see
`revive`): successes and failures are kept, and steps that the old run did not reach are done.

A run may be forked any number of times, so a fork takes no key of the old run. The old run's row is locked while the
fork is written: retention, which locks it too, either finds the fork and leaves the old run, or has begun to remove
the old run, and the fork is refused.
"""

from __future__ import annotations

from collections.abc import Collection

from penstock.database.transaction import Transaction
from penstock.errors import ReviveError
from penstock.pipelines.advance import read, run_rows
from penstock.pipelines.advance.read import RunStatusRow
from penstock.pipelines.advance.run_rows import CERTIFY, wiring_for
from penstock.pipelines.advance.state import EngineState
from penstock.pipelines.lifecycle import revivals, start
from penstock.pipelines.lifecycle.revive import LOCK, inherit
from penstock.pipelines.lifecycle.start import NewRun
from penstock.pipelines.model.compatibility import dependants
from penstock.pipelines.model.definition import Definition, NodeKind
from penstock.pipelines.model.wiring import Wiring
from penstock.queue import audit
from penstock.values.parse import nearest
from penstock.values.status import RunStatus


def fork(
    engine_state: EngineState, tx: Transaction, old: str, new: str, at: str, duplicate_context: bool
) -> None:
    """Write the new run. The old one must have ended, and is not changed."""
    tx.stage("fork")
    row = tx.row(LOCK, id=old)
    state = read.run_states(tx, [old]).get(old)
    if row is None or state is None:
        raise ReviveError(f"there is no run {old}; it may have been pruned")
    tx.certify(CERTIFY, ids=[old])
    _check_ended(tx, state)
    wiring = wiring_for(engine_state, tx, state.definition)
    redone = _redone(old, wiring, at)
    without = _signals_to_repeat(wiring.definition, redone)
    inherit(tx, old, new, duplicate_context, without, sorted(redone))
    run_rows.copy_labels(tx, old, new)
    fresh = NewRun(new, wiring.definition, state.args, revived_from=old, only=at, forked_from=old)
    start.open_runs(engine_state, tx, [fresh._replace(scheduled_for=start.nominal_of(tx, old))])
    audit.of_run(tx, "fork", old, new_run=new, step=at)


def redone_steps(wiring: Wiring, at: str) -> list[str]:
    """The steps that a fork at this step redoes, in the order of the definition."""
    nodes, after = wiring.definition.by_key, dependants(wiring, at)
    return [key for key in wiring.order if (key == at or key in after) and nodes[key].kind.is_step]


def _check_ended(tx: Transaction, state: RunStatusRow) -> None:
    if state.status is RunStatus.SKIPPED:
        raise ReviveError(f"run {state.id} is skipped: it has never begun, and there is nothing to keep")
    if not state.status.terminal:
        raise ReviveError(f"run {state.id} is {state.status}: only a run that has ended can be forked")
    if revivals.is_being_pruned(tx, state.pipeline, state.id):
        raise ReviveError(f"run {state.id} is just being pruned: it cannot be forked any more")


def _redone(run: str, wiring: Wiring, at: str) -> set[str]:
    """The step and all nodes that depend on it."""
    steps = [node.key for node in wiring.definition.nodes if node.kind.is_step]
    if at not in steps:
        raise ReviveError(
            f"run {run} has no step {at!r}; its steps are {', '.join(steps)}{nearest(at, steps)}"
        )
    return {at, *dependants(wiring, at)}


def _signals_to_repeat(definition: Definition, redone: Collection[str]) -> list[str]:
    """The signals that only redone waits take: they are waited for again."""
    waits = [node for node in definition.nodes if node.kind is NodeKind.WAIT]
    kept = {node.target for node in waits if node.key not in redone}
    return sorted({node.target for node in waits} - kept)
