"""Exactly-once effects: the handler's own writes and the end of its job in one fenced transaction.

The fence is the last statement before the commit. If the claim is lost by then, everything is rolled back: a handler
that fell behind leaves no trace. No lock is held while the handler works.
"""

from __future__ import annotations

import os
import time
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from penstock.async_bridge import AsyncConnection
from penstock.database import error_advice
from penstock.database.transaction import Transaction
from penstock.errors import CommitFailed, PenstockError, SerializationError
from penstock.handler_environment import HandlerEnvironment
from penstock.queue import settle
from penstock.queue.jobs import Attempt, Claim
from penstock.values.fork_safety import refuse_copy
from penstock.values.lazy_import import Lazy
from penstock.values.outcome import Outcome
from penstock.values.status import JobStatus, OutcomeKind

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from penstock.database.user import transactions
    from penstock.values.typed_json.signature import Signature
else:
    transactions = Lazy("penstock.database.user.transactions")

LEFT_ALONE = "25P03"
"""PostgreSQL's error code for a transaction that the server ended because the client sent nothing for too long."""


class TransactionScope:
    """`with job.transaction() as connection:` or `async with`."""

    def __init__(self, claim: Claim, around: HandlerEnvironment, codec: Signature, began: float) -> None:
        self.claim = claim
        self.around = around
        self.codec = codec
        self.began = began
        self.open = False
        self.committed = False
        self.result: object = None
        self.told = False
        """`complete()` was called."""
        self._connection: Connection | None = None
        self._idleness: transactions.Idleness | None = None
        self._shared: AbstractContextManager[tuple[Connection, Transaction]] | None = None
        self._tx: Transaction | None = None
        self._apart: AsyncConnection | None = None
        self._process = os.getpid()

    def __enter__(self) -> Connection:
        """Enter the block. Nothing was written yet, so errors that pass by themselves are tried again."""
        return self.around.database.with_retries(self._enter)

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
        self._connection = connection
        self._idleness = transactions.Idleness(connection)
        return transactions.refuse_commits(transactions.taking_text(connection))

    def complete(self, value: object) -> None:
        self.result, self.told = value, True

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
            error_advice.raise_as(self.around.database.explained(failure), failure)
        self.committed = True
        tx.reach_if_watched("committed")
        tx.committed()

    def _commit(
        self, shared: AbstractContextManager[tuple[Connection, Transaction]], tx: Transaction
    ) -> None:
        try:
            self._check_open()
            self._settle(tx)
            tx.reach_if_watched("commit")
        except BaseException as failure:
            shared.__exit__(type(failure), failure, failure.__traceback__)
            raise
        shared.__exit__(None, None, None)

    def _blame_the_database(self, error: BaseException) -> None:
        """A connection that was lost under the handler's own statements is an outage, not the handler's error.

        Nor is it one that the database has undone them for the sake of another transaction, where that is its way.
        """
        database, cause = self.around.database, error_advice.cause_of(error)
        undone = database.dialect.undoes_for_others and database.dialect.is_transient(cause)
        if not isinstance(error, Exception) or not (undone or database.dialect.is_disconnect(cause)):
            return
        alone = 0.0 if self._idleness is None else self._idleness.longest
        if getattr(cause, "sqlstate", None) == LEFT_ALONE and alone >= self._most_idle:
            # The next attempt would fail in the same way: this is the handler's error.
            raise PenstockError(
                f"the transaction of job {self.claim.job_id} was left alone for {alone:.1f} s, and the server ended "
                "it. Do what takes long before the block, or raise statement_timeout: twice that is waited for"
            ) from error
        raise database.explained(error) from error

    @property
    def _most_idle(self) -> float:
        return 2 * self.around.database.settings.statement_timeout

    def _check_open(self) -> None:
        """Raise if the user's code has ended the transaction by other means, such as a Session on the connection.

        SQLite ends it by itself, for instance after INSERT OR ROLLBACK.
        """
        refuse_copy(self._process)
        assert self._connection is not None and self._tx is not None
        if not (self._connection.in_transaction() and getattr(self._tx.driver, "in_transaction", True)):
            raise PenstockError(
                f"the transaction of job {self.claim.job_id} was ended inside its block, which was to do that; the "
                "job is not done. Use begin_nested() for what may be undone by itself"
            )

    def _settle(self, tx: Transaction) -> None:
        output = self._encoded()
        began_ago = int((time.monotonic() - self.began) * 1_000_000)
        attempt = Attempt(self.claim, Outcome(OutcomeKind.SUCCEEDED, output=output), began_ago)
        settled = settle.settle(tx, [attempt], self.around.process, (), self.around.follow)
        if not settled.accepted or settled.accepted[0].outcome.status is not JobStatus.SUCCEEDED:
            raise CommitFailed(f"job {self.claim.job_id}")

    def _encoded(self) -> str:
        try:
            return self.codec.encode_result(self.result, limit=self.around.limit_for(self.claim), apart=True)
        except SerializationError as error:
            if self.told:
                raise
            raise SerializationError(
                f"{error}. The block ends the job: give job.complete(...) its result, inside the block"
            ) from None

    async def __aenter__(self) -> AsyncConnection:
        self._apart = AsyncConnection(self)
        return await self._apart.enter()

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        assert self._apart is not None
        await self._apart.leave(error)
