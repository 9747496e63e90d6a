"""Tasks of every temper: they return, raise, time out, snooze, give up, write as they complete, kill their host."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from penstock.context import CurrentJob, current
from penstock.telemetry.fault_points import SimulatedCrash
from penstock.values.outcome import Cancel, Snooze
from penstock.values.retry import Retry
from tests.simulation import virtual
from tests.simulation.workloads import Act
from tests.simulation.workloads.task_checks import check
from tests.simulation.workloads.task_script import script

if TYPE_CHECKING:
    from penstock.app import Penstock
    from tests.simulation.story import Story

EFFECT = text("INSERT INTO sim_effects (job_id, generation) VALUES (:job, :generation)")
SOON = Retry(max=2, delay=1, factor=2, jitter=0.5)


class Flaky(Exception):
    """What a handler raises on purpose."""


class Tasks:
    """The workload."""

    name = "tasks"
    often = 5
    unfinished = "SELECT 0"

    def __init__(self, steers: float = 0.15) -> None:
        self.steers = steers

    def prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE sim_effects (job_id TEXT, generation INTEGER)")
        connection.execute("CREATE TABLE sim_orders (number INTEGER)")
        for table, facts in (("effects", "NEW.job_id, NEW.generation"), ("orders", "NEW.number")):
            connection.execute(
                f"CREATE TRIGGER sim_{table}_told AFTER INSERT ON sim_{table} "
                f"BEGIN SELECT sim_log('{table}', {facts}); END"
            )

    def declare(self, app: Penstock) -> None:
        app.task(name="plain", retries=SOON)(told(plain))
        app.task(name="flaky", retries=SOON)(told(flaky))
        app.task(name="slow", retries=SOON, timeout=1)(told(slow))
        app.task(name="snoozing", retries=SOON)(told(snoozing))
        app.task(name="giving_up", retries=SOON)(told(giving_up))
        app.task(name="writing", retries=SOON, max_crashes=None)(told(writing))
        app.task(name="charging", retries=SOON)(told(charging))
        app.task(name="poison", retries=SOON, max_crashes=2)(told(poison))
        app.task(name="patient", retries=SOON, timeout=20)(told(patient))
        for handler, timeout in ((on_the_loop, None), (on_time, 2), (stubborn, 1), (writing_async, None)):
            app.task(name=handler.__name__, retries=SOON, timeout=timeout)(told_async(handler))

    def fill(self, connection: sqlite3.Connection, rng: random.Random) -> Sequence[str]:
        return ()

    def script(self, rng: random.Random) -> Sequence[Act]:
        return script(rng, self.steers)

    def check(self, story: Story) -> list[str]:
        return check(story)


def told(handler: Callable[[CurrentJob, int, float], Any]) -> Callable[[int, int, float], Any]:
    """A handler whose beginning and end the history is told. `times`: how often it does what it is known for."""

    def run(number: int, times: int, seconds: float) -> Any:
        world, job = virtual.here(), current()
        facts = (job.id, job.attempt, job._claim.token)
        world.record("began", *facts)
        try:
            value = handler(job, times, seconds)
        except Exception as error:
            world.record("raised", *facts, type(error).__name__)
            raise
        world.record("returned", *facts, value if isinstance(value, int) else type(value).__name__)
        return value

    return run


def told_async(handler: Callable[[CurrentJob, int, float], Any]) -> Callable[[int, int, float], Any]:
    """The same for a handler on the event loop."""

    async def run(number: int, times: int, seconds: float) -> Any:
        world, job = virtual.here(), current()
        facts = (job.id, job.attempt, job._claim.token)
        world.record("began", *facts)
        try:
            value = await handler(job, times, seconds)
        except Exception as error:
            world.record("raised", *facts, type(error).__name__)
            raise
        world.record("returned", *facts, value if isinstance(value, int) else type(value).__name__)
        return value

    return run


def _work(seconds: float) -> None:
    """Take so long; once it is calm, what matters is only that it ends."""
    world = virtual.here()
    world.sleep(min(seconds, 0.3) if world.nemesis is not None and world.nemesis.calm else seconds)


def plain(job: CurrentJob, times: int, seconds: float) -> int:
    _work(seconds)
    return job.attempt


def flaky(job: CurrentJob, times: int, seconds: float) -> int:
    _work(seconds)
    if job.retry_count < times:
        raise Flaky
    return job.attempt


def slow(job: CurrentJob, times: int, seconds: float) -> int:
    """A thread cannot be ended: after its timeout it goes on, and must not be heard any more."""
    _work(seconds + 1.5 if job.retry_count < times else seconds / 4)
    return job.attempt


def snoozing(job: CurrentJob, times: int, seconds: float) -> Any:
    return Snooze(min(seconds, 4.0)) if job.attempt <= times else job.attempt


def giving_up(job: CurrentJob, times: int, seconds: float) -> Any:
    _work(seconds)
    return Cancel("enough")


def writing(job: CurrentJob, times: int, seconds: float) -> None:
    _work(seconds)
    with job.transaction() as connection:
        connection.execute(EFFECT, {"job": job.id, "generation": job.attempt})
        if job.retry_count < times:
            raise Flaky
        job.complete(job.attempt)


def charging(job: CurrentJob, times: int, seconds: float) -> Any:
    def charge() -> int:
        virtual.here().record("charged", job.id, job.attempt)
        return job.attempt

    value = job.once("charge", charge)
    virtual.here().record("marked", job.id, value)
    _work(seconds)
    if job.retry_count < times:
        raise Flaky
    return value


def poison(job: CurrentJob, times: int, seconds: float) -> int:
    """Kills the process that runs it."""
    world = virtual.here()
    _work(seconds)
    if job.crash_count < times:
        world.here().owner.crash(f"poison {job.id}")  # type: ignore[attr-defined]
        raise SimulatedCrash("poison")
    return job.attempt


def patient(job: CurrentJob, times: int, seconds: float) -> int:
    """Works in small pieces and looks whether it is still wanted."""
    for _ in range(4):
        _work(seconds / 3)
        if job.cancel_requested or job.lease_lost:
            break
    return job.attempt


async def on_the_loop(job: CurrentJob, times: int, seconds: float) -> int:
    await asyncio.sleep(min(seconds, 4.0))
    if job.retry_count < times:
        raise Flaky
    return job.attempt


async def on_time(job: CurrentJob, times: int, seconds: float) -> int:
    """Takes too long at first, and is ended for it."""
    await asyncio.sleep(seconds + 2 if job.retry_count < times else min(seconds, 1.0))
    return job.attempt


async def stubborn(job: CurrentJob, times: int, seconds: float) -> int:
    """Will not hear of its end, neither by its timeout nor by a stop."""
    for _ in range(2 if job.retry_count < times else 0):
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(4.0 + seconds)
    return job.attempt


async def writing_async(job: CurrentJob, times: int, seconds: float) -> None:
    await asyncio.sleep(min(seconds, 4.0))
    async with job.transaction() as connection:
        await connection.execute(EFFECT, {"job": job.id, "generation": job.attempt})
        if job.retry_count < times:
            raise Flaky
        job.complete(job.attempt)
