"""Runs: all over, ended as their steps must, joins fired once with their inputs in order, callbacks told once."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.chaos import plan
from tests.chaos.facts import Facts, Job, Run

TERMINAL = ("succeeded", "failed", "cancelled", "skipped")
BAD = ("failed", "halted")
SAME_MOMENT = 1_000_000
TOLD_OF_BAD_ENDS = ("halting", "continuing", "ignoring", "optional")


def runs(facts: Facts) -> Iterator[str]:
    steps = facts.steps()
    for run in facts.runs.values():
        open_steps = [step for step in steps[run.id] if step.status not in TERMINAL]
        if run.ended_at is None:
            yield f"{run} is {run.status} when all is over"
        elif open_steps:
            yield f"{run} is over, and its step {open_steps[0]} is {open_steps[0].status}"
        yield from _made_twice(run, steps[run.id])
    for entry in facts.told("accepted"):
        if entry["kind"] in plan.RUNS and entry["ids"][0] in facts.runs:
            run = facts.runs[entry["ids"][0]]
            yield from _ending(facts, run, entry["kind"], entry["number"], steps[run.id])
    yield from _joins(facts)
    yield from _callbacks(facts)
    yield from _chains(facts)
    yield from _signals(facts)


def _made_twice(run: Run, steps: list[Job]) -> Iterator[str]:
    for (node, path), times in Counter((step.node, step.path) for step in steps).items():
        if times > 1:
            yield f"{run} has {times} steps {node} {path}"


def _ending(facts: Facts, run: Run, kind: str, number: int, steps: list[Job]) -> Iterator[str]:
    wanted = plan.RUN_STATUS.get(kind, "succeeded")
    if run.status != wanted:
        yield f"{run} ({kind} {number}) must end {wanted}, and is {run.status}"
        return
    values = [plan.finished(kind, number, signalled) for signalled in _signalled(facts, run, steps)]
    results = [step.result for step in steps if step.task == plan.last_step(kind)]
    if values != [None] and results not in [[value] for value in values]:
        yield f"{run} ({kind} {number}) must have the value {values[0]}, and has {results}"


def _signalled(facts: Facts, run: Run, steps: list[Job]) -> list[bool]:
    """Whether the signal was recorded before the step stopped waiting; in the same moment, either is right."""
    waits = [step.finished_at or 0 for step in steps if step.task not in ("modulo", "finish")]
    if run.id not in facts.signals or not waits:
        return [False]
    early = waits[0] - facts.signals[run.id]
    return [True, False] if abs(early) < SAME_MOMENT else [early > 0]


def _joins(facts: Facts) -> Iterator[str]:
    """Whatever was killed on the way, a fan-in was given the same values, in order, each time it was run."""
    accepted = {id: entry for entry in facts.told("accepted") for id in entry["ids"]}
    for entry in facts.told("join"):
        begun = accepted.get(entry["run"])
        if begun is None:
            continue
        wanted = plan.gathered(begun["number"], plan.width_of(begun["kind"], begun["number"]))
        if entry["values"] != wanted:
            yield f"a join of run {entry['run']} was given {entry['values']} instead of {wanted}"


def _callbacks(facts: Facts) -> Iterator[str]:
    told: dict[str, Counter[str]] = defaultdict(Counter)
    for job in facts.jobs.values():
        if job.task in ("completed", "ended_badly"):
            told[job.task][job.payload["run_id"]] += 1
            if job.payload["status"] != facts.runs[job.payload["run_id"]].status:
                yield f"{job} was told that its run is {job.payload['status']}"
    for run in facts.runs.values():
        bad = run.status in BAD and run.pipeline in TOLD_OF_BAD_ENDS
        for task, wanted in (("completed", int(run.ended_at is not None)), ("ended_badly", int(bad))):
            if told[task][run.id] != wanted:
                yield f"{run} ({run.status}) has told {task} {told[task][run.id]} times"


def _chains(facts: Facts) -> Iterator[str]:
    tries = Counter(entry["run"] for entry in facts.told("chaining"))
    following = Counter(up for up, _ in facts.chains)
    for up, down in facts.chains:
        wanted = "succeeded" if facts.runs[up].status == "succeeded" else "skipped"
        if facts.runs[down].status != wanted:
            yield f"{facts.runs[down]} follows one that is {facts.runs[up].status}, and is {facts.runs[down].status}"
    for entry in facts.told("chained"):
        if (entry["run"], entry["following"]) not in facts.chains:
            yield f"lost: run {entry['following']} was to follow run {entry['run']}"
    for up, times in following.items():
        if times > tries[up]:
            yield f"run {up} is followed by {times} runs, and was asked for {tries[up]}"


def _signals(facts: Facts) -> Iterator[str]:
    for entry in facts.told("signalled"):
        if entry["given"] and entry["run"] not in facts.signals:
            yield f"lost: the signal to run {entry['run']}"
