"""A transaction, through which storage functions run their statements: templates in, plain tuples out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Any

from penstock.database.connections import ConnectionHandle
from penstock.database.dialect import Ahead, BatchWrite, Dialect, Parameters, Row, TableWrite
from penstock.database.templates import Rendered, Renderer
from penstock.telemetry import fault_points

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.database.database import Database


SOON, SOON_TO_SLEEPERS = 10_000_000, 30_000_000
"""Microseconds; longer than the pause between two rounds of a `housekeeping` that gets no wake-up; the second, also
than the pause between two checks of an idle process (`runtime/pump/idle.py`)."""


class Transaction:
    """An open transaction on the driver's own connection."""

    __slots__ = (
        "_after_commit",
        "_call_housekeeping",
        "_stage",
        "_stages",
        "_statements",
        "column_types",
        "dialect",
        "driver",
        "leaves_chores",
        "opened",
        "optimistic",
        "renderer",
    )

    def __init__(
        self,
        driver: Any,
        dialect: Dialect,
        renderer: Renderer,
        column_types: Mapping[str, Mapping[str, str]],
        call_housekeeping: Callable[[Transaction], None] | None = None,
    ) -> None:
        self.driver = driver
        self.dialect = dialect
        self.renderer = renderer
        self.column_types = column_types
        self._call_housekeeping = call_housekeeping
        self.leaves_chores = False
        """True if there is work for the housekeeping. In a caller's transaction the writer has to wake it itself."""
        self.opened: object = None
        self.optimistic = False
        """True if statements may assume the likely result without waiting for it: the database checks it, or fails."""
        self._stage = "transaction"
        self._stages: dict[str, None] = {}
        self._statements = 0
        self._after_commit: list[Callable[[], None]] = []

    def rows(self, template: str, **parameters: object) -> list[Row]:
        cursor = self._execute(template, parameters)
        if self.opened is not None:
            # Tell the server that we wait: if this process freezes here, the server ends the session and frees its
            # locks.
            self.dialect.wait(self.opened)
        return list(cursor.fetchall())

    def row(self, template: str, **parameters: object) -> Row | None:
        found = self.rows(template, **parameters)
        return found[0] if found else None

    def send_ahead(self, template: str, **parameters: object) -> Ahead:
        """Send a query whose rows are read later: several queries share one round trip."""
        cursor = self._execute(template, parameters)
        if self.opened is None:
            # Without a pipeline the rows are read at once: an unread cursor would hold an old snapshot on SQLite.
            found: list[Row] = list(cursor.fetchall())
            return lambda: found

        def rows() -> list[Row]:
            self.dialect.wait(self.opened)
            return list(cursor.fetchall())

        return rows

    def run(self, template: str, **parameters: object) -> None:
        """Execute a write. Its answer is not waited for: an error may show at the next statement or the commit."""
        self._execute(template, parameters)

    def count(self, template: str, **parameters: object) -> int:
        """Execute a write and wait; the number of rows it touched."""
        cursor = self._execute(template, parameters)
        self.dialect.wait(self.opened)
        return int(cursor.rowcount)

    def assume(self, condition: str, **parameters: object) -> None:
        """Fail the transaction if this condition does not hold, without waiting for the answer."""
        self.dialect.assume(self, condition, parameters)

    def assume_changed(self, update: str, expected: int, **parameters: object) -> None:
        """Execute an update, and fail the transaction if it does not change the expected number of rows, without
        waiting."""
        self.dialect.assume_changed(self, update, expected, parameters)

    def certify(self, template: str, **parameters: object) -> None:
        """Write rows on whose lock a decision rests, where other nodes know nothing of the lock.

        Of two such transactions on two nodes the second fails at its commit, and is tried again.
        """
        if self.dialect.locks_on_one_node:
            self.run(template, **parameters)

    def send_hint(self, template: str, **parameters: object) -> Any:
        """Send a hint, on which nothing depends. It is not a fault point, because it is not always sent.

        The cursor that will have its rows once the transaction has ended.
        """
        rendered = self.renderer.render(template)
        return self.dialect.execute(self.driver, self.opened, rendered.sql, self._bind(rendered, parameters))

    def start(self, template: str, **parameters: object) -> Any:
        """Send a query; the cursor that will have its rows, whether or not the caller waits for other answers first."""
        return self._execute(template, parameters)

    def insert(
        self,
        table: str,
        rows: Sequence[Parameters],
        *,
        ignore_duplicates: bool = False,
        **expressions: str,
    ) -> None:
        """Insert many rows in one statement. Fields are columns; `column="{now} + :field"` computes one."""
        if not rows:
            return
        fields = tuple(filter(self.column_types[table].__contains__, rows[0]))
        self.insert_together(_into(table, fields, ignore_duplicates, tuple(expressions.items())), rows)

    def insert_together(
        self, writes: BatchWrite, rows: Sequence[Parameters], shared: Parameters | None = None
    ) -> None:
        """One batch of fields into several tables: one statement where the database can.

        `shared`: fields that are the same for all rows, sent once.
        """
        if rows:
            self.dialect.write(self, self.renderer, writes, rows, shared or {})
            if writes.are_chores and not self.leaves_chores:
                soon = SOON_TO_SLEEPERS if self.dialect.pushes_wakeups else SOON
                if any(_wait(row, shared or row) < soon for row in rows):
                    self.leave_chores()

    def leave_chores(self) -> None:
        """Call the housekeeping after the commit."""
        if not self.leaves_chores:
            self.leaves_chores = True
            if self._call_housekeeping is not None:
                self._call_housekeeping(self)

    def after_commit(self, action: Callable[[], None]) -> None:
        """Register an action for after the commit, such as a wake-up. Nothing may depend on it."""
        self._after_commit.append(action)

    def committed(self) -> None:
        actions, self._after_commit = self._after_commit, []
        for action in actions:
            action()

    def stage(self, name: str) -> None:
        """Name what follows, for the points at which tests may stop it."""
        self._stage = name
        self._statements = 0
        if fault_points.watched:
            self._stages[name] = None

    def reach(self, point: str) -> None:
        """A point that every stage of this transaction has come to, such as its commit."""
        for stage in list(self._stages) or [self._stage]:
            fault_points.reach(f"{stage}.{point}")

    def reach_if_watched(self, point: str) -> None:
        if fault_points.watched:
            self.reach(point)

    def send(self, rendered: Rendered, parameters: Mapping[str, object]) -> None:
        """Execute a statement of a dialect's own making."""
        self.execute_rendered(rendered, self._bind(rendered, parameters))

    def execute_rendered(self, rendered: Rendered, parameters: Mapping[str, object]) -> Any:
        """Send a statement; the cursor that will have its answer."""
        if fault_points.watched:
            self.reach_statement()
        return self.dialect.execute(self.driver, self.opened, rendered.sql, parameters)

    def _execute(self, template: str, parameters: Mapping[str, object]) -> Any:
        """The same for a template. Every statement goes through here, so it calls few other functions."""
        renderer = self.renderer
        rendered = renderer.cache.get(template) or renderer.render(template)
        if rendered.lists or renderer.style == "numbered":
            parameters = self._bind(rendered, parameters)
        if fault_points.watched:
            self.reach_statement()
        return self.dialect.execute(self.driver, self.opened, rendered.sql, parameters)

    def execute_many(self, rendered: Rendered, rows: Sequence[Parameters]) -> None:
        if fault_points.watched:
            self.reach_statement()
        self.driver.cursor().executemany(rendered.sql, rows)

    def _bind(self, rendered: Rendered, parameters: Mapping[str, Any]) -> Mapping[str, object]:
        if self.renderer.style == "numbered":
            parameters = {name: parameters[name] for name in rendered.names}
        if not rendered.lists:
            return parameters
        bound = dict(parameters)
        for name, kind in rendered.lists.items():
            bound[name] = self.dialect.list_value(parameters[name], kind)
        return bound

    def reach_statement(self) -> None:
        """The point before the next statement."""
        if fault_points.watched:
            self._statements += 1
            fault_points.reach(f"{self._stage}.{self._statements}")


def _wait(row: Parameters, shared: Parameters) -> int:
    """Microseconds until the row is due. The regular rounds of the housekeeping find rows that are due much later."""
    return row.get("wait", shared.get("wait", 0))  # type: ignore[return-value]


@cache
def _into(
    table: str, fields: tuple[str, ...], ignore_duplicates: bool, expressions: tuple[tuple[str, str], ...]
) -> BatchWrite:
    columns = {name: f":{name}" for name in fields} | dict(expressions)
    return BatchWrite((TableWrite(table, columns, ignore_duplicates),))


# The blocks in which statements run: `with database.transaction()` and `with database.reading()`.
#
# Classes, not generators: a block is entered for every transaction, and a generator costs more than the bookkeeping of
# a statement.


class TransactionBlock(ABC):
    """A connection for the time of a block, and a transaction on it."""

    __slots__ = ("database", "link", "single", "tx")

    tx: Transaction

    def __init__(self, database: Database, link: ConnectionHandle | None, single: bool = False) -> None:
        self.database = database
        self.link = link or ConnectionHandle(database, brief=True)
        self.single = single

    @abstractmethod
    def begin(self, driver: object) -> object:
        """Begin a transaction on the connection; the dialect's object for it."""

    def __enter__(self) -> Transaction:
        gate = self.database.fork_gate
        if gate is None:
            return self._enter()
        gate.enter()
        try:
            return self._enter()
        except BaseException:
            gate.leave()
            raise

    def _enter(self) -> Transaction:
        driver = self.link.take()
        try:
            tx = self.tx = self.database.on(driver, own=True)
            tx.opened = self.begin(driver)
        except BaseException as error:
            self.link.release_after_error(error)
            raise
        return tx

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.leave(error)
        finally:
            if self.database.fork_gate is not None:
                self.database.fork_gate.leave()

    @abstractmethod
    def leave(self, error: BaseException | None) -> None:
        """End the block; `error` is the exception that ended it, if any."""

    def rollback(self) -> None:
        """Roll back. If the server refuses, the transaction stays open, and the connection must not be used again."""
        try:
            self.database.dialect.rollback(self.tx.driver, self.tx.opened)
        except Exception:
            self.link.is_unusable = not self.database.dialect.in_memory


class WriteTransaction(TransactionBlock):
    """Committed at the end, rolled back by an exception."""

    __slots__ = ()

    def begin(self, driver: object) -> object:
        dialect = self.database.dialect
        return dialect.begin_single(driver) if self.single else dialect.begin(driver)

    def leave(self, error: BaseException | None) -> None:
        tx = self.tx
        if error is not None:
            self.rollback()
            self.link.release_after_error(error)
            return
        try:
            if fault_points.watched:
                tx.reach("commit")
            self.database.dialect.commit(tx.driver, tx.opened)
        except BaseException as refused:
            self.rollback()
            self.link.release_after_error(refused)
            raise
        self.link.release()
        if fault_points.watched:
            tx.reach("committed")
        tx.committed()


class BriefReadTransaction(TransactionBlock):
    """Reads with a limit on the time of each statement. Rolled back: nothing was written."""

    __slots__ = ("seconds",)

    def __init__(self, database: Database, seconds: float) -> None:
        super().__init__(database, None)
        self.seconds = seconds

    def begin(self, driver: object) -> object:
        return self.database.dialect.begin_brief_reading(driver, self.seconds)

    def leave(self, error: BaseException | None) -> None:
        self.rollback()
        try:
            self.database.dialect.end_brief_reading(self.tx.driver)
        except Exception:  # the connection is lost, or cannot be used as it is
            self.link.is_unusable = True
        if error is None:
            self.link.release()
        else:
            self.link.release_after_error(error)


class ReadTransaction(TransactionBlock):
    """Rolled back in any case: nothing was written."""

    __slots__ = ()

    def begin(self, driver: object) -> object:
        return self.database.dialect.begin_reading(driver)

    def leave(self, error: BaseException | None) -> None:
        self.rollback()
        if error is None:
            self.link.release()
        else:
            self.link.release_after_error(error)
