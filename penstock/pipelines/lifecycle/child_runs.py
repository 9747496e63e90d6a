"""Child runs: a step that is a run of its own. Opened when the step is claimed; its end is the step's end.

In a revived run, a step whose child run did not succeed has that child revived: with its own definition, signals and
context, so that what it had finished is kept as well, to any depth. If the run was revived with the app's definition,
so is the child.

A child may have been revived by itself, before: then it is the last of its revivals that is continued, so that what was
finished there is kept too. While that one is still under way its results are not known: the step fails.

A fork does not take a child away from the run that it was forked from: its child is a fork of that child, which keeps
what is finished there. The other run, and other forks of it, can continue the same child.

Pipelines may start each other, and then something in them has to decide that it is enough. If nothing does, the depth
at which no more is opened does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, cast

from penstock.database.transaction import Transaction
from penstock.errors import ArgumentError, DefinitionError, PenstockError, ReviveError
from penstock.pipelines.advance.run_rows import RunView, wiring_for
from penstock.pipelines.advance.state import EngineState
from penstock.pipelines.lifecycle import lineage, revivals
from penstock.pipelines.lifecycle.lineage import ChildRun
from penstock.pipelines.lifecycle.revive import inherit
from penstock.pipelines.lifecycle.start import NewRun, is_written
from penstock.pipelines.model.definition import Definition
from penstock.queue import states
from penstock.queue.jobs import Attempt, Claim, EndedStep
from penstock.values.failure import Failure
from penstock.values.ids import new_id
from penstock.values.outcome import Outcome
from penstock.values.plain import counted, were
from penstock.values.status import JobStatus, OutcomeKind, Reason
from penstock.values.typed_json.json_text import dumps, encode, limited, loads
from penstock.values.typed_json.parameters import KEYWORDS, REST

if TYPE_CHECKING:
    from penstock.pipelines.pipeline import Pipeline

# Arguments for a run that keeps an older definition than the app's, such as a revived run.
#
# Its steps know its parameters by the names they had then, and the app's signature may have others by now. So
# what the
# run is given is bound to the definition: by position in the order of its parameters, or by name.


def of_step(
    definition: Definition, pipeline: Any, args: Sequence[object], kwargs: Mapping[str, object], earlier: str
) -> str:
    """The arguments of a child run from raw values; `earlier`: what a child at its place was given, with defaults."""
    known = cast("dict[str, object]", loads(earlier))
    values = {**known, **_bound(definition, args, kwargs)}
    _require(definition, values)
    return _text(definition, pipeline, values)


def of_revival(
    run: str, definition: Definition, pipeline: Any, args: Sequence[object], kwargs: Mapping[str, object]
) -> str:
    """New arguments for a run that is revived with its own definition; raises `ReviveError`."""
    try:
        given = _bound(definition, args, kwargs)
        values = {
            **pipeline.defaults(),
            **{name: _raw(pipeline, name, value) for name, value in given.items()},
        }
        _require(definition, values)
    except ArgumentError as error:
        own, other = ", ".join(definition.params), ", ".join(pipeline.definition.params)
        raise ReviveError(
            f"run {run} keeps its definition, with the parameters ({own}): {error}. Give args= for those, or "
            f"definition='current' and args= for ({other})"
        ) from error
    return _text(definition, pipeline, values)


def _bound(definition: Definition, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
    params = definition.params
    names = [name for name in params if name not in (REST, KEYWORDS)]
    places = list(params[: params.index(REST)]) if REST in params else names
    bound = dict(zip(places, args, strict=False))
    rest = list(args[len(places) :])
    extra: dict[str, object] = {}
    for name, value in kwargs.items():
        if name in bound:
            raise ArgumentError(definition.name, "given twice, by position and by name", name)
        (bound if name in names else extra)[name] = value
    if rest and REST not in params:
        raise ArgumentError(
            definition.name,
            f"takes {counted(len(names), 'argument')}, but {were(len(args))} given by position",
        )
    if extra and KEYWORDS not in params:
        raise ArgumentError(definition.name, "there is no such parameter", next(iter(extra)))
    return bound | ({REST: rest} if rest else {}) | ({KEYWORDS: extra} if extra else {})


def _require(definition: Definition, values: Mapping[str, object]) -> None:
    for name in definition.params:
        if name not in values:
            raise ArgumentError(definition.name, "missing, and there is no default for it", name)


def _raw(pipeline: Any, name: str, value: object) -> object:
    """The raw value of an argument, by the annotation of the app's parameter of that name, if there is one."""
    if name in pipeline.codec.parameters:
        return loads(pipeline.codec.encode_value_for(name, value))
    return loads(encode(value, name=f"argument {name!r} of {pipeline.name}"))


def _text(definition: Definition, pipeline: Any, values: Mapping[str, object]) -> str:
    limit = pipeline.host.settings.payload_limit
    raw = {name: values[name] for name in definition.params}
    return limited(dumps(raw), limit, f"the argument list of {definition.name}")


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
"""The deepest nesting of child runs."""


def prepare(
    engine_state: EngineState, tx: Transaction, found: Mapping[str, RunView], claims: Sequence[Claim]
) -> tuple[list[NewRun], list[Attempt]]:
    """The runs to open for these steps, and the steps for which there can be none: their arguments do not fit."""
    earlier = _earlier(engine_state, tx, found, claims)
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
            new = (
                _new(engine_state, claim)
                if before is None
                else _revived(engine_state, tx, found, claim, before)
            )
            nominal = found[str(claim.run_id)].scheduled_for
            news.append(new._replace(parent_run=claim.run_id, parent_job=claim.job_id, scheduled_for=nominal))
        except PenstockError as error:
            unfit = not isinstance(error, ReviveError | DefinitionError)
            reason = Reason.ARGUMENTS_INVALID if unfit else Reason.CHILD_RUN_FAILED
            wrong.append(
                Attempt(claim, Outcome(OutcomeKind.ERRORED, failure=Failure.of(error), reason=reason))
            )
    return _in_time(news, {claim.job_id: claim for claim in claims}), wrong


def fail(tx: Transaction, attempts: Sequence[Attempt]) -> None:
    """Fail the steps whose child runs cannot be opened with their arguments."""
    states.record_attempts(tx, attempts, None)
    groups: dict[Reason | None, list[str]] = {}
    for attempt in attempts:
        groups.setdefault(attempt.outcome.reason, []).append(attempt.claim.job_id)
    for reason, ids in sorted(groups.items(), key=str):
        states.end(tx, ids, JobStatus.FAILED, reason)


def ended(attempt: Attempt) -> EndedStep:
    claim, error = attempt.claim, str(attempt.outcome.failure)
    place = (claim.job_id, str(claim.run_id), str(claim.node), claim.path or "")
    return EndedStep(*place, JobStatus.FAILED, attempt.outcome.reason, None, error)


def _in_time(news: Sequence[NewRun], claims: Mapping[str, Claim]) -> list[NewRun]:
    """The same runs, with the `timeout` of a step as the deadline of its child run, if that is sooner."""
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
    """The runs that are nested as deep as is allowed."""
    nested = {str(claim.run_id) for claim in claims if found[str(claim.run_id)].is_child}
    above = {run: tx.rows(ABOVE, run=run, most=DEEPEST)[0][0] for run in sorted(nested)}
    return {run for run, count in above.items() if int(count) >= DEEPEST - 1}


def _pipeline(engine_state: EngineState, claim: Claim) -> Pipeline:
    """The pipeline of a claimed step: a process claims only what it knows."""
    pipeline = engine_state.host.find_pipeline(claim.task)
    if pipeline is None:
        raise DefinitionError(f"this process knows no pipeline named {claim.task!r}")
    return pipeline


def _new(engine_state: EngineState, claim: Claim) -> NewRun:
    pipeline = _pipeline(engine_state, claim)
    args, kwargs = claim.call or ((), {})
    return NewRun(new_id(), pipeline.ending, pipeline.encode_raw(args, kwargs))


def _revived(
    engine_state: EngineState, tx: Transaction, found: Mapping[str, RunView], claim: Claim, child: ChildRun
) -> NewRun:
    old = _newest(tx, claim.task, child)
    if found[str(claim.run_id)].redefined:
        new = _new(engine_state, claim)._replace(redefined=True)
    else:
        new = _same_again(engine_state, tx, claim, old)
    if child.shared:
        inherit(tx, old.id, new.id, context=True)
        return new._replace(revived_from=old.id, forked_from=old.id)
    holder = revivals.claim_revival(tx, claim.task, old.id, new.id)
    # A revival that was pruned does not count: nothing of it is left to keep.
    if holder != new.id and is_written(tx, holder):
        raise _elsewhere(child, holder)
    # The context of a child is always copied: kept steps may have written values that the other steps read.
    inherit(tx, old.id, new.id, context=True)
    return new._replace(revived_from=old.id)


def _newest(tx: Transaction, pipeline: str, child: ChildRun) -> ChildRun:
    """The run to continue: the child, or the last of its revivals."""
    known = revivals.newest(tx, pipeline, child.id)
    if known is None or (child.shared and not known.status.terminal):
        return child
    if not known.status.terminal:
        raise _elsewhere(child, known.id)
    return ChildRun(known.id, known.definition)


def _elsewhere(child: ChildRun, run: str) -> ReviveError:
    return ReviveError(
        f"its run {child.id} was revived by itself, as {run}: revive this run again when that has ended"
    )


def _same_again(engine_state: EngineState, tx: Transaction, claim: Claim, old: ChildRun) -> NewRun:
    """The child run again, with its old definition and the present arguments under that definition's names."""
    pipeline = _pipeline(engine_state, claim)
    kept = wiring_for(engine_state, tx, old.definition).definition
    if kept.params == pipeline.definition.params:
        return _new(engine_state, claim)._replace(definition=kept)
    args, kwargs = claim.call or ((), {})
    given = tx.row(GIVEN, id=old.id)
    before = str(given[0]) if given is not None else "{}"
    return NewRun(new_id(), kept, of_step(kept, pipeline, args, kwargs, before))


def _earlier(
    engine_state: EngineState, tx: Transaction, found: Mapping[str, RunView], claims: Sequence[Claim]
) -> dict[str, ChildRun]:
    """The child runs that these steps had in the runs theirs were revived from, by job."""
    by_run: dict[str, list[Claim]] = {}
    for claim in claims:
        if found[str(claim.run_id)].revived_from is not None:
            by_run.setdefault(str(claim.run_id), []).append(claim)
    earlier: dict[str, ChildRun] = {}
    for run, steps in by_run.items():
        places = {claim.job_id: (str(claim.node), claim.path or "") for claim in steps}
        known = lineage.children(engine_state, tx, found[run], places.values())
        earlier |= {job: known[place] for job, place in places.items() if place in known}
    return earlier
