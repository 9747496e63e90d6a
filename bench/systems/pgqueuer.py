"""PgQueuer as its guide to performance says: one asyncpg connection for the manager, uvloop, larger batches for
short jobs, its autovacuum settings.
"""

from __future__ import annotations

from typing import Any

import asyncpg
import uvloop
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries

from bench.systems.base import System

BATCH = 500


class PgQueuerSystem(System):
    def run(self, main: Any) -> Any:
        return uvloop.run(main)

    async def install(self) -> None:
        await self.open()
        await self.queries.install()
        await self.queries.optimize_autovacuum()

    async def open(self) -> None:
        self.connection = await asyncpg.connect(self.url)
        self.queries = Queries(AsyncpgDriver(self.connection))

    async def enqueue_many(self, count: int) -> None:
        payloads: list[bytes | None] = [b"0"] * count
        await self.queries.enqueue(["noop"] * count, payloads, [0] * count)

    async def enqueue(self, task: str, number: int) -> None:
        await self.queries.enqueue(task, str(number).encode())

    async def work(self) -> None:
        manager = QueueManager(Queries(AsyncpgDriver(await asyncpg.connect(self.url))))

        @manager.entrypoint("noop")
        async def noop(job: Job) -> None:
            await self.do_noop(int(job.payload or 0))

        @manager.entrypoint("mark")
        async def mark(job: Job) -> None:
            await self.do_mark(int(job.payload or 0))

        @manager.entrypoint("nap")
        async def nap(job: Job) -> None:
            await self.do_nap(int(job.payload or 0))

        @manager.entrypoint("step")
        async def step(job: Job) -> None:
            await self.do_step(int(job.payload or 0))

        await manager.run(batch_size=self.options.get("batch", BATCH))
