"""Tasks with limits: one at a time for a key, a rate, several at once and shared; with errors, kills, cancellations."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.context import CurrentJob
from penstock.values.limits import Concurrency, Rate
from tests.simulation import limit_model
from tests.simulation.workloads import Act
from tests.simulation.workloads.task_script import Ids, after, enqueue, steer
from tests.simulation.workloads.tasks import SOON, Flaky, flaky, plain, poison, snoozing, told, told_async

if TYPE_CHECKING:
    from penstock.app import Penstock
    from tests.simulation.story import Story

KINDS = ("narrow", "narrow", "paired", "crowded", "slim", "slim", "resting")


async def slim(job: CurrentJob, times: int, seconds: float) -> None:
    """Ends in a transaction of its own, or is ended before."""
    await asyncio.sleep(seconds)
    async with job.transaction():
        await asyncio.sleep(seconds / 4)
        if job.retry_count < times:
            raise Flaky
        job.complete(job.attempt)


def account(call: Mapping[str, Any]) -> int:
    return int(call["number"]) % 2


class Limits:
    """The workload."""

    name = "limits"
    often = 3
    unfinished = "SELECT COUNT(*) FROM penstock_parked"

    def prepare(self, connection: sqlite3.Connection) -> None:
        """It has no tables of its own."""

    def declare(self, app: Penstock) -> None:
        app.task(name="narrow", retries=SOON, limits=[Concurrency(1, key=account)])(told(plain))
        app.task(name="paired", retries=SOON, limits=[Concurrency(2, name="both"), Rate(2, per=3)])(
            told(flaky)
        )
        crowded = [Rate(3, per=2, key=account), Concurrency(2, name="both"), Concurrency(1)]
        app.task(name="slim", retries=SOON, timeout=2, limits=[Concurrency(1, key=account)])(told_async(slim))
        app.task(name="resting", retries=SOON, limits=[Rate(2, per=2), Concurrency(1)])(told(snoozing))
        app.task(name="crowded", retries=SOON, max_crashes=2, limits=crowded)(told(poison))

    def fill(self, connection: sqlite3.Connection, rng: random.Random) -> Sequence[str]:
        return ()

    def script(self, rng: random.Random) -> Sequence[Act]:
        ids: Ids = {}
        acts: list[Act] = []
        for number in range(rng.randint(3, 9)):
            kind = rng.choice(KINDS)
            args = (number, rng.choice([0, 0, 0, 1]), rng.choice([0.0, 0.01, 0.2, 1.0, 4.0]))
            options = {"priority": rng.choice([0, 0, 5])}
            acts.append(enqueue(kind, args, options, ids))
            if rng.random() < 0.2:
                acts.append(steer(rng.choice(["cancel", "cancel", "retry"]), rng.randint(0, number), ids))
        gaps = [rng.choice([0.0, 0.0, 0.0, 0.1, 1.0]) for _ in acts]
        return [after(gap, act) for gap, act in zip(gaps, acts, strict=True)]

    def check(self, story: Story) -> list[str]:
        return list(limit_model.check(story))
