"""DBOS: async workflows on a queue without limits that is polled every 10 ms; five steps called directly."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from dbos import DBOS, DBOSClient, WorkflowHandle

from bench.systems.base import STEPS, PipelineSystem

QUEUE = "bench"
POLL = 0.01
VERSION = "1"
CLIENT_THREADS = 5


class DbosSystem(PipelineSystem):
    async def install(self) -> None:
        self._declare()
        await self._launch()

    async def open(self) -> None:
        self._declare()
        self.launched = False
        self.client = DBOSClient(system_database_url=self.url)

    async def enqueue_many(self, count: int) -> None:
        """It has no bulk enqueue: one by one, from as many threads as its client has connections."""
        await asyncio.to_thread(self._spread_over_threads, count)

    def _spread_over_threads(self, count: int) -> None:
        with ThreadPoolExecutor(CLIENT_THREADS) as pool:
            list(pool.map(lambda number: self._enqueue("noop", number), range(count)))

    def _enqueue(self, task: str, number: int) -> WorkflowHandle[None]:
        return self.client.enqueue({"workflow_name": task, "queue_name": QUEUE}, number)

    async def enqueue(self, task: str, number: int) -> None:
        self._enqueue(task, number)

    async def work(self) -> None:
        await self._launch()
        await asyncio.Event().wait()

    async def run_pipeline(self, number: int) -> None:
        if self.options.get("queued"):
            await self._result(self._enqueue("five", number))
            return
        if not self.launched:
            DBOS.listen_queues([])
            await self._launch()
            self.launched = True
        await self.five(number)

    async def start_pipelines(self, count: int) -> None:
        for number in range(count):
            self._enqueue("five", number)

    async def fan(self, width: int) -> None:
        await self._result(self._enqueue("spread", width))

    async def _result(self, handle: WorkflowHandle[None]) -> None:
        await asyncio.to_thread(handle.get_result, polling_interval_sec=POLL)

    async def _launch(self) -> None:
        DBOS.launch()
        await DBOS.register_queue_async(QUEUE, polling_interval_sec=POLL)

    def _declare(self) -> None:
        DBOS(
            config={
                "name": "bench",
                "system_database_url": self.url,
                "log_level": "ERROR",
                "application_version": VERSION,
                "executor_id": str(self.options.get("executor", "local")),
            }
        )

        @DBOS.workflow(name="noop")
        async def noop(number: int) -> None:
            await self.do_noop(number)

        @DBOS.workflow(name="mark")
        async def mark(number: int) -> None:
            await self.do_mark(number)

        @DBOS.workflow(name="nap")
        async def nap(number: int) -> None:
            await self.do_nap(number)

        @DBOS.step(name="one")
        async def one(number: int) -> int:
            return number + 1

        @DBOS.workflow(name="five")
        async def five(number: int) -> None:
            for _ in range(STEPS):
                await one(number)
            self.marks.stamp(number)
            self.marks.count()

        @DBOS.workflow(name="spread")
        async def spread(width: int) -> int:
            handles = [await DBOS.enqueue_workflow_async(QUEUE, noop, number) for number in range(width)]
            for handle in handles:
                await handle.get_result(polling_interval_sec=POLL)
            return len(handles)

        self.five = five
