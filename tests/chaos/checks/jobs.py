"""The history of every job: settled once, one claim after the other, only by the rules, budgets as the attempts say."""

from collections import Counter
from collections.abc import Iterator

from tests.chaos import plan
from tests.chaos.facts import Facts, Job

SPENDS_RETRY = ("errored", "timed_out")
FINAL = ("succeeded", "cancelled")


def jobs(facts: Facts) -> Iterator[str]:
    for job in facts.jobs.values():
        yield from _history(job)
        yield from _spent(job)
    yield from _planned(facts)
    yield from _bodies(facts)
    failed = {job.id for job in facts.jobs.values() if job.status == "failed"}
    for id in sorted(failed ^ facts.dead_letters):
        yield f"{facts.jobs.get(id, id)}: failed and on the list of dead letters must be the same"


def settled_twice(facts: Facts) -> int:
    return sum(max(0, len([o for o in job.outcomes if o in FINAL]) - 1) for job in facts.jobs.values())


def _history(job: Job) -> Iterator[str]:
    if job.status is None:
        yield f"{job} is half there: it has no state"
    if job.token is not None:
        yield f"{job} is still held at the end"
    finals = [outcome for outcome in job.outcomes if outcome in FINAL]
    if len(finals) > 1:
        yield f"settled twice: {job}, {job.outcomes}"
    if finals and job.outcomes[-1] not in FINAL:
        yield f"{job} went on after its end: {job.outcomes}"
    if job.status == "failed" and "succeeded" in job.outcomes:
        yield f"{job} has succeeded and is failed: {job.outcomes}"
    generations = [execution.generation for execution in job.executions]
    if len(set(generations)) < len(generations) or max(generations, default=0) > job.generation:
        yield f"{job} has attempts under claims {generations}, and its last claim is {job.generation}"


def _spent(job: Job) -> Iterator[str]:
    """Only an error spends a retry, only a crash spends a crash."""
    crashes = job.outcomes.count("crashed")
    if job.crash_count != crashes:
        yield f"{job} has spent {job.crash_count} crashes in {crashes}: {job.outcomes}"
    errors = sum(job.outcomes.count(kind) for kind in SPENDS_RETRY)
    ended_by_error = job.status == "failed" and bool(job.outcomes) and job.outcomes[-1] in SPENDS_RETRY
    if job.retry_count != errors - ended_by_error:
        yield f"{job} has spent {job.retry_count} retries: {job.outcomes}"


def _planned(facts: Facts) -> Iterator[str]:
    """What the bodies do by themselves, and what time is kept."""
    for entry in facts.told("accepted"):
        job = facts.jobs.get(entry["ids"][0]) if entry["ids"] else None
        if job is None:
            continue
        number, errors = entry["number"], sum(job.outcomes.count(kind) for kind in SPENDS_RETRY)
        match entry["kind"]:
            case "stumble" if errors != plan.errors_of(number):
                yield f"{job} raises {plan.errors_of(number)} times, and was counted {errors} times: {job.outcomes}"
            case "doomed" if errors != 2:
                yield f"{job} has one retry, and was tried {errors} times: {job.outcomes}"
            case "overdue" if job.outcomes.count("timed_out") != 1:
                yield f"{job} runs out of time once: {job.outcomes}"
            case "doze" if job.outcomes.count("snoozed") > 1:
                yield f"{job} goes back to sleep once: {job.outcomes}"
            case "late":
                waited = (
                    (job.executions[0].started_at - job.created_at) / 1_000_000 if job.executions else 0.0
                )
                if waited < plan.delay_of(number) - 0.001:
                    yield f"{job} began after {waited} s instead of {plan.delay_of(number)} s"


def _bodies(facts: Facts) -> Iterator[str]:
    """A body runs at least once, and never twice under one claim."""
    begun = Counter((entry["job"], entry["attempt"]) for entry in facts.told("begin"))
    for (id, attempt), times in begun.items():
        if times > 1:
            yield f"{facts.jobs.get(id, id)} began {times} times under its claim {attempt}"
        if id not in facts.jobs:
            yield f"{id} was run and is not there"
    ran = {id for id, _ in begun}
    for job in facts.jobs.values():
        if job.status == "succeeded" and job.task in plan.BODIES and job.id not in ran:
            yield f"{job} has succeeded, and never ran"
