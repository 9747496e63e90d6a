"""`async def` handlers: tasks on the worker's event loop."""

from __future__ import annotations

import asyncio

from penstock.runtime.executors import Done
from penstock.runtime.executors.call import call_async
from penstock.runtime.work import Interruption, Key, Work
from penstock.surroundings import Surroundings


class LoopExecutor:
    """Runs coroutines; can really end them."""

    def __init__(self, around: Surroundings, done: Done) -> None:
        self.around = around
        self.done = done
        self.tasks: dict[Key, asyncio.Task[None]] = {}

    def start(self, work: Work) -> None:
        task = asyncio.get_running_loop().create_task(self._run(work))
        self.tasks[work.key] = task

    async def _run(self, work: Work) -> None:
        try:
            event = await call_async(work, self.around)
        finally:
            self.tasks.pop(work.key, None)
        if work.end_once():
            self.done(work, event)

    def interrupt(self, work: Work, why: Interruption) -> None:
        work.interrupted = why
        task = self.tasks.get(work.key)
        if task is not None:
            task.cancel()

    def close(self) -> None:
        """Tasks end with their loop."""
