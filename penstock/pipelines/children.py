"""Child runs: a step that is a run of its own. Opened when the step is claimed; its end is the step's end.

In a revived run, a step whose child run did not succeed has that child revived: with its own definition, signals and
context, so that what it had finished is kept as well, to any depth. If the run was revived with the app's definition,
so is the child.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.database.transaction import Transaction
from penstock.errors import PenstockError
from penstock.pipelines import binding, lineage
from penstock.pipelines.definition import Definition
from penstock.pipelines.desk import Desk
from penstock.pipelines.lineage import Child
from penstock.pipelines.revive import inherit
from penstock.pipelines.runs import RunView, wiring_for
from penstock.pipelines.trigger import NewRun
from penstock.queue.jobs import Attempt, Claim, Ended
from penstock.queue.settle import record
from penstock.values.failure import Failure
from penstock.values.ids import new_id
from penstock.values.outcome import Outcome
from penstock.values.status import JobStatus, OutcomeKind, Reason

FAIL = """
UPDATE {job_states} {by_key} SET status = 'failed', reason = :reason, token = NULL, process_id = NULL,
  finished_at = {now}
WHERE job_id {among:ids:uuid}
"""
GIVEN = "SELECT args FROM {runs} WHERE id = :id"
WRONG = Reason.ARGUMENTS_INVALID


def prepare(
    desk: Desk, tx: Transaction, found: Mapping[str, RunView], claims: Sequence[Claim]
) -> tuple[list[NewRun], list[Attempt]]:
    """The runs to open for these steps, and the steps whose arguments do not fit."""
    earlier = _earlier(desk, tx, found, claims)
    news: list[NewRun] = []
    wrong: list[Attempt] = []
    for claim in claims:
        pipeline = desk.host.find_pipeline(claim.task)
        before, view = earlier.get(claim.job_id), found[str(claim.run_id)]
        kept = None if before is None or view.redefined else _definition(desk, tx, before)
        try:
            text = _arguments(tx, pipeline, claim, kept, before)
        except PenstockError as error:
            wrong.append(
                Attempt(claim, Outcome(OutcomeKind.ERRORED, failure=Failure.of(error), reason=WRONG))
            )
            continue
        new = NewRun(
            new_id(), kept or pipeline.definition, text, parent_run=claim.run_id, parent_job=claim.job_id
        )
        news.append(new if before is None else _revived(tx, view, new, before))
    return news, wrong


def fail(tx: Transaction, attempts: Sequence[Attempt]) -> None:
    """Children that cannot be opened with what they are given."""
    record(tx, attempts, None)
    tx.run(FAIL, reason=WRONG.value, ids=sorted([attempt.claim.job_id for attempt in attempts]))


def ended(attempt: Attempt) -> Ended:
    claim, error = attempt.claim, str(attempt.outcome.failure)
    place = (claim.job_id, str(claim.run_id), str(claim.node), claim.path or "")
    return Ended(*place, JobStatus.FAILED, WRONG, None, error)


def _revived(tx: Transaction, found: RunView, new: NewRun, old: Child) -> NewRun:
    # Nobody can say whether a child's context is wanted; what it keeps may have written what the rest reads.
    inherit(tx, old.id, new.id, context=True)
    return new._replace(revived_from=old.id, redefined=found.redefined)


def _definition(desk: Desk, tx: Transaction, old: Child) -> Definition:
    return wiring_for(desk, tx, old.definition).definition


def _arguments(
    tx: Transaction, pipeline: Any, claim: Claim, kept: Definition | None, before: Child | None
) -> str:
    """The arguments of the child, under the names that its definition has for them."""
    if claim.fault is not None:
        raise claim.fault
    args, kwargs = claim.call or ((), {})
    if kept is None or before is None or kept.params == pipeline.definition.params:
        return str(pipeline.encode_raw(args, kwargs))
    given = tx.row(GIVEN, id=before.id)
    return binding.of_step(kept, pipeline, args, kwargs, str(given[0]) if given is not None else "{}")


def _earlier(
    desk: Desk, tx: Transaction, found: Mapping[str, RunView], claims: Sequence[Claim]
) -> dict[str, Child]:
    """The child runs that these steps had in the runs theirs were revived from, by job."""
    by_run: dict[str, list[Claim]] = {}
    for claim in claims:
        if found[str(claim.run_id)].revived_from is not None:
            by_run.setdefault(str(claim.run_id), []).append(claim)
    earlier: dict[str, Child] = {}
    for run, steps in by_run.items():
        places = {claim.job_id: (str(claim.node), claim.path or "") for claim in steps}
        known = lineage.children(desk, tx, found[run], places.values())
        earlier |= {job: known[place] for job, place in places.items() if place in known}
    return earlier
