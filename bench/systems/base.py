"""What every adapter can do, and what only some can: a cell stays empty where a system has no means for it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any

from bench.marks import END, Marks

STEPS = 5
WARM_UP = 20
"""Jobs that a producer enqueues before those that are timed. Their numbers are used again."""


class System(ABC):
    """One system on one database. `open()` is called first in each process."""

    def __init__(self, url: str, marks: Marks, options: dict[str, Any]) -> None:
        self.url = url
        self.marks = marks
        self.options = options

    def run(self, main: Any) -> Any:
        """The event loop this system recommends."""
        return asyncio.run(main)

    @abstractmethod
    async def install(self) -> None:
        """Create the tables, as its documentation says."""

    @abstractmethod
    async def open(self) -> None:
        """Connect; for producers and workers."""

    @abstractmethod
    async def enqueue_many(self, count: int) -> None:
        """No-op jobs, in bulk, the fastest documented way."""

    @abstractmethod
    async def enqueue(self, task: str, number: int) -> None:
        """One job, durable on return. Tasks: noop, mark, nap, step."""

    @abstractmethod
    async def work(self) -> None:
        """Run jobs until killed."""

    # bodies of the handlers, the same for all

    async def do_noop(self, number: int) -> None:
        self.marks.count()

    async def do_mark(self, number: int) -> None:
        self.marks.stamp(number)

    async def do_nap(self, number: int) -> None:
        self.marks.stamp(number)
        await asyncio.sleep(self.options.get("nap", 2.0))
        self.marks.stamp(number, END)

    async def do_step(self, number: int) -> None:
        """`number` is the run times STEPS plus the step; each step enqueues the next."""
        if number % STEPS == STEPS - 1:
            self.marks.stamp(number // STEPS)
            self.marks.count()
        else:
            await self.enqueue("step", number + 1)


class PipelineSystem(System):
    """A system with pipelines of its own; elsewhere each step enqueues the next."""

    @abstractmethod
    async def run_pipeline(self, number: int) -> None:
        """Five sequential steps, from the trigger to the result."""

    @abstractmethod
    async def start_pipelines(self, count: int) -> None:
        """Trigger that many runs of five steps, to be worked off by workers."""

    @abstractmethod
    async def fan(self, width: int) -> None:
        """1 → width → 1, from the trigger to the result."""


class SupervisedSystem(PipelineSystem):
    """A system whose workers are run by a program of its own."""

    @abstractmethod
    def supervise(self) -> None:
        """Become the program by which workers are run in production."""


class HandWrittenSystem(System):
    """Can also do nothing but commit."""

    @abstractmethod
    async def checkpoint(self, number: int) -> None:
        """Five commits in this process, and nothing else."""
