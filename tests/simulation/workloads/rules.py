"""Keys that are unique for a while, replaced jobs, jobs that expire, callbacks and followers."""

from __future__ import annotations

import random
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from penstock.context import current
from tests.simulation import virtual
from tests.simulation.hosts import ClientHost
from tests.simulation.workloads import Act
from tests.simulation.workloads.task_script import after
from tests.simulation.workloads.tasks import SOON, flaky, told

if TYPE_CHECKING:
    from penstock.app import Penstock
    from tests.simulation.story import Story

JOBS = """
SELECT j.id, j.task, j.job_key, j.payload, j.created_at, s.status, s.reason, s.finished_at
FROM penstock_jobs j JOIN penstock_job_states s ON s.job_id = j.id
WHERE j.task IN ('single', 'latest', 'brief', 'called', 'heard', 'after') ORDER BY j.created_at, s.finished_at
"""
LEFT = "SELECT COUNT(*) FROM penstock_job_followers"


class Rules:
    """The workload."""

    name = "rules"
    often = 3
    unfinished = "SELECT 0"

    def prepare(self, connection: sqlite3.Connection) -> None:
        """Nothing of its own."""

    def declare(self, app: Penstock) -> None:
        app.task(name="single", retries=SOON, max_crashes=None)(told(flaky))
        app.task(name="brief", retries=SOON, max_crashes=None, expires=2)(told(flaky))
        app.task(name="after", retries=SOON, max_crashes=None)(told(flaky))
        app.task(name="latest", retries=SOON, max_crashes=None)(latest)
        heard = app.task(name="heard", retries=SOON, max_crashes=None)(hear)
        app.task(name="called", retries=SOON, on_success=heard, on_failure=heard)(told(flaky))

    def fill(self, connection: sqlite3.Connection, rng: random.Random) -> Sequence[str]:
        return ()

    def script(self, rng: random.Random) -> Sequence[Act]:
        acts = [_act(rng, number) for number in range(rng.randint(4, 12))]
        gaps = [rng.choice([0.0, 0.0, 0.1, 0.5, 2.0]) for _ in acts]
        return [after(gap, act) for gap, act in zip(gaps, acts, strict=True)]

    def check(self, story: Story) -> list[str]:
        return list(_check(story))


def latest(number: int, times: int, seconds: float) -> Any:
    """Tells with which arguments it runs."""
    virtual.here().record("runs with", current().id, number)
    return told(flaky)(number, times, seconds)


def hear(job_id: str, status: str) -> None:
    """Tells of whom it has heard."""
    world, job = virtual.here(), current()
    facts = (job.id, job.attempt, job._claim.token)
    world.record("began", *facts)
    world.record("hears of", job.id, job_id, status)
    world.record("returned", *facts, "NoneType")


def _act(rng: random.Random, number: int) -> Act:
    args = (number, rng.choice([0, 0, 1, 3]), rng.choice([0.0, 0.2, 2.0]))
    kind = rng.choice(["single", "single", "latest", "latest", "brief", "called", "after"])
    options: dict[str, Any] = {"queue": rng.choice(["mail", "default"])}
    if rng.random() < 0.3:
        options["delay"] = rng.choice([0.5, 3.0])
    if kind == "single":
        options |= {"key": f"one-{rng.randint(0, 1)}", "unique": "while_pending"}
    elif kind == "latest":
        options |= {"key": f"last-{rng.randint(0, 1)}", "on_conflict": "replace"}

    def act(client: ClientHost) -> None:
        job = client.app.tasks[kind].options(**options).enqueue(*args)
        client.world.record("accepted", job.id, kind, options.get("key"))
        if kind == "after":
            job.then(client.app.tasks["after"], *args)

    return act


def _check(story: Story) -> Iterator[str]:
    rows = story.rows(JOBS)
    kept = not any(True for _ in story.facts("prunes")) and not any(fact[3] for fact in story.facts("keeps"))
    yield from _one_at_a_time(rows)
    ran = defaultdict(set)
    for fact in story.facts("runs with"):
        ran[fact[3]].add(fact[4])
    began = {fact[3] for fact in story.facts("began")}
    heard = defaultdict(set)
    for fact in story.facts("hears of"):
        heard[fact[4]].add((fact[3], fact[5]))
    for id, task, _key, payload, _created, status, reason, _finished in rows:
        number = from_json(str(payload)).get("number")
        if task == "latest" and ran[id] - {number}:
            yield f"{id} was replaced by {number}, and ran with {sorted(ran[id])}"
        if reason == "expired" and id in began:
            yield f"{id} has expired, and was run"
        told = {how for _, how in heard[id]} == {status} and len({job for job, _ in heard[id]}) == 1
        if task == "called" and kept and status in ("succeeded", "failed") and not told:
            yield f"{id} is {status}, and its callbacks have heard {heard[id]}"
        if status == "waiting":
            yield f"{id} waits for a job that is over"
    if story.rows(LEFT) != [(0,)]:
        yield "there are followers of jobs that are over"


def _one_at_a_time(rows: Sequence[Sequence[Any]]) -> Iterator[str]:
    """A job with a key that is unique while it is pending is made when the one before it is over, and not before.

    By the times of the database: ids are made by clients, whose clocks differ.
    """
    before: dict[str, Sequence[Any]] = {}
    for row in rows:
        if row[1] == "single":
            known = before.get(row[2])
            if known is not None and (known[7] is None or known[7] > row[4]):
                yield f"{row[0]} was made while {known[0]} had the key {row[2]}"
            before[row[2]] = row
