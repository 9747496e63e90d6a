"""Pipelines: a fan that is gathered again, a diamond, one that waits for a word, one of child runs; some steps fail."""

from __future__ import annotations

import random
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from penstock.context import current
from penstock.errors import PenstockError
from penstock.pipelines.define.graph import wait_for
from penstock.values.retry import Retry
from tests.simulation import virtual
from tests.simulation.workloads import Act

if TYPE_CHECKING:
    from penstock.app import Penstock
    from tests.simulation.hosts import ClientHost
    from tests.simulation.story import Story

SOON = Retry(max=2, delay=1, factor=2, jitter=0.5)
PIPELINES = ("fan", "fan", "diamond", "diamond", "nested")
WORD = 7
FATAL = 3
"""The number that no step can double."""
TERMINAL = ("succeeded", "failed", "halted", "cancelled", "skipped")
RUNS = """
SELECT id, pipeline, args, status, run_key FROM penstock_runs
WHERE pipeline IN ('fan', 'diamond', 'asked', 'nested')
"""
OPEN_STEPS = """
SELECT j.run_id, j.node, j.path, s.status FROM penstock_jobs j JOIN penstock_job_states s ON s.job_id = j.id
WHERE j.run_id IS NOT NULL AND s.status NOT IN ('succeeded', 'failed', 'cancelled', 'skipped')
"""
TWICE = "SELECT run_id, node, path FROM penstock_jobs WHERE run_id IS NOT NULL GROUP BY 1, 2, 3 HAVING COUNT(*) > 1"


class Stumbled(Exception):
    """What a step raises on purpose."""


class Runs:
    """The workload."""

    def __init__(self, asked: float = 0.3, known: Sequence[str] = PIPELINES, most: int = 3) -> None:
        self.asked = asked
        """How often there is a run that waits for a word."""
        self.known = known
        self.most = most

    name = "runs"
    often = 2
    unfinished = f"SELECT COUNT(*) FROM penstock_runs WHERE status NOT IN {TERMINAL}"

    def prepare(self, connection: sqlite3.Connection) -> None:
        """Nothing of its own."""

    def declare(self, app: Penstock) -> None:
        many = app.task(name="many", retries=SOON)(_many)
        double = app.task(name="double", retries=SOON)(_double)
        total = app.task(name="total", retries=SOON)(_total)
        same = app.task(name="same", retries=SOON)(_same)
        pair = app.task(name="pair", retries=SOON)(_pair)

        def fan(count: int) -> Any:
            return total(double.map(many(count)).collect())

        def diamond(count: int) -> Any:
            number = same(count)
            return pair(double(number), same(number))

        def asked(count: int) -> Any:
            return pair(wait_for("word", after=[same(count)]), same(count))

        def part(number: int) -> Any:
            return same(number)

        part_of = app.pipeline(name="part")(part)

        def nested(count: int) -> Any:
            return pair(part_of(same(count)), part_of(same(same(count))))

        app.pipeline(name="nested")(nested)
        app.pipeline(name="asked")(asked)
        app.pipeline(name="fan")(fan)
        app.pipeline(name="diamond")(diamond)

    def fill(self, connection: sqlite3.Connection, rng: random.Random) -> Sequence[str]:
        return ()

    def script(self, rng: random.Random) -> Sequence[Act]:
        acts: list[Act] = []
        for _ in range(rng.randint(1, self.most)):
            key = rng.choice([None, None, "key-a", "key-b"])
            act = _trigger(rng.choice(self.known), rng.randint(0, 5), key, rng.random() < 0.2)
            acts += [act] * (rng.choice([1, 2]) if key else 1)
        if rng.random() < self.asked:
            acts.append(_ask(rng.randint(0, 5), rng.choice([0.0, 0.5, 3.0])))
        return acts

    def check(self, story: Story) -> list[str]:
        return [*_check_runs(story), *_check_steps(story)]


def _trigger(name: str, count: int, key: str | None, regret: bool) -> Act:
    def act(client: ClientHost) -> None:
        pipeline = client.app.pipelines[name]
        try:
            run = (pipeline.options(key=key) if key else pipeline).trigger(count)
            client.world.record("triggered", run.id, name, key)
            if regret:
                client.world.sleep(1.0)
                client.world.record("asks run cancel", run.id)
                run.cancel(grace=2)
        except PenstockError as error:
            client.world.note(client.name, f"gave up: {error}")

    return act


def _ask(count: int, gap: float) -> Act:
    """Trigger a run and give it the word that it waits for, however often that takes."""

    def act(client: ClientHost) -> None:
        while True:
            try:
                run = client.app.pipelines["asked"].options(key="asked").trigger(count)
                client.world.record("triggered", run.id, "asked", "asked")
                client.world.sleep(gap)
                run.signal("word", WORD)
                return
            except PenstockError as error:
                client.world.note(client.name, f"tries again: {error}")
                if "there is no" in str(error):
                    return  # it has had its word, and is gone
                client.world.sleep(1.0)

    return act


def _observed(work: Callable[[], Any]) -> Any:
    """Do it, and tell the history."""
    world, job = virtual.here(), current()
    facts = (job.id, job.attempt, job._claim.token)
    world.record("began", *facts)
    try:
        world.sleep(0.2)
        value = work()
    except Exception as error:
        world.record("raised", *facts, type(error).__name__)
        raise
    world.record("returned", *facts, value)
    return value


def _many(count: int) -> list[int]:
    return _observed(lambda: list(range(count)))  # type: ignore[no-any-return]


def _double(number: int) -> int:
    def work() -> int:
        if number == FATAL or current().retry_count < number % 2:
            raise Stumbled
        return 2 * number

    return _observed(work)  # type: ignore[no-any-return]


def _total(numbers: list[int]) -> int:
    return _observed(lambda: sum(place * number for place, number in enumerate(numbers)))  # type: ignore[no-any-return]


def _same(number: int) -> int:
    return _observed(lambda: number)  # type: ignore[no-any-return]


def _pair(first: int, second: int) -> list[int]:
    return _observed(lambda: [first, second])  # type: ignore[no-any-return]


def _check_runs(story: Story) -> Iterator[str]:
    """Every run ends as its steps must, with the result that they must give; one key names one run."""
    cancelled = {fact[3] for fact in story.facts("asks run cancel")}
    results = _results(story)
    gone = {facts[0] for _, (_, kind, *facts) in story.written() if kind == "runs-"}
    ids: set[object] = set()
    keys: dict[tuple[object, object], object] = {}
    for run_id, pipeline, args, status, key in story.rows(RUNS):
        ids.add(run_id)
        count = from_json(str(args))["count"]
        fatal = {
            "fan": count > FATAL,
            "diamond": count == FATAL,
        }.get(str(pipeline), False)
        if run_id not in cancelled and status != ("halted" if fatal else "succeeded"):
            yield f"run {run_id} of {pipeline}({count}) is {status}"
        expected = _expected(str(pipeline), count)
        if status == "succeeded" and results.get(run_id) != [expected]:
            yield f"run {run_id} of {pipeline}({count}) has the results {results.get(run_id)}"
        if key is not None and keys.setdefault((pipeline, key), run_id) != run_id:
            yield f"key {key} of {pipeline} has made two runs"
    for _, who, _, run_id, pipeline, _ in story.facts("triggered"):
        if run_id not in ids | gone and pipeline in (*PIPELINES, "asked"):
            yield f"{who}: run {run_id} was accepted and is not there"


def _expected(pipeline: str, count: int) -> object:
    match pipeline:
        case "fan":
            return sum(2 * n * n for n in range(count))
        case "diamond":
            return [2 * count, count]
        case "nested":
            return [count, count]
    return [WORD, count]


def _results(story: Story) -> dict[object, list[object]]:
    """What the last step of each run gave: once, if all is well."""
    results: dict[object, list[object]] = defaultdict(list)
    for (job_id, _), (_, _, outcome, output, _) in story.model.executions.items():
        job = story.model.jobs[job_id]
        if outcome == "succeeded" and job.task in ("total", "pair"):
            results[job.run_id].append(from_json(output))
    return results


def _check_steps(story: Story) -> Iterator[str]:
    for run_id, node, path, status in story.rows(OPEN_STEPS):
        yield f"step {node} {path} of {run_id} is still {status} [7]"
    for run_id, node, path in story.rows(TWICE):
        yield f"step {node} {path} of {run_id} exists twice [6]"
