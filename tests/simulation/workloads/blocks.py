"""Blocks that are left too early: async handlers and callers that are cancelled in `transaction()`, `once()`, `lock()`.

Every handler here has a timeout about as long as what it does, so that its end comes at any of its awaits. Callers
hang up when their patience ends.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sqlalchemy import ForeignKey, text
from sqlalchemy.dialects import sqlite
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.schema import CreateTable

from penstock import Reconcilable
from penstock.context import CurrentJob
from penstock.values.outcome import Snooze
from tests.simulation import virtual
from tests.simulation.server import time_text
from tests.simulation.workloads import Act
from tests.simulation.workloads.callers import Ids, announced, calling, lock, patiently
from tests.simulation.workloads.task_checks import effects, markers
from tests.simulation.workloads.tasks import SOON, Flaky, told_async
from tests.simulation.world import SECOND, START

if TYPE_CHECKING:
    from penstock.app import Penstock
    from tests.simulation.hosts import ClientHost
    from tests.simulation.story import Story

RECEIPT = text("INSERT INTO sim_receipts (job_id, generation) VALUES (:job, :generation)")
PASSAGE = text("INSERT INTO sim_passages (job_id, generation, gate) VALUES (:job, :generation, :gate)")
GATES = 2
TIMEOUT = 2
WRITING = ("entering", "unawaited", "deaf")
"""They complete with what they write."""
KINDS = (*WRITING, "marking", "passing", "dozing")
OFTEN = (5, 3, 2, 4, 5, 1)
SECONDS = (0.0, 0.0, 0.01, 0.2, 0.7, 1.5)


class Base(DeclarativeBase):
    pass


class Gate(Base, Reconcilable):
    """A gate that all callers want to pass, one at a time."""

    __tablename__ = "sim_gates"
    id: Mapped[int] = mapped_column(primary_key=True)


class Passage(Base):
    __tablename__ = "sim_passages"
    gate: Mapped[int] = mapped_column(ForeignKey("sim_gates.id"))
    job_id: Mapped[str] = mapped_column(primary_key=True)
    generation: Mapped[int] = mapped_column(primary_key=True)


class Blocks:
    """The workload."""

    name = "blocks"
    often = 3
    unfinished = "SELECT 0"

    def prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE sim_receipts (job_id TEXT, generation INTEGER)")
        for model in (Gate, Passage):
            connection.execute(str(CreateTable(model.__table__).compile(dialect=sqlite.dialect())))  # type: ignore[arg-type]
        for table in ("receipts", "passages"):
            connection.execute(
                f"CREATE TRIGGER sim_{table}_told AFTER INSERT ON sim_{table} "
                f"BEGIN SELECT sim_log('{table}', NEW.job_id, NEW.generation); END"
            )

    def declare(self, app: Penstock) -> None:
        for handler in (entering, unawaited, deaf, marking, passing, dozing):
            app.task(name=handler.__name__, retries=SOON, timeout=TIMEOUT, max_crashes=None)(
                told_async(handler)
            )

    def fill(self, connection: sqlite3.Connection, rng: random.Random) -> Sequence[str]:
        """One gate is free. The other is held for a while, by a process that is not there."""
        until = time_text(START + rng.choice([0, 4, 15]) * SECOND)
        rows = [(0, None, None), (1, until, rng.getrandbits(40))]
        connection.executemany(
            "INSERT INTO sim_gates (id, lock_expires_at, lock_token) VALUES (?, ?, ?)", rows
        )
        return ()

    def script(self, rng: random.Random) -> Sequence[Act]:
        ids: Ids = {}
        acts: list[Act] = []
        for number in range(rng.randint(2, 6)):
            kind = rng.choices(KINDS, OFTEN)[0]
            args = (number, rng.choice([0, 0, 0, 1, 3]), rng.choice(SECONDS))
            acts.append(calling(rng, "enqueue", number, ids, kind, args))
            if rng.random() < 0.4:
                verb = rng.choice(["cancel", "cancel", "retry", "discard", "result", "bury", "raise"])
                acts.append(calling(rng, verb, rng.randint(0, number), ids))
            if rng.random() < 0.3:
                acts.append(patiently(rng, _pass(rng.randrange(GATES), rng.choice(SECONDS))))
        rng.shuffle(acts)
        return acts

    def check(self, story: Story) -> list[str]:
        return [
            *effects(story, "receipts", WRITING),
            *_passages(story),
            *markers(story),
            *announced(story, "sim_gates"),
        ]


def _pass(gate: int, seconds: float) -> Any:
    async def call(client: ClientHost) -> None:
        number = client.world.rng.randrange(1 << 40)
        async with lock(client.app, Gate, gate, 3.0) as connection:
            await asyncio.sleep(seconds)
            await connection.execute(PASSAGE, {"job": f"call-{number}", "generation": 1, "gate": gate})
        client.world.record("passed", f"call-{number}")

    return call


# what handlers do


async def entering(job: CurrentJob, times: int, seconds: float) -> None:
    """Awaits at every place there is."""
    await asyncio.sleep(seconds)
    async with job.transaction() as connection:
        await asyncio.sleep(seconds / 4)
        await connection.execute(RECEIPT, {"job": job.id, "generation": job.attempt})
        if job.retry_count < times:
            raise Flaky
        await asyncio.sleep(seconds / 4)
        job.complete(job.attempt)
    await asyncio.sleep(seconds)


async def unawaited(job: CurrentJob, times: int, seconds: float) -> None:
    """What it sends is awaited by the end of the block only."""
    await asyncio.sleep(seconds)
    async with job.transaction() as connection:
        connection.scalar(text("SELECT 1"))
        connection.execute(RECEIPT, {"job": job.id, "generation": job.attempt})
        if job.retry_count < times:
            raise Flaky
        job.complete(job.attempt)


async def deaf(job: CurrentJob, times: int, seconds: float) -> None:
    """Will not hear of its end as long as it is in the block."""
    async with job.transaction() as connection:
        if job.retry_count < times:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(TIMEOUT + seconds)
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(seconds)
        await connection.execute(RECEIPT, {"job": job.id, "generation": job.attempt})
        job.complete(job.attempt)


async def marking(job: CurrentJob, times: int, seconds: float) -> Any:
    async def mark() -> int:
        await asyncio.sleep(seconds)
        return job.attempt

    value = await job.once("mark", mark)
    virtual.here().record("marked", job.id, value)
    await asyncio.sleep(seconds)
    if job.retry_count < times:
        raise Flaky
    return value


async def passing(job: CurrentJob, times: int, seconds: float) -> int:
    gate = job.attempt % GATES
    async with lock(job._host, Gate, gate, 1.5) as connection:
        await asyncio.sleep(seconds / 4)
        await connection.execute(PASSAGE, {"job": job.id, "generation": job.attempt, "gate": gate})
        if job.retry_count < times:
            raise Flaky
    return job.attempt


async def dozing(job: CurrentJob, times: int, seconds: float) -> Any:
    await asyncio.sleep(seconds)
    return Snooze(seconds) if job.attempt <= times else job.attempt


# what must have come of it


def _passages(story: Story) -> Iterator[str]:
    """A caller that has left the block in order has written; one that has not, once at most, if the answer was lost."""
    written: dict[tuple[str, int], int] = defaultdict(int)
    for _, (_, kind, *facts) in story.written():
        if kind == "passages":
            written[facts[0], facts[1]] += 1
    jobs = story.model.jobs
    left = [(fact[3], 1) for fact in story.facts("passed")]
    left += [
        attempt
        for attempt, (how, _) in story.model.ended.items()
        if how == "returned" and jobs[attempt[0]].task == "passing"
    ]
    for job, attempt in left:
        if written[job, attempt] != 1:
            yield f"attempt {attempt} of {job} has left its block, and has written {written[job, attempt]} times"
