"""Child runs: a step that is a run of its own. Opened when the step is claimed; its end is the step's end.

In a revived run, a step whose child run did not succeed has that child revived: with its own definition, signals and
context, so that what it had finished is kept as well, to any depth. If the run was revived with the app's definition,
so is the child.

A child may have been revived by itself, before: then it is the last of its revivals that is continued, so that what was
finished there is kept too. While that one is still under way nobody can say what it will have finished: the step fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.database.transaction import Transaction
from penstock.errors import PenstockError, ReviveError
from penstock.pipelines import lineage, revivals
from penstock.pipelines.desk import Desk
from penstock.pipelines.lineage import Child
from penstock.pipelines.revive import inherit
from penstock.pipelines.runs import RunView, wiring_for
from penstock.pipelines.trigger import NewRun, is_written
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


def prepare(
    desk: Desk, tx: Transaction, found: Mapping[str, RunView], claims: Sequence[Claim]
) -> tuple[list[NewRun], list[Attempt]]:
    """The runs to open for these steps, and the steps for which there can be none: their arguments do not fit."""
    earlier = _earlier(desk, tx, found, claims)
    news: list[NewRun] = []
    wrong: list[Attempt] = []
    for claim in claims:
        pipeline = desk.host.find_pipeline(claim.task)
        args, kwargs = claim.call or ((), {})
        try:
            if claim.fault is not None:
                raise claim.fault
            text = pipeline.encode_raw(args, kwargs)
            new = NewRun(
                new_id(), pipeline.definition, text, parent_run=claim.run_id, parent_job=claim.job_id
            )
            before = earlier.get(claim.job_id)
            news.append(new if before is None else _revived(desk, tx, found[str(claim.run_id)], new, before))
        except PenstockError as error:
            reason = Reason.CHILD_RUN_FAILED if isinstance(error, ReviveError) else Reason.ARGUMENTS_INVALID
            wrong.append(
                Attempt(claim, Outcome(OutcomeKind.ERRORED, failure=Failure.of(error), reason=reason))
            )
    return news, wrong


def fail(tx: Transaction, attempts: Sequence[Attempt]) -> None:
    """Children that cannot be opened with what they are given."""
    record(tx, attempts, None)
    groups: dict[str, list[str]] = {}
    for attempt in attempts:
        groups.setdefault(str(attempt.outcome.reason), []).append(attempt.claim.job_id)
    for reason, ids in sorted(groups.items()):
        tx.run(FAIL, reason=reason, ids=sorted(ids))


def ended(attempt: Attempt) -> Ended:
    claim, error = attempt.claim, str(attempt.outcome.failure)
    place = (claim.job_id, str(claim.run_id), str(claim.node), claim.path or "")
    return Ended(*place, JobStatus.FAILED, attempt.outcome.reason, None, error)


def _revived(desk: Desk, tx: Transaction, found: RunView, new: NewRun, child: Child) -> NewRun:
    old = _last(tx, new, child)
    # Nobody can say whether a child's context is wanted; what it keeps may have written what the rest reads.
    inherit(tx, old.id, new.id, context=True)
    if found.redefined:
        return new._replace(revived_from=old.id, redefined=True)
    definition = wiring_for(desk, tx, old.definition).definition
    return new._replace(definition=definition, revived_from=old.id)


def _last(tx: Transaction, new: NewRun, child: Child) -> Child:
    """The run to continue, the child or the last of its revivals; now it is continued by the new one."""
    pipeline = new.definition.name
    known = revivals.newest(tx, pipeline, child.id)
    old = child if known is None else Child(known.id, known.definition)
    open_one = old.id if known is not None and not known.status.terminal else None
    if open_one is None:
        holder = revivals.take(tx, pipeline, old.id, new.id)
        # One that was pruned is in nobody's way, and has nothing left that could be kept.
        open_one = holder if holder != new.id and is_written(tx, holder) else None
    if open_one is not None:
        raise ReviveError(
            f"its run {child.id} was revived by itself, as {open_one}: revive this run again when that has ended"
        )
    return old


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
