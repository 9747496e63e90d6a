"""A worker that rests, and others that give it something to do: as in two processes, which share only the database."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from penstock import Concurrency, Penstock, Rate, Retry, Snooze
from penstock.runtime.liveness import heartbeat
from penstock.runtime.pump import idle
from penstock.runtime.worker import Worker
from tests.waiting import until

PROMPT = 40.0
"""Far less than the time to the next glance: a worker that was not told would wait that long."""


def soon_calm(monkeypatch: pytest.MonkeyPatch, interval: float = 3600.0) -> None:
    """A worker rests after a moment. The glance that begins it is the last, unless others are to come soon."""
    monkeypatch.setattr(idle, "CALM", 0.05)
    monkeypatch.setattr(idle, "INTERVAL", interval)
    monkeypatch.setattr(idle, "REAPED", interval)
    monkeypatch.setattr(heartbeat, "LOOK_INTERVAL", 0.02)


async def at_rest(worker: Worker) -> None:
    await until(lambda: worker.rest.is_on, PROMPT)


def asked(app: Penstock, times: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on it is noted when the database is asked anything."""
    plain = app.database.on

    def counting(driver: object, *, own: bool = False) -> object:
        times.append(time.monotonic())
        return plain(driver, own=own)

    monkeypatch.setattr(app.database, "on", counting)


async def each(worker: Worker, *acts: Callable[[], Awaitable[object]]) -> None:
    """One after the other, each while the worker rests; each is over far sooner than the next glance comes."""
    for act in acts:
        await at_rest(worker)
        await asyncio.wait_for(act(), PROMPT)


def declare(app: Penstock, held: float = 0.0) -> Penstock:
    tries: Counter[str] = Counter()

    @app.task(name="note")
    async def note(number: int) -> int:
        return number * 2

    @app.task(name="hold")
    async def hold() -> str:
        await asyncio.sleep(held)
        return "held"

    @app.task(name="stumble", retries=Retry(3, delay=0.1, factor=1, jitter=0))
    async def stumble() -> str:
        tries["stumble"] += 1
        if tries["stumble"] < 3:
            raise ValueError("not yet")
        return "done"

    @app.task(name="doze")
    async def doze() -> str | Snooze:
        tries["doze"] += 1
        return "awake" if tries["doze"] > 1 else Snooze(0.5)

    @app.task(name="fail", retries=0)
    async def fail() -> str:
        tries["fail"] += 1
        if tries["fail"] < 3:
            raise ValueError("not yet")
        return "done"

    @app.task(name="single", limits=[Concurrency(1), Rate(100, per=60)])
    async def single() -> str:
        await asyncio.sleep(0.1)
        return "done"

    app.prepare()
    return app
