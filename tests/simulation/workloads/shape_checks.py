"""How runs of random shape must have ended: as the reference interpreter says, step by step and value by value."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json

from penstock.pipelines.model.compatibility import dependants
from penstock.pipelines.model.definition import Definition, NodeKind
from penstock.pipelines.model.expressions import Path, path_of
from penstock.pipelines.model.wiring import wiring_of
from tests.pure.pipelines.machine import Boom
from tests.pure.pipelines.reference import BLOCKED, PRUNED, RAN, End, Reference
from tests.simulation.story import Story
from tests.simulation.workloads.shape_author import LATE, breaks, plain, program, signalled

RUNS = """
SELECT r.id, r.status, r.revived_from, d.text, r.forked_from, r.only_step FROM penstock_runs r
JOIN penstock_definitions d ON d.hash = r.definition WHERE r.pipeline LIKE 'shape-%'
"""
STEPS = """
SELECT j.run_id, j.id, j.node, j.path, s.status, s.reason FROM penstock_jobs j
JOIN penstock_job_states s ON s.job_id = j.id WHERE j.run_id IS NOT NULL AND j.node NOT LIKE '@%'
"""
WINNERS = "SELECT run_id, node, path, winner FROM penstock_joins WHERE winner IS NOT NULL"
CHAINED = """
SELECT c.downstream_id, r.status, u.status FROM penstock_chains c
JOIN penstock_runs r ON r.id = c.downstream_id JOIN penstock_runs u ON u.id = c.upstream_id
"""

Step = tuple[str, str | None, object]
"""Status, reason, output."""


@dataclass(slots=True)
class Ended:
    """A run that is over, with its steps by place."""

    id: str
    status: str
    revived: str | None
    """The run whose finished work it keeps."""
    definition: Definition
    forked_at: str | None = None
    """The step from which all is redone, if it is a fork."""
    steps: dict[tuple[str, Path], Step] = field(default_factory=dict)
    winners: dict[tuple[str, Path], str] = field(default_factory=dict)
    kept: dict[tuple[str, Path], object] = field(default_factory=dict)
    """What was kept has the value that it had, although another input may come first this time."""
    before: set[tuple[str, Path]] = field(default_factory=set)
    """The places of steps in the runs before it. A child that is continued keeps what had ended there, too."""


def check(story: Story) -> list[str]:
    wrong: list[str] = []
    meddled = _meddled(story)
    for run in _runs(story):
        if run.id in meddled:
            continue  # who cancels a step by itself decides what comes of it
        reference = Reference(run.definition, _outcome(run, story.seed), {"given": "hello"}, _winner(run))
        wrong += [f"run {run.id}: {what}" for what in _judged(run, reference)]
        result = story.hosts[-1].app.run(run.id).result(timeout=0) if run.status == "succeeded" else None
        if run.status == "succeeded" and plain(result) != plain(reference.result):
            wrong.append(f"run {run.id}: its result is {result} and should be {reference.result}")
    wrong += _misjudged_forks(story, meddled)
    for down, status, up_status in story.rows(CHAINED):
        if (status == "skipped") == (up_status == "succeeded"):
            wrong.append(f"run {down} follows one that {up_status}, and is {status}")
    return wrong


def _misjudged_forks(story: Story, meddled: set[object]) -> Iterator[str]:
    """Steps of forks that were to be done again and were not, and those that were to be kept and were done."""
    runs = {run.id: run for run in _runs(story)}
    jobs = {
        (str(run), str(node), path_of(str(path or ""))): str(job)
        for run, job, node, path, _, _ in story.rows(STEPS)
    }
    done = {str(fact[3]) for fact in story.facts("returned")}
    for run in runs.values():
        old = runs.get(run.revived or "")
        if run.forked_at is None or old is None or run.id in meddled:
            continue
        redone = {run.forked_at, *dependants(wiring_of(run.definition.text), run.forked_at)}
        for (node, path), (status, _, _) in run.steps.items():
            if run.definition.by_key[node].kind is not NodeKind.TASK or status != "succeeded":
                continue
            is_done = jobs[run.id, node, path] in done
            if node in redone and not is_done:
                yield f"fork {run.id} at {run.forked_at}: step {node} {path} was not done again"
            before = old.steps.get((node, path), ("", None, None))[0]
            if node not in redone and is_done and before == "succeeded":
                yield f"fork {run.id} at {run.forked_at}: step {node} {path} was done again"


def _meddled(story: Story) -> set[object]:
    """Runs of which something was cancelled by itself, and those that continue them."""
    meddled = {fact[3] for fact in story.facts("meddled")}
    for _, _, _, old, new in story.facts("revived"):
        if old in meddled:
            meddled.add(new)
    return meddled


def _runs(story: Story) -> list[Ended]:
    runs = {
        str(id): Ended(
            str(id),
            str(status),
            None if revived is None else str(revived),
            Definition.from_text(str(text)),
            None if forked is None else str(only),
        )
        for id, status, revived, text, forked, only in story.rows(RUNS)
    }
    outputs = _outputs(story)
    for run, job, node, path, status, reason in story.rows(STEPS):
        if run in runs:
            at = (str(node), path_of(str(path or "")))
            runs[str(run)].steps[at] = (
                str(status),
                None if reason is None else str(reason),
                outputs.get(str(job)),
            )
    for run, node, path, winner in story.rows(WINNERS):
        if run in runs:
            runs[str(run)].winners[str(node), path_of(str(path or ""))] = str(winner)
    for ended in runs.values():
        ended.before = {at for past in _past(ended, runs) for at in past.steps}
        before = runs[ended.revived].steps if ended.revived in runs else {}
        ended.kept = {
            at: step[2]
            for at, step in ended.steps.items()
            if step[0] == "succeeded" and before.get(at) == step
        }
    return list(runs.values())


def _past(run: Ended, runs: Mapping[str, Ended]) -> Iterator[Ended]:
    while (earlier := runs.get(run.revived or "")) is not None:
        yield earlier
        run = earlier


def _outputs(story: Story) -> dict[str, object]:
    outputs: dict[str, object] = defaultdict(lambda: None)
    for (job, _), (_, _, outcome, output, _) in story.model.executions.items():
        if outcome == "succeeded" and output is not None:
            outputs[job] = from_json(output)
    return outputs


def _judged(run: Ended, reference: Reference) -> Iterator[str]:
    complete = run.status in ("succeeded", "failed") and not run.revived
    if complete:
        places = set(reference.steps())
        for at in sorted(places ^ set(run.steps)):
            yield f"step {at} {'is missing' if at in places else 'should not be there'} [6]"
    for at, (status, _reason, output) in run.steps.items():
        end = reference.end(*at)
        expected = _status(end)
        if status != expected and (complete or status in ("succeeded", "failed")):
            yield f"step {at} is {status} and should be {expected} [5]"
        elif status == "succeeded" and output != end.value:
            yield f"step {at} gave {output} and should give {end.value} [6]"


def _status(end: End) -> str:
    if end.failed:
        return "failed"
    return {RAN: "succeeded", BLOCKED: "skipped", PRUNED: "skipped"}[end.how]


def _outcome(run: Ended, seed: int) -> Any:
    made = program(run.definition, seed)
    kinds = run.definition.by_key

    def outcome(node: str, path: Path, args: list[object], kwargs: dict[str, object]) -> object:
        if (node, path) in run.kept:
            return run.kept[node, path]
        match kinds[node].kind:
            case NodeKind.WAIT:
                late = run.steps.get((node, path), ("", None, None))[2] == LATE
                return LATE if late else signalled(kinds[node].target)
            case NodeKind.CHILD:
                if _breaks(run, seed, (node, path), args[0]):
                    raise Boom
                return run.steps[node, path][2] if (node, path) in run.steps.keys() & run.before else args[0]
        return made.outcome(node, path, args, kwargs)

    return outcome


def _breaks(run: Ended, seed: int, at: tuple[str, Path], given: object) -> bool:
    """A fragile child, as long as it is not revived; whether it is, depends on who has revived what before."""
    if run.revived:
        return run.steps.get(at, ("", None, None))[0] == "failed"
    return run.definition.by_key[at[0]].target == "fragile" and breaks(seed, given)


def _winner(run: Ended) -> Any:
    return lambda node, path: run.winners.get((node, path))
