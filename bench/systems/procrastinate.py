"""Procrastinate with a pool, LISTEN, many jobs at a time, and finished jobs kept as it does by default.

Its documentation leaves the recovery of stalled jobs to a periodic task of one's own; here it runs every minute.
"""

from __future__ import annotations

from procrastinate import App, PsycopgConnector

from bench.systems.base import System

CONCURRENCY = 50
POOL = 20


class ProcrastinateSystem(System):
    async def install(self) -> None:
        await self.open()
        await self.app.schema_manager.apply_schema_async()

    async def open(self) -> None:
        self.app = app = App(connector=PsycopgConnector(conninfo=self.url, min_size=2, max_size=POOL))

        @app.task(name="noop")
        async def noop(number: int) -> None:
            await self.do_noop(number)

        @app.task(name="mark")
        async def mark(number: int) -> None:
            await self.do_mark(number)

        @app.task(name="nap")
        async def nap(number: int) -> None:
            await self.do_nap(number)

        @app.task(name="step")
        async def step(number: int) -> None:
            await self.do_step(number)

        if self.options.get("recovery"):

            @app.periodic(cron="* * * * *")
            @app.task(name="rescue", queueing_lock="rescue")
            async def rescue(timestamp: int) -> None:  # noqa: ARG001
                for job in await app.job_manager.get_stalled_jobs():
                    await app.job_manager.retry_job(job)

        self.tasks = {"noop": noop, "mark": mark, "nap": nap, "step": step}
        await app.open_async()

    async def enqueue_many(self, count: int) -> None:
        await self.tasks["noop"].batch_defer_async(*({"number": number} for number in range(count)))

    async def enqueue(self, task: str, number: int) -> None:
        await self.tasks[task].defer_async(number=number)

    async def work(self) -> None:
        concurrency = self.options.get("concurrency", CONCURRENCY)
        await self.app.run_worker_async(concurrency=concurrency, install_signal_handlers=False)
