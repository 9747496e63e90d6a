"""Chancy with its asyncio executor, eager polling, and a short flush of outcomes."""

from __future__ import annotations

import asyncio

from chancy import Chancy, Queue, Worker, job

from bench.systems.base import System

CONCURRENCY = 1000
FLUSH = 0.05
systems: list[ChancySystem] = []
"""Its jobs are found by their module's name: the one system of this process, for them."""


class ChancySystem(System):
    async def install(self) -> None:
        async with Chancy(self.url) as app:
            await app.migrate()
            await app.declare(
                Queue(
                    name="default",
                    concurrency=self.options.get("concurrency", CONCURRENCY),
                    executor=Chancy.Executor.Async,
                    polling_interval=1,
                    eager_polling=True,
                )
            )

    async def open(self) -> None:
        systems.append(self)
        self.app = Chancy(self.url)
        await self.app.__aenter__()

    async def enqueue_many(self, count: int) -> None:
        jobs = [noop.job.with_kwargs(number=number) for number in range(count)]
        async for _ in self.app.push_many(jobs):
            pass

    async def enqueue(self, task: str, number: int) -> None:
        await self.app.push(TASKS[task].job.with_kwargs(number=number))

    async def work(self) -> None:
        async with Worker(self.app, register_signal_handlers=False) as worker:
            worker.send_outgoing_interval = FLUSH  # type: ignore[assignment]
            await asyncio.Event().wait()


@job(queue="default")
async def noop(*, number: int) -> None:
    await systems[0].do_noop(number)


@job(queue="default")
async def mark(*, number: int) -> None:
    await systems[0].do_mark(number)


@job(queue="default")
async def nap(*, number: int) -> None:
    await systems[0].do_nap(number)


@job(queue="default")
async def step(*, number: int) -> None:
    await systems[0].do_step(number)


TASKS = {"noop": noop, "mark": mark, "nap": nap, "step": step}
