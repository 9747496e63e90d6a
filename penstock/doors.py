"""The thin door for async callers: the same synchronous operation, in a thread of the app's own."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import ParamSpec, TypeVar

from penstock.database.forks import forget_after_fork

P = ParamSpec("P")
R = TypeVar("R")


class Doors:
    """A few threads in which async callers' database work is done; the event loop never waits for it."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        forget_after_fork(self)

    async def run(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        call = functools.partial(copy_context().run, work, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._opened(), call)

    def _opened(self) -> ThreadPoolExecutor:
        """Two loops that come first at the same time may make one each: the one too many ends by itself."""
        pool = self._pool
        if pool is None:
            pool = self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="penstock-door")
        return pool

    def forget(self) -> None:
        self._pool = None

    async def run_apart(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """In a thread made for this call: for work that may itself wait for further calls, to any depth."""
        call = functools.partial(copy_context().run, work, *args, **kwargs)
        thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-apart")
        working = thread.submit(call)
        thread.shutdown(wait=False)
        return await ended(working)

    def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)


async def ended(future: Future[R]) -> R:
    """Wait for it. Whoever is cancelled meanwhile does not call it off, and need not hear how it went."""
    loop = asyncio.get_running_loop()
    over = asyncio.Event()

    def tell(_future: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(over.set)

    future.add_done_callback(tell)
    await over.wait()
    return future.result()
