"""What must be true of the tasks' own doings: effects, markers, the callers' transactions, the answers they got."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic_core import from_json

from tests.simulation.story import Story
from tests.simulation.workloads.task_script import KINDS


def check(story: Story) -> list[str]:
    return [
        *effects(story, "effects", ("writing", "writing_async")),
        *_outputs(story),
        *markers(story),
        *_orders(story),
        *_answers(story),
        *_truth(story),
    ]


def effects(story: Story, table: str, tasks: Sequence[str]) -> Iterator[str]:
    """Written through `transaction()`: exactly once for a job that succeeded, in the transaction that said so."""
    model = story.model
    written: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for tx, (_, kind, *facts) in story.written():
        if kind == table:
            written[facts[0]].append((facts[1], tx))
    for job in model.jobs.values():
        ours = written.pop(job.id, [])
        succeeded = job.task in tasks and model.states[job.id].status == "succeeded"
        if len(ours) != int(succeeded):
            yield f"{job.id} is {model.states[job.id].status} and has written {len(ours)} times"
        for generation, tx in ours:
            if model.executions.get((job.id, generation), (None,))[0] != tx:
                yield f"{job.id}: its effect and its end are not one transaction"
    if written:
        yield f"effects of jobs that do not exist: {', '.join(written)}"


def _outputs(story: Story) -> Iterator[str]:
    """A job's result is what the very attempt that succeeded returned."""
    for (job_id, generation), (_, _, outcome, output, _) in story.model.executions.items():
        task = story.model.jobs[job_id].task
        tells = task in KINDS and task != "charging"
        if outcome == "succeeded" and tells and output != str(generation):
            yield f"{job_id}: attempt {generation} succeeded with the result of another: {output}"


def markers(story: Story) -> Iterator[str]:
    """`once()`: whatever attempt asks, the value is the first that was recorded; as long as the job is there."""
    values: dict[str, set[object]] = defaultdict(set)
    gone: set[object] = set()
    for *_, kind, job_id, rest in (fact for fact in story.history if fact[2] in ("marked", "commit")):
        if kind == "marked" and job_id not in gone:
            values[job_id].add(rest)
        elif kind == "commit":
            gone.update(row[2] for row in rest if row[1] == "jobs-")
    for job_id, seen in values.items():
        if len(seen) > 1:
            yield f"{job_id}: once() returned {sorted(map(str, seen))}"


def _orders(story: Story) -> Iterator[str]:
    """Enqueued in the caller's transaction: if and only if that committed."""
    within = {fact[3] for fact in story.facts("asks within")}
    orders = Counter(facts[0] for _, (_, kind, *facts) in story.written() if kind == "orders")
    ours = [job for job in story.model.jobs.values() if job.task in KINDS]
    jobs = Counter(from_json(job.payload)["number"] for job in ours)
    for number in sorted(within):
        if orders[number] != jobs[number]:
            yield f"order {number} was written {orders[number]} times and enqueued {jobs[number]} times"


def _answers(story: Story) -> Iterator[str]:
    """A caller that was told that a job is cancelled finds it cancelled, unless it was retried after that was asked
    for."""
    asked: dict[tuple[str, str], int] = {}
    wanted: dict[str, int] = {}
    retried: dict[str, int] = {}
    for index, (_, who, kind, *facts) in enumerate(story.history):
        match kind:
            case "asks cancel":
                asked[who, facts[0]] = index
            case "cancel answered" if facts[1]:
                wanted[facts[0]] = asked[who, facts[0]]
            case "commit":
                for _, what, *row in facts[1]:
                    if what == "state" and row[1] in ("cancelled", "failed"):
                        retried[row[0]] = index
    for job_id, since in wanted.items():
        status = story.model.states[job_id].status
        if status != "cancelled" and retried.get(job_id, -1) < since:
            yield f"{job_id} was cancelled, its caller was told so, and is {status}"


def _truth(story: Story) -> Iterator[str]:
    """Who has cancelled or retried a job is told so, also when the first answer was lost."""
    asked: dict[str, tuple[str, str, bool]] = {}
    for _, who, kind, *facts in story.history:
        if kind in ("asks cancel", "asks retry"):
            asked[who] = (kind.removeprefix("asks "), facts[0], False)
        elif kind == "commit" and who in asked:
            verb, job_id, done = asked[who]
            asked[who] = (verb, job_id, done or any(_does(verb, job_id, fact) for fact in facts[1]))
        elif kind in ("cancel answered", "retry answered") and who in asked:
            verb, job_id, done = asked.pop(who)
            if done and not facts[1]:
                yield f"{who} did {verb} {job_id}, and was told otherwise"


def _does(verb: str, job_id: str, fact: tuple[Any, ...]) -> bool:
    """Whether this change of a state is what was asked for."""
    _, kind, *rest = fact
    if kind != "state" or rest[0] != job_id or rest[1] is None:
        return False
    before, after = rest[1:9], rest[9:]
    if verb == "retry":
        return before[0] in ("failed", "cancelled") and after[0] == "available"
    return bool(after[0] == "cancelled" != before[0])
