"""The thin door for async callers: the same synchronous operation, in a thread of the app's own."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import ParamSpec, TypeVar

from penstock.errors import AppClosed
from penstock.values.forks import forget_after_fork

P = ParamSpec("P")
R = TypeVar("R")


class Doors:
    """A few threads in which async callers' database work is done; the event loop never waits for it."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self.closings = 0
        """How often they were closed: whoever waits for longer than a call can tell."""
        forget_after_fork(self)

    async def run(self, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        call = functools.partial(copy_context().run, work, *args, **kwargs)
        return await asyncio.wrap_future(self._submitted(call))

    def _submitted(self, call: Callable[[], R]) -> Future[R]:
        """What will come of it. Also if the doors are closed before it has begun: nobody is cancelled by that."""
        promise: Future[R] = Future()
        while True:
            pool = self._opened()
            try:
                begun = pool.submit(_fulfil, promise, call)
            except RuntimeError:
                if pool is self._pool:  # not closed meanwhile: the interpreter ends
                    raise
            else:
                begun.add_done_callback(functools.partial(_give_up, promise))
                return promise

    def _opened(self) -> ThreadPoolExecutor:
        """Two loops that come first at the same time may make one each: the one too many ends by itself."""
        pool = self._pool
        if pool is None:
            pool = self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="penstock-door")
        return pool

    def forget(self) -> None:
        self._pool = None

    async def run_apart(self, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """In a thread made for this call: for work that may itself wait for further calls, to any depth."""
        call = functools.partial(copy_context().run, work, *args, **kwargs)
        thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-apart")
        working = thread.submit(call)
        thread.shutdown(wait=False)
        return await ended(working)

    def close(self) -> None:
        """What has begun goes on to its end; what has not is told that it never will."""
        self.closings += 1
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)


def _fulfil(promise: Future[R], call: Callable[[], R]) -> None:
    if not promise.set_running_or_notify_cancel():
        return  # whoever wanted it has been cancelled
    try:
        promise.set_result(call())
    except BaseException as error:
        promise.set_exception(error)
        del promise  # which holds the error, which holds this frame


def _give_up(promise: Future[R], begun: Future[None]) -> None:
    if begun.cancelled() and promise.set_running_or_notify_cancel():
        promise.set_exception(closed("before a call had begun"))


def closed(when: str) -> AppClosed:
    return AppClosed(
        f"the app was closed {when}. This call has written nothing: make it again, which opens the app again, or call "
        "close() when nobody uses the app any more."
    )


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
