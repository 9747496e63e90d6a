"""The package's way to the wires: its SQLite dialect, and a pool of wires for each host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy.pool import NullPool

from penstock.database.cursor_dialect import FailedAssumption
from penstock.database.sqlite import Sqlite
from penstock.pipelines.advance import run_rows
from penstock.queue.claim import FORGET_RECEIPTS
from tests.simulation.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.database.dialect import Ahead, Parameters
    from penstock.database.transaction import Transaction
    from penstock.database.url import Url
    from penstock.settings import Settings
    from tests.simulation.server import Server


SUCCEED = """
UPDATE {job_states} SET status = 'succeeded', token = NULL, process_id = NULL, reason = NULL, finished_at = {now}
WHERE job_id = :job_id AND token = :token AND status = 'running' AND NOT cancel_requested AND reason IS NULL
"""


OF_CLAIM = f"""
SELECT {run_rows.COLUMNS} FROM {{runs}} WHERE id IN (SELECT run_id FROM {{jobs}} WHERE id IN (
  SELECT held.value FROM {{claims}} c CROSS JOIN json_each(c.job_ids) AS held WHERE c.token = :token))
"""
"""The runs of a claim, asked for along with it, in SQLite's words."""


class Answer:
    """The rows of a statement, read at once: its transaction may end before they are asked for."""

    __slots__ = ("_rows", "rowcount")

    def __init__(self, cursor: Any) -> None:
        self._rows = cursor.fetchall()
        self.rowcount = cursor.rowcount

    def fetchall(self) -> list[Any]:
        return list(self._rows)


class Lent:
    """A wire on loan, in the shape of what SQLAlchemy's pool lends; a tenth of a schedule was spent there."""

    __slots__ = ("driver_connection", "home")

    def __init__(self, wire: Wire, home: list[Lent]) -> None:
        self.driver_connection = wire
        self.home = home
        """The pool that it goes back to; after that was emptied, a list that is not used."""

    def close(self) -> None:
        self.home.append(self)

    def invalidate(self) -> None:
        self.driver_connection.cut()


class SharedPool(NullPool):
    """Handlers that ask SQLAlchemy for a connection get wires from the same pool as all others."""

    def __init__(
        self, creator: Any, pool_size: int = 0, max_overflow: int = 0, timeout: float = 0, **options: Any
    ) -> None:
        super().__init__(creator, **options)

    def _do_return_conn(self, record: Any) -> None:
        if record.dbapi_connection is not None:
            record.dbapi_connection.lent.close()


class WiredSqlite(Sqlite):
    """The dialect over wires. The queue's floor is used, as on a server, so that sweeps are needed."""

    keeps_dead_rows = True

    def __init__(self, server: Server) -> None:
        super().__init__("simulated", 10.0)
        self.server = server
        self.wires: list[Wire] = []
        self.idle: list[Lent] = []
        """Those that the host's pool has at hand."""

    def loan(self) -> Lent:
        if self.idle:
            return self.idle.pop(0)
        wire = Wire(self.server)
        self.wires.append(wire)
        return Lent(wire, self.idle)

    def connect(self) -> Wire:
        """For SQLAlchemy, which gives it back through its pool."""
        lent = self.loan()
        lent.driver_connection.lent = lent
        return lent.driver_connection

    def empty_pool(self) -> None:
        idle, self.idle = self.idle, []
        for lent in idle:
            lent.driver_connection.cut()

    def cut_all(self) -> None:
        wires, self.wires = self.wires, []
        for wire in wires:
            wire.cut()

    def engine_options(self, url: Url, settings: Settings) -> dict[str, Any]:
        return {"creator": self.connect, "poolclass": SharedPool}

    def connected(self, driver: Any) -> None:
        """All wires lead to the same connection."""

    def execute(self, driver: Wire, opened: object, sql: str, parameters: Any) -> Any:
        driver.passes()
        cursor = self.server.connection.execute(sql, parameters)
        return Answer(cursor) if driver.implicit else cursor

    def begin_single(self, driver: Wire) -> Any:
        """On the fast path as PostgreSQL does it: no BEGIN; what is sent up to a wait is committed by itself."""
        if not self.fast_path.claim:
            return self.begin(driver)
        driver.begin_implicit()
        return driver

    def wait(self, opened: object) -> None:
        if isinstance(opened, Wire):
            opened.sync()

    def take_ready(self, tx: Transaction, *args: Any) -> Ahead:
        """The claim of several statements as one."""
        wire = tx.opened
        if not isinstance(wire, Wire):
            return super().take_ready(tx, *args)
        wire.is_one_statement = True
        try:
            taken = super().take_ready(tx, *args)()
        finally:
            wire.is_one_statement = False

        def rows() -> list[Any]:
            wire.sync()
            return taken

        return rows

    def succeed(
        self, tx: Transaction, rows: Sequence[Parameters], process: str | None, finished_tokens: Sequence[int]
    ) -> Ahead:
        """PostgreSQL's one statement as SQLite can say it: the transaction has the database for itself anyway."""
        done = [row for row in rows if tx.count(SUCCEED, job_id=row["job_id"], token=row["token"])]
        if tx.optimistic and len(done) < len(rows):
            raise FailedAssumption("a claim was lost, or cancelled")
        history = [dict(row) | {"process_id": process, "outcome": "succeeded"} for row in done]
        tx.insert("executions", history, started_at="{now} - :began_ago", finished_at="{now} - :ended_ago")
        if finished_tokens:
            tx.run(FORGET_RECEIPTS, tokens=finished_tokens)
        return lambda: [(row["job_id"],) for row in done]

    def begin(self, driver: Wire, *_: object) -> None:
        driver.begin()

    def begin_reading(self, driver: Wire) -> None:
        driver.begin(reads=True)

    def commit(self, driver: Wire, *_: object) -> None:
        if driver.implicit:
            driver.end_implicit()
        elif self.server.holder is driver or driver.cut_off:
            driver.end()

    def rollback(self, driver: Wire, *_: object) -> None:
        driver.implicit = False
        driver.undo()
