"""`app.lock(Model, id)`: lets API code lock a row that a reconciler works on.

The block is one short transaction, under the database's own lock on the row, begun only when no worker holds the row's
claim. A caller that has to wait announces itself on the row, so that the reconciler does not take it again first. At
the end the row is marked for a visit: what was written is looked at next, not after the interval.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, RowMapping, select, update
from sqlalchemy.exc import DBAPIError

from penstock.app_services import AppServices
from penstock.async_bridge import AsyncConnection
from penstock.database import error_advice
from penstock.database.transaction import Transaction
from penstock.errors import LockTimeout, RowNotFound
from penstock.reconcile.columns import from_micros
from penstock.reconcile.table import Target
from penstock.reconcile.wakeup_subjects import awaited, table_changed
from penstock.values.fork_safety import refuse_copy
from penstock.values.ids import new_id, new_token

WRITER = "writer"
POLL = (0.005, 0.1)
EXTRA = timedelta(seconds=1)
STATE = ("lock_expires_at", "lock_token", "lock_wanted_by", "lock_wanted_until", "next_process_at")


class RowLock:
    """`with app.lock(Volume, id) as connection:` or `async with`."""

    def __init__(self, host: AppServices, target: Target, id: Any, timeout: float) -> None:
        self.host = host
        self.target = target
        self.key = target.key_given(id)
        self.timeout = timeout
        self.me = f"{WRITER}:{new_id()}"
        self._is = target.is_row(self.key)
        self._deadline = 0.0
        self._announced = False
        self._ends = 0.0
        """When the announcement ends, even if it is not taken back."""
        self._woken = threading.Event()
        self._given_up = False
        self._due: datetime | None = None
        self._shared: AbstractContextManager[tuple[Connection, Transaction]] | None = None
        self._connection: Connection | None = None
        self._apart: AsyncConnection | None = None
        self._process = os.getpid()

    def __enter__(self) -> Connection:
        self.host.prepare()
        deadline = self._deadline = time.monotonic() + self.timeout
        stop_listening = self.host.wakeups.listen(self._hear)
        pause = POLL[0]
        try:
            while not self._try():
                if self._given_up or time.monotonic() >= deadline:
                    raise LockTimeout(f"{self.target.name} {self.key[0]}", self.timeout)
                self._woken.wait(min(pause, max(0.0, deadline - time.monotonic())))
                self._woken.clear()
                pause = min(pause * 1.5, POLL[1])
        except BaseException:
            self._withdraw()
            raise
        finally:
            stop_listening()
        assert self._connection is not None
        return self._connection

    def _hear(self, subject: str) -> None:
        if subject == awaited(WRITER):
            self._woken.set()

    def _give_up(self) -> None:
        """Stop waiting: the caller wants the row no more."""
        self._given_up = True
        self._woken.set()

    def _try(self) -> bool:
        """Begin the transaction; end it again, with an announcement, if a worker holds the row."""
        shared = self.host.database.sqlalchemy(self._left())
        try:
            connection, tx = shared.__enter__()
        except Exception as error:
            if not self._is_busy(error):
                raise
            return False
        try:
            got = self._take(connection, tx)
        except BaseException as error:
            shared.__exit__(type(error), error, error.__traceback__)
            if not self._is_busy(error):
                raise
            return False
        if got:
            self._shared, self._connection = shared, connection
        else:
            shared.__exit__(None, None, None)
        return got

    def _take(self, connection: Connection, tx: Transaction) -> bool:
        row = tx.row("SELECT {now}")
        assert row is not None
        now = from_micros(int(row[0]))
        state = self._locked(connection, skip_locked=True)
        if state is None:
            state = self._locked_in_time(connection)
        if state is None:
            raise RowNotFound(self.target.name, self.key)
        held = state["lock_expires_at"] is not None and state["lock_expires_at"] > now
        until = state["lock_wanted_until"]
        other = until is not None and until > now and state["lock_wanted_by"] != self.me
        if held or other:
            if not other:
                self._announce(connection, now)
            return False
        self._due = state["next_process_at"]
        if state["lock_token"] is not None:
            # The holder's lease is over. If it is only frozen, it must not overwrite us; the row still waits to be
            # recovered.
            connection.execute(self._change(lock_token=new_token()))
        return True

    def _locked(self, connection: Connection, skip_locked: bool = False) -> RowMapping | None:
        columns = [self.target[name] for name in STATE]
        locked = select(*columns).where(self._is).with_for_update(key_share=True, skip_locked=skip_locked)
        return connection.execute(locked).mappings().first()

    def _locked_in_time(self, connection: Connection) -> RowMapping | None:
        """Wait for the lock that another transaction has, no longer than the timeout."""
        with self._with_lock_timeout(connection, self._left()):
            return self._locked(connection)

    def _left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    @contextmanager
    def _with_lock_timeout(self, connection: Connection, seconds: float) -> Iterator[None]:
        """Set the lock timeout for statements inside the block."""
        database = self.host.database
        usual = database.settings.lock_timeout
        briefly, again = [database.dialect.lock_patience(each) for each in (min(usual, seconds), usual)]
        if briefly is None or again is None:
            yield
            return
        connection.exec_driver_sql(briefly)
        try:
            yield
        finally:
            # After an error PostgreSQL accepts no statement, and resets the timeout with the rollback.
            with suppress(DBAPIError):
                connection.exec_driver_sql(again)

    def _is_busy(self, error: BaseException) -> bool:
        """True if another transaction has the row locked or, where there is one writer, the file."""
        return self.host.database.dialect.is_transient(getattr(error, "orig", None) or error)

    def _announce(self, connection: Connection, now: datetime) -> None:
        until = now + timedelta(seconds=self.timeout) + EXTRA
        self._ends = time.monotonic() + (until - now).total_seconds()
        connection.execute(self._change(lock_wanted_by=self.me, lock_wanted_until=until))
        self._announced = True

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        shared, connection = self._shared, self._connection
        assert shared is not None and connection is not None
        self._shared = self._connection = None
        if error is not None:
            shared.__exit__(kind, error, trace)
            self._withdraw()
            return
        try:
            self._commit(shared, connection)
        except Exception as failure:
            self._withdraw()
            error_advice.raise_as(self.host.database.explained(failure), failure)
        except BaseException:
            self._withdraw()
            raise
        self._announced = False
        self.host.wakeups.notify(table_changed(self.target.name))

    def _commit(
        self, shared: AbstractContextManager[tuple[Connection, Transaction]], connection: Connection
    ) -> None:
        try:
            self._ask_for_visit(connection)
        except BaseException as failure:
            shared.__exit__(type(failure), failure, failure.__traceback__)
            raise
        shared.__exit__(None, None, None)

    def _ask_for_visit(self, connection: Connection) -> None:
        refuse_copy(self._process)
        tx = self.host.database.on(connection.connection.driver_connection)
        row = tx.row("SELECT {now}")
        assert row is not None
        unchanged = self.target["next_process_at"] == self._due
        connection.execute(self._change(next_process_at=from_micros(int(row[0]))).where(unchanged))
        if self._announced:
            mine = self.target["lock_wanted_by"] == self.me
            connection.execute(self._change(lock_wanted_by=None, lock_wanted_until=None).where(mine))

    def _withdraw(self) -> None:
        """Take the announcement back, so that no worker waits for us. If that fails, it ends by itself."""
        if self._announced and os.getpid() == self._process:
            with suppress(Exception):  # the caller gets the error that brought us here
                self._announced = not self.host.database.with_retries(self._take_back)

    def _take_back(self) -> bool:
        """Remove the announcement. False: no time is left, and it ends by itself."""
        left = max(0.0, self._ends - time.monotonic())
        try:
            with (
                self.host.database.sqlalchemy(left) as (connection, _),
                self._with_lock_timeout(connection, left),
            ):
                mine = self.target["lock_wanted_by"] == self.me
                connection.execute(self._change(lock_wanted_by=None, lock_wanted_until=None).where(mine))
        except Exception as error:
            if left or not self._is_busy(error):
                raise
            return False
        return True

    def _change(self, **values: Any) -> Any:
        return update(self.target.table).where(self._is).values(**values, **self.target.unstamped(values))

    async def __aenter__(self) -> AsyncConnection:
        self._apart = AsyncConnection(self)
        try:
            return await self._apart.enter()
        except BaseException:
            self._give_up()
            raise

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        assert self._apart is not None
        await self._apart.leave(error)
