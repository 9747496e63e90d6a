"""The thin door for async callers: the same synchronous operation, in a thread of the app's own."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Doors:
    """A few threads in which async callers' database work is done; the event loop never waits for it."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="penstock-door")

    async def run(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        call = functools.partial(copy_context().run, work, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    async def run_apart(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """In a thread made for this call: for work that may itself wait for further calls, to any depth."""
        call = functools.partial(copy_context().run, work, *args, **kwargs)
        with ThreadPoolExecutor(1, thread_name_prefix="penstock-apart") as thread:
            return await asyncio.get_running_loop().run_in_executor(thread, call)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
