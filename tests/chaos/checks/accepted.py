"""What was accepted is there, once, and came to the end it must have. Nothing is lost."""

from collections import Counter
from collections.abc import Iterator

from tests.chaos import plan
from tests.chaos.facts import Facts, Job

TERMINAL = ("succeeded", "failed", "cancelled", "skipped")
REASONS = {"doomed": "retries_exhausted", "poison": "crashes_exhausted"}


def accepted(facts: Facts) -> Iterator[str]:
    for entry in facts.told("trouble"):
        if not entry["passing"]:
            yield f"operation {entry['number']} was refused: {entry['error']}"
    for entry in facts.told("accepted"):
        for id in entry["ids"]:
            if id not in facts.jobs and id not in facts.runs:
                yield f"lost: {id} of operation {entry['number']} ({entry['kind']}) was accepted and is not there"
            elif id in facts.jobs:
                yield from _ending(entry["kind"], entry["number"], facts.jobs[id])
    yield from _keys(facts)
    yield from _cancelled(facts)


def lost(facts: Facts) -> int:
    """Jobs and runs that were accepted and are gone, or not over at the end."""
    ids = [id for entry in facts.told("accepted") for id in entry["ids"]]
    return sum(not _is_over(facts, id) for id in ids)


def _is_over(facts: Facts, id: str) -> bool:
    if id in facts.runs:
        return facts.runs[id].ended_at is not None
    return id in facts.jobs and facts.jobs[id].status in TERMINAL


def _ending(kind: str, number: int, job: Job) -> Iterator[str]:
    """How a job must end, by its kind."""
    if job.status not in TERMINAL:
        yield f"lost: {job} of operation {number} is {job.status} when all is over"
    elif kind in plan.DOOMED:
        if (job.status, job.reason) != ("failed", REASONS[kind]):
            yield f"{job} must fail with {REASONS[kind]}, and is {job.status} ({job.reason})"
    elif kind != "cancelled" and job.status != "succeeded":
        yield f"{job} must succeed, and is {job.status} ({job.reason}): {job.outcomes}"
    if job.status == "succeeded" and kind != "charge" and job.result != number:
        yield f"{job} returned {job.result!r} instead of {number}"


def _keys(facts: Facts) -> Iterator[str]:
    jobs = Counter((job.task, job.key) for job in facts.jobs.values() if job.key is not None)
    runs = Counter((run.pipeline, run.key) for run in facts.runs.values() if run.key is not None)
    for (what, key), times in (jobs + runs).items():
        if times > 1:
            yield f"the key {key} of {what} names {times}"


def _cancelled(facts: Facts) -> Iterator[str]:
    for entry in facts.told("cancelled"):
        job = facts.jobs.get(entry["job"])
        if entry["done"] and job is not None and job.status != "cancelled":
            yield f"{job} was cancelled, and is {job.status}"
