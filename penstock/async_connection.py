"""`async with` over a block that is synchronous: the same calls, in order, in a thread of its own.

Whoever is cancelled on the way in or out has left the block all the same. What the thread has begun it also ends: a
transaction that nobody is inside of would keep its locks.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

from penstock.doors import ended
from penstock.values.forks import refuse_copy

if TYPE_CHECKING:
    from sqlalchemy import Connection


class Executing:
    """A statement on its way. It runs whether or not it is awaited; awaiting gives its result."""

    def __init__(self, future: Future[Any]) -> None:
        self.future = future
        self.awaited = False
        """What it raises is known to whoever waits for it, who may go on without it."""

    def __await__(self) -> Any:
        self.awaited = True
        return asyncio.wrap_future(self.future).__await__()


class AsyncConnection:
    """The connection of a block, for `async with`."""

    def __init__(self, block: AbstractContextManager[Connection]) -> None:
        self._block = block
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="penstock-transaction")
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
        """Leave the block: with the error, or with that of a statement which nobody awaited."""
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
        """Wait for every statement that was not called off. Being cancelled meanwhile is a problem, too."""
        for sent in self._sent:
            if sent.future.cancelled() or (sent.awaited and sent.future.done()):
                continue
            try:
                await asyncio.wrap_future(sent.future)
            except BaseException as problem:
                return problem
        return None

    def _end(self, problem: BaseException | None) -> Future[None]:
        """Nobody can call this off: it is done after everything else, and then the thread ends."""
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
