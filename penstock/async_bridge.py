"""Runs synchronous operations of async callers in threads, while the event loop goes on.

The only way there, but for handlers, which have executors of their own. `AsyncBridge.run` is for database work of
callers, in a few threads of the app; `run_apart` for work that may itself wait for such calls; `in_thread` for anything
else; `one_thread` for calls that must come one after the other, in the same thread.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from penstock.errors import AppClosed
from penstock.values.fork_safety import refuse_copy, register_reset_after_fork

if TYPE_CHECKING:
    from sqlalchemy import Connection


P = ParamSpec("P")
R = TypeVar("R")


async def in_thread(work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function in a thread of the event loop's own pool. Cancelling the caller does not stop the call."""
    return await asyncio.to_thread(work, *args, **kwargs)


def one_thread(name: str) -> ThreadPoolExecutor:
    """A new thread, for calls that come one after the other. It ends after its `shutdown`."""
    return ThreadPoolExecutor(1, thread_name_prefix=f"penstock-{name}")


class AsyncBridge:
    """A few threads in which async callers' database work is done; the event loop never waits for it."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self.closings = 0
        """How often the bridge was closed: a caller that waits over several calls notices a close by it."""
        register_reset_after_fork(self)

    async def run(self, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        call = functools.partial(copy_context().run, work, *args, **kwargs)
        return await asyncio.wrap_future(self._submitted(call))

    def _submitted(self, call: Callable[[], R]) -> Future[R]:
        """The future of this call. A close before the call has begun cancels no caller."""
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
        """The thread pool.

        Two loops that ask for it at the same time may each make one; the surplus pool ends by itself.
        """
        pool = self._pool
        if pool is None:
            pool = self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="penstock-door")
        return pool

    def reset_after_fork(self) -> None:
        self._pool = None

    async def run_apart(self, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """In a thread made for this call: for work that may itself wait for further calls, to any depth."""
        call = functools.partial(copy_context().run, work, *args, **kwargs)
        thread = one_thread("apart")
        working = thread.submit(call)
        thread.shutdown(wait=False)
        return await ended(working)

    def close(self) -> None:
        """Refuse further calls. Calls that have begun run to their end; the callers of all others get `AppClosed`."""
        self.closings += 1
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)


def _fulfil(promise: Future[R], call: Callable[[], R]) -> None:
    if not promise.set_running_or_notify_cancel():
        return  # the caller has been cancelled
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
        "close() when no code uses the app any more."
    )


async def ended(future: Future[R]) -> R:
    """Wait for the future. If the caller is cancelled meanwhile, the future goes on and its result is ignored."""
    loop = asyncio.get_running_loop()
    over = asyncio.Event()

    def tell(_future: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: no caller waits any more
            loop.call_soon_threadsafe(over.set)

    future.add_done_callback(tell)
    await over.wait()
    return future.result()


# `async with` over a block that is synchronous: the same calls, in order, in a thread of its own.
#
# A caller that is cancelled on the way in or out has left the block all the same. The thread then ends the
# transaction: one that stayed open would keep its locks.


class Executing:
    """A statement that is being executed. It runs whether or not it is awaited; awaiting it returns its result."""

    def __init__(self, future: Future[Any]) -> None:
        self.future = future
        self.awaited = False
        """True if the caller awaited it: then the caller gets its error, and may go on."""

    def __await__(self) -> Any:
        self.awaited = True
        return asyncio.wrap_future(self.future).__await__()


class AsyncConnection:
    """The connection of a block, for `async with`."""

    def __init__(self, block: AbstractContextManager[Connection]) -> None:
        self._block = block
        self._pool = one_thread("transaction")
        self._entering: Future[Connection] | None = None
        self._sent: list[Executing] = []
        self._process = os.getpid()

    def execute(self, *args: Any, **kwargs: Any) -> Executing:
        return self._send(lambda: self._connection().execute(*args, **kwargs))

    def scalar(self, *args: Any, **kwargs: Any) -> Executing:
        return self._send(lambda: self._connection().scalar(*args, **kwargs))

    def scalars(self, *args: Any, **kwargs: Any) -> Executing:
        return self._send(lambda: self._connection().scalars(*args, **kwargs))

    def exec_driver_sql(self, *args: Any, **kwargs: Any) -> Executing:
        return self._send(lambda: self._connection().exec_driver_sql(*args, **kwargs))

    def run_sync(self, function: Any, *args: Any, **kwargs: Any) -> Executing:
        """Call a function with the synchronous connection."""
        return self._send(lambda: function(self._connection(), *args, **kwargs))

    @asynccontextmanager
    async def begin_nested(self) -> AsyncIterator[None]:
        """A savepoint: what is done inside is undone by an exception, and nothing else."""
        savepoint = await self.run_sync(lambda connection: connection.begin_nested())
        try:
            yield
        except BaseException:
            self._send(savepoint.rollback)
            raise
        await self._send(savepoint.commit)

    def _connection(self) -> Connection:
        assert self._entering is not None
        return self._entering.result()

    def _send(self, work: Callable[[], Any]) -> Executing:
        refuse_copy(self._process)
        sent = Executing(self._pool.submit(work))
        self._sent.append(sent)
        return sent

    async def enter(self) -> AsyncConnection:
        """Enter the block."""
        self._entering = self._pool.submit(self._block.__enter__)
        try:
            await ended(self._entering)
        except BaseException as error:
            self._end(error)
            raise
        return self

    async def leave(self, error: BaseException | None) -> None:
        """Leave the block: with the error, or with that of a statement which the caller did not await."""
        if error is None:
            refuse_copy(self._process)
        elif os.getpid() != self._process:
            return  # our thread is the parent's
        problem = error if error is not None else await self._first_problem()
        if problem is not None:
            for sent in self._sent:
                sent.future.cancel()
        await ended(self._end(problem))
        if problem is not None and error is None:
            raise problem

    async def _first_problem(self) -> BaseException | None:
        """Wait for every statement that was not cancelled; the first error.

        A cancellation of the caller counts as an error.
        """
        for sent in self._sent:
            if sent.future.cancelled() or (sent.awaited and sent.future.done()):
                continue
            try:
                await asyncio.wrap_future(sent.future)
            except BaseException as problem:
                return problem
        return None

    def _end(self, problem: BaseException | None) -> Future[None]:
        """End the block after all statements; a cancellation does not stop this. Then the thread ends."""
        future = self._pool.submit(self._exit, problem)
        self._pool.shutdown(wait=False)
        return future

    def _exit(self, problem: BaseException | None) -> None:
        assert self._entering is not None
        if self._entering.exception() is not None:
            return  # it was never entered
        if problem is None:
            self._block.__exit__(None, None, None)
        else:
            self._block.__exit__(type(problem), problem, problem.__traceback__)
