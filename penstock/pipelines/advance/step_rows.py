"""Steps as rows: a job with a place in a run. All steps of a transaction are written by a few statements."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from penstock.database.transaction import Transaction
from penstock.pipelines.advance.state import EngineState, JobTemplate
from penstock.pipelines.model.expressions import Path, path_text
from penstock.queue import states
from penstock.queue.jobs import Claim, Offer, tier_of
from penstock.values.status import JobStatus, Reason

SHARED_FROM = 20
"""From so many steps of one node on, what they have in common is sent once."""

NO_PAYLOAD = "null"
COMMON = ("run_id", "node", "task", "queue", "priority", "options", "max_crashes", "tier", "status", "reason")
OPTIONAL = ("origin_id", "path")


class KnownArguments(NamedTuple):
    """The arguments of a step's handler, and the rest that its claim needs."""

    call: tuple[Sequence[object], Mapping[str, object]]
    is_expanded: bool
    definition: str
    scheduled_for: int | None = None


class NewStep(NamedTuple):
    """A step to be written. `error` is there for a node without a job that failed."""

    id: str
    run_id: str
    node: str
    path: Path
    template: JobTemplate
    status: JobStatus
    payload: str = NO_PAYLOAD
    reason: Reason | None = None
    delay: float = 0.0
    error: str | None = None
    origin_id: str | None = None
    queued: bool = True
    """False: nothing makes it claimable yet, although it is available."""
    intake: KnownArguments | None = None
    """Where it is known already."""


def write(engine_state: EngineState, tx: Transaction, steps: Sequence[NewStep]) -> None:
    """Write the steps, each where its status puts it, or in the hands of who offers to take it."""
    trace = engine_state.trace(tx)
    steps = [_offered(step, trace.offer) for step in steps]
    ready: list[NewStep] = []
    for place, alike, group in _groups(steps):
        _write_group(tx, place, group, alike, trace.offer)
        if place == "ready":
            ready += group
    if ready:
        trace.made.update({step.id: (step.template.queue, tier_of(step.template.priority)) for step in ready})
        engine_state.tell_ready(tx)
    states.record_unstarted(tx, [(s.id, s.reason, s.error) for s in steps if s.error is not None])


def _groups(steps: Sequence[NewStep]) -> Iterable[tuple[str, bool, Sequence[NewStep]]]:
    """By the place they go to; and whether they are many of one node, alike but for a few fields."""
    if len(steps) == 1:
        return [(_place(steps[0]), False, steps)]
    groups: dict[tuple[str, object], list[NewStep]] = defaultdict(list)
    sizes: dict[tuple[str, str], int] = defaultdict(int)
    for step in steps:
        sizes[step.run_id, step.node] += 1
    for step in steps:
        many = sizes[step.run_id, step.node] >= SHARED_FROM
        common = (step.run_id, step.node, step.status, step.reason) if many else None
        groups[_place(step), common].append(step)
    return [(place, alike is not None, group) for (place, alike), group in groups.items()]


def _offered(step: NewStep, offer: Offer | None) -> NewStep:
    template = step.template
    if offer is None or _place(step) != "ready" or not offer.accepts(template.task, template.queue):
        return step
    call, is_expanded, definition, nominal = step.intake or (None, False, None, None)
    offer.claims.append(
        Claim(
            step.id,
            offer.token,
            1,
            template.task,
            template.queue,
            tier_of(template.priority),
            step.payload,
            template.options,
            0,
            0,
            step.origin_id,
            step.run_id,
            step.node,
            path_text(step.path),
            template.max_crashes,
            call,
            is_expanded=is_expanded,
            definition=definition,
            scheduled_for=nominal,
        )
    )
    return step._replace(status=JobStatus.RUNNING)


def _place(step: NewStep) -> str:
    match step.status:
        case JobStatus.RUNNING:
            return "held"
        case JobStatus.AVAILABLE:
            return "ready" if step.queued else "aside"
        case JobStatus.SCHEDULED:
            return "delayed" if step.queued else "aside"
        case JobStatus.WAITING:
            return "aside"
    return "ended"


def _write_group(
    tx: Transaction, place: str, steps: Sequence[NewStep], alike: bool, offer: Offer | None
) -> None:
    rows = [_fields(step, place) for step in steps]
    shared = {name: rows[0][name] for name in COMMON} if alike else {}
    if alike:
        rows = [{name: value for name, value in row.items() if name not in shared} for row in rows]
    if place == "held":
        assert offer is not None
        shared |= {"token": offer.token, "process_id": offer.process}
        if len(steps) == 1 and (receipt := offer.close_with(steps[0].id)) is not None:
            place = "held alone"
            rows[0]["job_ids"] = receipt
    tx.insert_together(states.tables_of_new(place, OPTIONAL), rows, shared)


def _fields(step: NewStep, place: str) -> dict[str, object]:
    template = step.template
    fields: dict[str, object] = {
        "id": step.id,
        "run_id": step.run_id,
        "node": step.node,
        "path": path_text(step.path),
        "task": template.task,
        "queue": template.queue,
        "priority": template.priority,
        "tier": tier_of(template.priority),
        "payload": step.payload,
        "options": template.options,
        "max_crashes": template.max_crashes,
        "origin_id": step.origin_id,
        "status": step.status.value,
        "reason": step.reason.value if step.reason is not None else None,
    }
    if place == "delayed":
        fields["wait"] = int(step.delay * 1_000_000)
    return fields
