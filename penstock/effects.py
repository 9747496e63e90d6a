"""Exactly-once effects: the handler's own writes and the end of its job in one fenced transaction.

The fence is the last statement before the commit. If the claim is lost by then, everything is rolled back: a handler
that fell behind leaves no trace. No lock is held while the handler works.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from penstock.database import trouble
from penstock.database.plain_text import taking_text
from penstock.database.transaction import Transaction
from penstock.errors import CommitFailed
from penstock.queue import settle
from penstock.queue.jobs import Attempt, Claim
from penstock.surroundings import Surroundings
from penstock.values.outcome import Outcome
from penstock.values.status import JobStatus, OutcomeKind

if TYPE_CHECKING:
    from penstock.values.signature import Signature


class TransactionScope:
    """`with job.transaction() as connection:` or `async with`."""

    def __init__(self, claim: Claim, around: Surroundings, codec: Signature, began: float) -> None:
        self.claim = claim
        self.around = around
        self.codec = codec
        self.began = began
        self.open = False
        self.committed = False
        self.result: object = None
        self._shared: AbstractContextManager[tuple[Connection, Transaction]] | None = None
        self._tx: Transaction | None = None
        self._worker: AsyncConnection | None = None

    def __enter__(self) -> Connection:
        """Nothing has been done yet: what passes by itself is tried again."""
        return self.around.database.patiently(self._enter)

    def _enter(self) -> Connection:
        self._shared = self.around.database.sqlalchemy()
        connection, self._tx = self._shared.__enter__()
        try:
            self._tx.stage("effects")
            if not settle.is_held(self._tx, self.claim):
                raise CommitFailed(f"job {self.claim.job_id}")
        except BaseException as error:
            self._shared.__exit__(type(error), error, error.__traceback__)
            raise
        self.open = True
        return taking_text(connection)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.open = False
        shared, tx = self._shared, self._tx
        assert shared is not None and tx is not None
        if error is not None:
            shared.__exit__(kind, error, trace)
            self._blame_the_database(error)
            return
        try:
            self._commit(shared, tx)
        except Exception as failure:
            trouble.raise_as(self.around.database.explained(failure), failure)
        self.committed = True
        tx.reach_if_watched("committed")
        tx.committed()

    def _commit(
        self, shared: AbstractContextManager[tuple[Connection, Transaction]], tx: Transaction
    ) -> None:
        try:
            self._settle(tx)
            tx.reach_if_watched("commit")
        except BaseException as failure:
            shared.__exit__(type(failure), failure, failure.__traceback__)
            raise
        shared.__exit__(None, None, None)

    def _blame_the_database(self, error: BaseException) -> None:
        """A connection that was lost under the handler's own statements is an outage, not the handler's error."""
        database = self.around.database
        if isinstance(error, Exception) and database.dialect.is_disconnect(trouble.cause_of(error)):
            raise database.explained(error) from error

    def _settle(self, tx: Transaction) -> None:
        output = self.codec.encode_result(self.result, limit=self.around.limit_for(self.claim))
        began_ago = int((time.monotonic() - self.began) * 1_000_000)
        attempt = Attempt(self.claim, Outcome(OutcomeKind.SUCCEEDED, output=output), began_ago)
        settled = settle.settle(tx, [attempt], self.around.process, (), self.around.follow)
        if not settled.accepted or settled.accepted[0].outcome.status is not JobStatus.SUCCEEDED:
            raise CommitFailed(f"job {self.claim.job_id}")

    async def __aenter__(self) -> AsyncConnection:
        self._worker = AsyncConnection()
        await self._worker.call(self._worker_enter)
        return self._worker

    def _worker_enter(self) -> None:
        assert self._worker is not None
        self._worker.connection = self.__enter__()

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        worker = self._worker
        assert worker is not None
        try:
            problem = await worker.finish() if error is None else error
            if problem is not None:
                await worker.call(lambda: self.__exit__(type(problem), problem, problem.__traceback__))
                if error is None:
                    raise problem
            else:
                await worker.call(lambda: self.__exit__(None, None, None))
        finally:
            worker.close()


class Executing:
    """A statement on its way. It runs whether or not it is awaited; awaiting gives its result."""

    def __init__(self, future: Future[Any]) -> None:
        self.future = future

    def __await__(self) -> Any:
        return _wrap(self.future).__await__()


class AsyncConnection:
    """A connection for `async with`: the same calls, in order, in a thread of its own."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="penstock-transaction")
        self._sent: list[Future[Any]] = []

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

    def _connection(self) -> Connection:
        assert self.connection is not None
        return self.connection

    def _send(self, work: Any) -> Executing:
        future = self._pool.submit(work)
        self._sent.append(future)
        return Executing(future)

    async def call(self, work: Any) -> Any:
        return await _wrap(self._pool.submit(work))

    async def finish(self) -> BaseException | None:
        """Wait for every statement; the first error that nobody awaited."""
        for future in self._sent:
            try:
                await _wrap(future)
            except Exception as error:
                return error
        return None

    def close(self) -> None:
        self._pool.shutdown(wait=False)


def _wrap(future: Future[Any]) -> asyncio.Future[Any]:
    return asyncio.wrap_future(future)
