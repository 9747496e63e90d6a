"""Penstock, with its defaults."""

from __future__ import annotations

import asyncio
import json
import os
import sys

from bench.systems.base import SupervisedSystem
from penstock import Penstock
from penstock.database.dialect import FastPath
from penstock.queue.jobs import tier_of
from penstock.telemetry.events import JobsClaimed

WITHOUT = "BENCH_WITHOUT"
"""Parts of the fast path that are left out (see `bench/parts.py`)."""


def leave_out(app: Penstock, parts: str) -> None:
    dialect = app.database.dialect
    names = FastPath._fields if parts == "all" else [name for name in parts.split(",") if name]
    dialect.fast_path = dialect.fast_path._replace(**dict.fromkeys(names, False))


class PenstockSystem(SupervisedSystem):
    tier = tier_of(0)

    async def install(self) -> None:
        app = Penstock(self.url)
        app.migrate()
        app.close()

    async def open(self) -> None:
        self.declare()
        self.app.migrate()  # connects, as the others do here

    def declare(self) -> None:
        self.app = app = Penstock(self.url)
        leave_out(app, os.environ.get(WITHOUT, ""))

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

        if not self.options.get("tasks_only"):
            self._declare_pipelines()
        if self.options.get("claims"):
            self._log_claims()
        self.tasks = {task.name: task for task in (noop, mark, nap, step)}

    def supervise(self) -> None:
        given = {
            "BENCH_URL": self.url,
            "BENCH_MARKS": str(self.marks.folder),
            "BENCH_OPTIONS": json.dumps(self.options),
        }
        arguments = [sys.executable, "-m", "penstock", "worker", "bench.systems.penstock_app:app"]
        if "processes" in self.options:
            arguments += ["--processes", str(self.options["processes"])]
        os.execve(sys.executable, arguments, {**os.environ, **given})

    def _declare_pipelines(self) -> None:
        app = self.app

        @app.task(name="one")
        async def one(number: int) -> int:
            return number + 1

        @app.task(name="last")
        async def last(number: int) -> int:
            self.marks.count()
            return number

        @app.task(name="numbers")
        async def numbers(width: int) -> list[int]:
            return list(range(width))

        @app.task(name="total")
        async def total(values: list[int]) -> int:
            return len(values)

        @app.pipeline
        def five(number: int) -> object:
            return last(one(one(one(one(number)))))

        @app.pipeline
        def spread(width: int) -> object:
            return total(one.map(numbers(width)).collect())

        self.five, self.spread = five, spread

    async def run_pipeline(self, number: int) -> None:
        self.five.trigger(number).result()

    async def start_pipelines(self, count: int) -> None:
        for number in range(count):
            self.five.trigger(number)

    async def fan(self, width: int) -> None:
        assert self.spread.trigger(width).result() == width

    def _log_claims(self) -> None:
        file = (self.marks.folder / "claims").open("a", buffering=1)
        self.app.events.on(JobsClaimed, lambda event: print(event.count, event.seconds, file=file))

    async def enqueue_many(self, count: int) -> None:
        self.tasks["noop"].enqueue_many([(number,) for number in range(count)])

    async def enqueue(self, task: str, number: int) -> None:
        if task == "step":
            await self.tasks[task].enqueue_async(number)
        else:
            self.tasks[task].enqueue(number)

    async def work(self) -> None:
        async with self.app.worker(concurrency=self.options.get("concurrency")):
            await asyncio.Event().wait()
