"""The database an app works on: connections, transactions, retries.

Only the database decides. Errors that pass by themselves are retried here, in one place, and every statement has a
timeout. A transaction must be repeatable: ids are made before it starts, and a write recognizes rows that an earlier
try has committed, if the answer was lost with the connection.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from penstock.database import error_advice
from penstock.database.connections import ConnectionHandle, ConnectionStore
from penstock.database.dialect import GENERAL_WAY, Dialect
from penstock.database.sqlite_forks import ForkGate
from penstock.database.templates import ParamStyle, Renderer
from penstock.database.transaction import BriefReadTransaction, ReadTransaction, Transaction, WriteTransaction
from penstock.database.url import dialect_for, parse
from penstock.errors import DatabaseUnavailable, ReadTimeout
from penstock.settings import Settings
from penstock.values.fork_safety import register_reset_after_fork
from penstock.values.lazy_import import Lazy

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from penstock.database.user import engine, transactions
else:
    transactions = Lazy("penstock.database.user.transactions")
    engine = Lazy("penstock.database.user.engine")

P = ParamSpec("P")
R = TypeVar("R")

TRIES = 12


class Database:
    """Connections, clock and statements of one app."""

    def __init__(self, settings: Settings) -> None:
        self.tables: list[str] = []
        self.column_types: dict[str, dict[str, str]] = {}
        self.clock_shift = 0
        self.call_housekeeping: Callable[[Transaction], None] | None = None
        """Called after transactions that leave work for the housekeeping."""
        self.callers_transaction: Callable[[], Transaction | None] = lambda: None
        """Returns the transaction that a framework has open on this database in the calling thread; reads join it."""
        self._engine: Engine | None = None
        self.connections = ConnectionStore(self)
        self._lock = threading.Lock()
        self._aim_at(settings)
        register_reset_after_fork(self)

    def _aim_at(self, settings: Settings) -> None:
        self.settings = settings
        self.url = parse(settings.database_url)
        self._where = settings.shown_url
        self.dialect: Dialect = dialect_for(self.url, settings)
        if not settings.fast_path:
            self.dialect.fast_path = GENERAL_WAY
        qualifies = self.dialect.name == "postgresql"
        self.schema = settings.schema if qualifies else None
        self.prefix = settings.table_prefix
        if settings.schema and not qualifies:
            self.prefix = f"{settings.schema}_{settings.table_prefix}"
        self._clock = self.dialect.now
        self._renderers: dict[ParamStyle, Renderer] = {}
        self.connections.begin(spares=0 if self.dialect.in_memory else settings.pool_size // 2)
        file = self.dialect.one_writer and not self.dialect.in_memory
        self.fork_gate = ForkGate(self._close_all) if file else None

    def move_to(self, settings: Settings) -> None:
        """Use another database from now on, for test runners of frameworks; all connections are closed."""
        self.close()
        self._aim_at(settings)
        self.shift_clock(self.clock_shift)

    # transactions

    def in_transaction(
        self, work: Callable[Concatenate[Transaction, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Run `work` in a transaction of its own; retry errors that pass by themselves."""

        def attempt() -> R:
            with self.transaction() as tx:
                return work(tx, *args, **kwargs)

        return self.with_retries(attempt)

    def in_statement(
        self, work: Callable[Concatenate[Transaction, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """The same for work that is one statement: on some databases it needs no transaction around it."""

        def attempt() -> R:
            with self.transaction(single=True) as tx:
                return work(tx, *args, **kwargs)

        return self.with_retries(attempt)

    def read(self, work: Callable[Concatenate[Transaction, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run `work`, which only reads."""
        if (joined := self.callers_transaction()) is not None:
            return work(joined, *args, **kwargs)

        def attempt() -> R:
            with self.reading() as tx:
                return work(tx, *args, **kwargs)

        return self.with_retries(attempt)

    def read_briefly(
        self,
        seconds: float,
        work: Callable[Concatenate[Transaction, P], R],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """Run `work`, which only reads and serves a page for people; `ReadTimeout` if a statement takes longer."""

        def attempt() -> R:
            try:
                with BriefReadTransaction(self, seconds) as tx:
                    return work(tx, *args, **kwargs)
            except Exception as error:
                if error_advice.took_too_long(error):
                    raise ReadTimeout(seconds) from error
                raise

        return self.with_retries(attempt)

    def with_retries(self, attempt: Callable[[], R]) -> R:
        """Retry errors that may pass by themselves; a statement that timed out is retried once."""
        delay = 0.005
        enough = time.monotonic() + self.settings.statement_timeout * 3
        for tries in range(1, TRIES + 1):
            try:
                return attempt()
            except Exception as error:
                late = tries > 1 and (error_advice.took_too_long(error) or time.monotonic() > enough)
                given_up = isinstance(error, DatabaseUnavailable)
                if late or given_up or tries == TRIES or not self.is_passing(error):
                    error_advice.raise_as(self.explained(error), error)
                time.sleep(delay * random.uniform(0.5, 1.5))
                delay = min(delay * 2, 0.5)
        raise AssertionError("unreachable")

    def is_passing(self, error: BaseException) -> bool:
        """True if the error passes by itself; also if it was given up after several tries (`DatabaseUnavailable`)."""
        cause = error_advice.cause_of(_given_up(error))
        return self.dialect.is_transient(cause) or self.dialect.is_disconnect(cause)

    def is_outage(self, error: BaseException, *, own_tables: bool = True) -> bool:
        """True if the database itself fails, whatever it is given: no row is the cause, and it may work later.

        `own_tables`: all statements were ours. A user's statement may be wrong itself.
        """
        error = _given_up(error)
        if self.is_passing(error) or isinstance(error, DatabaseUnavailable):
            return True
        return error_advice.is_outage(error) and (own_tables or not error_advice.is_of_the_statement(error))

    def is_away(self, error: BaseException) -> bool:
        """True if the database did not answer, also if it was given up after several tries (`DatabaseUnavailable`).

        Then other processes could not reach it either. A lock timeout is an answer.
        """
        if isinstance(error, DatabaseUnavailable) and (given_up := error.__cause__) is not None:
            cause = error_advice.cause_of(given_up)
            return self.dialect.is_disconnect(cause) or error_advice.is_unready(cause)
        return self.is_outage(error)

    def explained(self, error: Exception) -> Exception:
        """The error as a user should see it."""
        ours = [f"{self.prefix}{table}" for table in self.tables]
        if (missing_table := error_advice.missing_table(error, self._where, ours)) is not None:
            return missing_table
        return error_advice.explained(
            error, self._where, passing=self.is_passing(error), hide=self.settings.hidden
        )

    def is_unavailable(self, error: BaseException) -> bool:
        """True if the error is a `DatabaseUnavailable` about this database, or a group of only such errors."""
        if isinstance(error, BaseExceptionGroup):
            return all(map(self.is_unavailable, error.exceptions))
        return isinstance(error, DatabaseUnavailable) and error.where == self._where

    def may_return(self, error: DatabaseUnavailable) -> bool:
        """True if the outage may end by itself, without an operator."""
        cause = error.__cause__
        return (
            cause is not None
            and self.is_passing(cause)
            and error_advice.advice(cause) in error_advice.MAY_PASS
        )

    def transaction(self, link: ConnectionHandle | None = None, *, single: bool = False) -> WriteTransaction:
        """An open transaction: committed at the end, rolled back by an exception.

        `single`: each statement may just as well stand alone, if that is cheaper.
        """
        return WriteTransaction(self, link, single)

    def reading(self, link: ConnectionHandle | None = None) -> ReadTransaction:
        """Statements that only read; each sees the data that is committed when it begins."""
        return ReadTransaction(self, link)

    def sqlalchemy(
        self, patience: float | None = None
    ) -> AbstractContextManager[tuple[Connection, Transaction]]:
        """A SQLAlchemy connection in a transaction, and our own view of the same transaction.

        `patience`: on SQLite, the longest wait for the write lock, in seconds.
        """
        return transactions.open_for_user(self, patience)

    def on(self, driver: Any, *, own: bool = False) -> Transaction:
        style = self.dialect.own_style if own else self.dialect.style
        renderer = self._renderers.get(style) or self.renderer(style)
        return Transaction(driver, self.dialect, renderer, self.column_types, self.call_housekeeping)

    # statements

    def renderer(self, style: ParamStyle) -> Renderer:
        found = self._renderers.get(style)
        if found is None:
            found = self._renderers[style] = Renderer(style, self._words(), self.dialect.among)
            if self._clock == self.dialect.now:
                found.share(type(self.dialect))
        return found

    def set_clock(self, sql: str | None) -> None:
        """Replace the server's clock (`{now}`) by this expression. For tests."""
        self._clock = sql or self.dialect.now
        self._renderers.clear()

    def shift_clock(self, micros: int) -> None:
        """Shift the server's clock (`{now}`) by this much. For tests."""
        self.clock_shift = micros
        self.set_clock(f"({self.dialect.now} + {micros})" if micros else None)

    def move_clock(self, micros: int) -> None:
        """Shift the clock by so much more."""
        with self._lock:
            self.shift_clock(self.clock_shift + micros)

    def _words(self) -> dict[str, str]:
        names = {table: self.qualified(table) for table in self.tables}
        hints = {word: getattr(self.dialect, word) for word in ("lock", "lock_skip", "by_key", "quote")}
        return names | {"now": self._clock} | hints

    def qualified(self, table: str) -> str:
        name = f"{self.prefix}{table}"
        if self.dialect.name == "postgresql" and name != name.lower():
            name = f'"{name}"'  # without quotes PostgreSQL would fold it to lower case
        return f'"{self.schema}".{name}' if self.schema else name

    @property
    def known_as(self) -> str:
        """A name that is the same in all processes that use these tables, whatever their URL; it need not be unique."""
        return f"{PurePath(self.url.database or '').name} {self.qualified('')}"

    # connections

    @property
    def engine(self) -> Engine:
        with self._lock:
            if self._engine is None:
                self._engine = engine.make_engine(
                    self, self.settings.pool_size - self.connections.spares.most
                )
                self.connections.go_through_sqlalchemy()
            return self._engine

    def drop_connections(self) -> None:
        """Close idle connections: after one was lost, the others may be lost too."""
        self.connections.drop()
        if self._engine is not None and not self.dialect.in_memory:
            self._engine.dispose()

    def _close_all(self) -> None:
        """Close all connections; none may be in use."""
        self.connections.drop_kept()
        self.drop_connections()

    def close(self) -> None:
        self.connections.close()
        with self._lock:
            engine, self._engine = self._engine, None
        if engine is not None:
            engine.dispose()

    def reset_after_fork(self) -> None:
        """In a forked child: the parent's connections are not ours to use or to close."""
        self._lock = threading.Lock()
        self.connections.reset_after_fork()
        if self._engine is not None:
            self._engine.dispose(close=False)
            self._engine = None


def _given_up(error: BaseException) -> BaseException:
    """The error that was given up after several tries, if this is one that says so."""
    if isinstance(error, DatabaseUnavailable) and error.__cause__ is not None:
        return error.__cause__
    return error
