"""Child runs: a step that is a run of its own. Opened when the step is claimed; its end is the step's end.

In a revived run, a step whose child run did not succeed has that child revived: with its own definition, signals and
context, so that what it had finished is kept as well, to any depth. If the run was revived with the app's definition,
so is the child.

A child may have been revived by itself, before: then it is the last of its revivals that is continued, so that what was
finished there is kept too. While that one is still under way nobody can say what it will have finished: the step fails.

Pipelines may start each other, and then something in them has to decide that it is enough. If nothing does, the depth
at which no more is opened does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import cast

from penstock.database.transaction import Transaction
from penstock.errors import DefinitionError, PenstockError, ReviveError
from penstock.pipelines import binding, lineage, revivals
from penstock.pipelines.definition import Definition
from penstock.pipelines.desk import Desk
from penstock.pipelines.lineage import Child
from penstock.pipelines.revive import inherit
from penstock.pipelines.runs import RunView, wiring_for
from penstock.pipelines.trigger import NewRun, is_written
from penstock.queue.jobs import Attempt, Claim, Ended
from penstock.queue.settle import record
from penstock.values.failure import Failure
from penstock.values.ids import new_id
from penstock.values.jsontext import loads
from penstock.values.outcome import Outcome
from penstock.values.status import JobStatus, OutcomeKind, Reason

FAIL = """
UPDATE {job_states} {by_key} SET status = 'failed', reason = :reason, token = NULL, process_id = NULL,
  finished_at = {now}
WHERE job_id {among:ids:uuid}
"""
GIVEN = "SELECT args FROM {runs} WHERE id = :id"
ABOVE = """
WITH RECURSIVE above (id, depth) AS (
  SELECT parent_run_id, 1 FROM {runs} WHERE id = :run
  UNION ALL
  SELECT r.parent_run_id, a.depth + 1 FROM above a JOIN {runs} r ON r.id = a.id WHERE a.depth < :most
)
SELECT COUNT(*) FROM above WHERE id IS NOT NULL
"""
DEEPEST = 500
"""So many runs, at most, are one inside the other."""


def prepare(
    desk: Desk, tx: Transaction, found: Mapping[str, RunView], claims: Sequence[Claim]
) -> tuple[list[NewRun], list[Attempt]]:
    """The runs to open for these steps, and the steps for which there can be none: their arguments do not fit."""
    earlier = _earlier(desk, tx, found, claims)
    full = _full(tx, found, claims)
    news: list[NewRun] = []
    wrong: list[Attempt] = []
    for claim in claims:
        try:
            if claim.fault is not None:
                raise claim.fault
            if claim.run_id in full:
                raise DefinitionError(
                    f"{claim.task} would be run {DEEPEST + 1} of those that are one inside the other, and no more than "
                    f"{DEEPEST} may be. Let the pipelines that start each other come to an end, or start the next one "
                    "from a task: pipeline.trigger(...)"
                )
            before = earlier.get(claim.job_id)
            new = _new(desk, claim) if before is None else _revived(desk, tx, found, claim, before)
            news.append(new._replace(parent_run=claim.run_id, parent_job=claim.job_id))
        except PenstockError as error:
            unfit = not isinstance(error, ReviveError | DefinitionError)
            reason = Reason.ARGUMENTS_INVALID if unfit else Reason.CHILD_RUN_FAILED
            wrong.append(
                Attempt(claim, Outcome(OutcomeKind.ERRORED, failure=Failure.of(error), reason=reason))
            )
    return _in_time(news, {claim.job_id: claim for claim in claims}), wrong


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


def _in_time(news: Sequence[NewRun], claims: Mapping[str, Claim]) -> list[NewRun]:
    """The same runs. The `timeout` of a step is the deadline of its run, if that is the sooner end."""
    made: dict[tuple[str, float], Definition] = {}
    timed = []
    for new in news:
        options = claims[str(new.parent_job)].options
        timeout = cast("dict[str, float]", loads(options)).get("timeout") if options else None
        if timeout is not None and timeout < (new.definition.deadline or inf):
            key = new.definition.hash, timeout
            made[key] = made.get(key) or replace(new.definition, deadline=timeout)
            new = new._replace(definition=made[key])
        timed.append(new)
    return timed


def _full(tx: Transaction, found: Mapping[str, RunView], claims: Sequence[Claim]) -> set[str]:
    """The runs that are as deep inside of others as may be."""
    nested = {str(claim.run_id) for claim in claims if found[str(claim.run_id)].is_child}
    above = {run: tx.rows(ABOVE, run=run, most=DEEPEST)[0][0] for run in sorted(nested)}
    return {run for run, count in above.items() if int(count) >= DEEPEST - 1}


def _new(desk: Desk, claim: Claim) -> NewRun:
    pipeline = desk.host.find_pipeline(claim.task)
    args, kwargs = claim.call or ((), {})
    return NewRun(new_id(), pipeline.ending, pipeline.encode_raw(args, kwargs))


def _revived(desk: Desk, tx: Transaction, found: Mapping[str, RunView], claim: Claim, child: Child) -> NewRun:
    old = _newest(tx, claim.task, child)
    if found[str(claim.run_id)].redefined:
        new = _new(desk, claim)._replace(redefined=True)
    else:
        new = _same_again(desk, tx, claim, old)
    holder = revivals.take(tx, claim.task, old.id, new.id)
    # One that was pruned is in nobody's way, and has nothing left that could be kept.
    if holder != new.id and is_written(tx, holder):
        raise _elsewhere(child, holder)
    # Nobody can say whether a child's context is wanted; what it keeps may have written what the rest reads.
    inherit(tx, old.id, new.id, context=True)
    return new._replace(revived_from=old.id)


def _newest(tx: Transaction, pipeline: str, child: Child) -> Child:
    """The run to continue: the child, or the last of its revivals."""
    known = revivals.newest(tx, pipeline, child.id)
    if known is None:
        return child
    if not known.status.terminal:
        raise _elsewhere(child, known.id)
    return Child(known.id, known.definition)


def _elsewhere(child: Child, run: str) -> ReviveError:
    return ReviveError(
        f"its run {child.id} was revived by itself, as {run}: revive this run again when that has ended"
    )


def _same_again(desk: Desk, tx: Transaction, claim: Claim, old: Child) -> NewRun:
    """With the definition it had, and what it is given now under the names that this has for it."""
    pipeline = desk.host.find_pipeline(claim.task)
    kept = wiring_for(desk, tx, old.definition).definition
    if kept.params == pipeline.definition.params:
        return _new(desk, claim)._replace(definition=kept)
    args, kwargs = claim.call or ((), {})
    given = tx.row(GIVEN, id=old.id)
    before = str(given[0]) if given is not None else "{}"
    return NewRun(new_id(), kept, binding.of_step(kept, pipeline, args, kwargs, before))


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
