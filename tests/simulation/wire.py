"""The database of a schedule: real SQLite in memory, reached over wires that can be cut.

SQLite has one writer at a time, so all wires lead to one connection, and a transaction has it for itself: the others
wait at their BEGIN. What is open on a wire that is cut is rolled back, as a server does. Everything that commits is
told to the history by triggers, in the order in which it was written; what is rolled back never was.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from sqlalchemy.pool import NullPool

from penstock.database.sqlite import Sqlite
from penstock.reconcile.columns import from_micros
from tests.simulation.fibers import Asked

if TYPE_CHECKING:
    from sqlalchemy import URL

    from penstock.settings import Settings
    from tests.simulation.fibers import Fiber
    from tests.simulation.world import World


class Disconnected(sqlite3.ProgrammingError):
    """The wire was cut."""

    def __init__(self) -> None:
        super().__init__("Cannot operate on a closed database.")


class Faults:
    """What happens to a statement or a commit on its way. The nemesis has opinions; this one is kind."""

    away_until = 0
    """Until then the database cannot be reached."""
    strikes = False
    """Statements are struck now and then: ask before each."""

    def statement(self, wire: Wire) -> Exception | None:
        return None

    def commit(self, wire: Wire) -> str:
        """`passes`, `refused`, `lost` (not committed, and nobody says so) or `unanswered` (committed)."""
        return "passes"

    def committed(self, world: World) -> None:
        """Something was written: others may hear of it, or not."""


class Server:
    """The one connection, who has it, and what it has written so far."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=512)
        self.connection.execute("PRAGMA secure_delete = OFF")  # nobody looks for what was deleted
        self.connection.execute(
            "PRAGMA page_size = 1024"
        )  # a page is copied before it is written: small ones
        # The same throughout a statement: SQLite need not ask again for every row.
        self.connection.create_function("sim_now", 0, self._now, deterministic=True)
        self.connection.create_function("sim_host_now", 0, self._host_now, deterministic=True)
        self.connection.create_function("sim_calm", 0, self._calm, deterministic=True)
        self.connection.create_function("sim_log", -1, self._log)
        self.world: World | None = None
        self.faults = Faults()
        self.holder: Wire | None = None
        self.opener: Fiber | None = None
        """The fiber that has the transaction open."""
        self.written: list[tuple[object, ...]] = []
        self.transactions = 0
        self.renderers: dict[Any, Any] = {}
        """What the machines know in common: statements, how tasks are called, pipelines."""
        self.codecs: dict[str, Any] = {}
        self.definitions: dict[str, Any] = {}

    def begin_world(self, world: World | None, faults: Faults) -> None:
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")
        self.world = world
        self.faults = faults
        self.holder = self.opener = None
        self.written = []
        self.transactions = 0

    def is_free(self) -> bool:
        return self.holder is None

    def committed(self) -> None:
        world = self.world
        written, self.written = self.written, []
        if world is None or not written:
            return
        self.transactions += 1
        world.record("commit", self.transactions, written)
        self.faults.committed(world)

    def _now(self) -> int:
        return self.world.now if self.world is not None else 0

    def _host_now(self) -> int:
        """The clock of the host that asks: what nobody may decide by. For mutants."""
        world = self.world
        if world is None or world.current is None:
            return self._now()
        return world.current.owner.clock(world)

    def _calm(self) -> str:
        """When the trouble ended, as SQLAlchemy writes times."""
        assert self.world is not None
        return time_text(self.world.calm_at)

    def _log(self, *facts: object) -> None:
        if self.world is not None:
            self.written.append((self.world.now, *facts))


def time_text(micros: int) -> str:
    return f"{from_micros(micros):%Y-%m-%d %H:%M:%S.%f}"


class Wire:
    """A connection of one host, in the shape of `sqlite3.Connection`."""

    isolation_level = None

    def __init__(self, server: Server, home: list[Wire]) -> None:
        self.server = server
        self.home = home
        """The pool that it goes back to; after that was emptied, nobody's."""
        self.cut_off = False
        self.reads = False
        """Nothing was begun on the real connection: who only reads, while nobody else writes, needs no transaction."""

    def give_back(self) -> None:
        self.home.append(self)

    @property
    def in_transaction(self) -> bool:
        return self.server.holder is self

    def cursor(self) -> Cursor:
        return Cursor(self)

    def execute(self, sql: str, parameters: Any = ()) -> Cursor:
        return Cursor(self).execute(sql, parameters)

    def begin(self, reads: bool = False) -> None:
        server, world = self.server, self.server.world
        if world is not None and world.current is not None:
            world.give_way("begin")
            if server.holder is not None:
                world.wait(Asked(server.is_free), 10.0)
                if server.holder is not None:
                    raise sqlite3.OperationalError("database is locked")
            self._meet_fate(world)
        self.reads = reads
        if not reads:
            server.connection.execute("BEGIN")
        server.holder = self
        server.opener = world.current if world is not None else None

    def end(self) -> None:
        """Commit, as far as the faults let it."""
        server, world = self.server, self.server.world
        if world is None or world.current is None:
            self._really_commit()
            return
        world.give_way("commit")
        if self.cut_off:
            raise Disconnected
        fate = server.faults.commit(self)
        if fate == "refused":
            raise sqlite3.OperationalError("database is locked")
        if fate == "lost":
            self.cut()
            raise Disconnected
        self._really_commit()
        if fate == "unanswered":
            self.cut()
            raise Disconnected

    def _really_commit(self) -> None:
        self.server.connection.execute("COMMIT")
        self.server.holder = None
        self.server.committed()

    def undo(self) -> None:
        server = self.server
        if server.holder is self:
            server.holder = None
            if self.reads:
                assert not server.written, "somebody writes who said that it only reads"
                return
            server.connection.execute("ROLLBACK")
            server.written = []

    def cut(self) -> None:
        """From here on nothing gets through; what is open is rolled back."""
        self.undo()
        self.cut_off = True

    def passes(self) -> None:
        """Before a statement: somebody else may go first, and it may not get through at all."""
        world = self.server.world
        if world is not None and (fiber := world.current) is not None:
            if world.stickiness == 1.0 and fiber.owner.alive:
                world.now += 50  # as `give_way` would have it
            else:
                world.give_way(fiber.point)
            self._meet_fate(world)
        elif self.cut_off:
            raise Disconnected

    def _meet_fate(self, world: World) -> None:
        faults = self.server.faults
        if self.cut_off:
            self._fail(Disconnected())
        if faults.strikes or world.now < faults.away_until:
            error = faults.statement(self)
            if error is not None:
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        if isinstance(error, Disconnected):
            self.cut()
        raise error

    # what SQLAlchemy wants of a connection

    def create_function(self, *_: object, **__: object) -> None:
        """Ours are there already."""

    def commit(self) -> None:
        if self.server.holder is self:
            self.end()

    def rollback(self) -> None:
        self.undo()

    def close(self) -> None:
        self.cut()


class Cursor:
    """A cursor on a wire."""

    __slots__ = ("real", "wire")

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.real = wire.server.connection.cursor()

    def execute(self, sql: str, parameters: Any = ()) -> Cursor:
        self.wire.passes()
        self.real.execute(sql, parameters)
        return self

    def executemany(self, sql: str, rows: Any) -> Cursor:
        self.wire.passes()
        self.real.executemany(sql, rows)
        return self

    def fetchall(self) -> list[Any]:
        return self.real.fetchall()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


class Lent:
    """A wire on loan, in the shape of what SQLAlchemy's pool lends; a tenth of a schedule was spent there."""

    __slots__ = ("driver_connection",)

    def __init__(self, wire: Wire) -> None:
        self.driver_connection = wire

    def close(self) -> None:
        self.driver_connection.give_back()

    def invalidate(self) -> None:
        self.driver_connection.cut()


class SharedPool(NullPool):
    """Handlers that ask SQLAlchemy for a connection get wires from the same pool as everybody."""

    def __init__(
        self, creator: Any, pool_size: int = 0, max_overflow: int = 0, timeout: float = 0, **options: Any
    ) -> None:
        super().__init__(creator, **options)

    def _do_return_conn(self, record: Any) -> None:
        if record.dbapi_connection is not None:
            record.dbapi_connection.give_back()


class WiredSqlite(Sqlite):
    """The dialect over wires. The queue's floor is used, as on a server, so that sweeps are needed."""

    keeps_dead_rows = True

    def __init__(self, server: Server) -> None:
        super().__init__("simulated", 10.0)
        self.server = server
        self.wires: list[Wire] = []
        self.idle: list[Wire] = []
        """Those that the host's pool has at hand."""

    def connect(self) -> Wire:
        if self.idle:
            return self.idle.pop(0)
        wire = Wire(self.server, self.idle)
        self.wires.append(wire)
        return wire

    def loan(self) -> Lent:
        return Lent(self.connect())

    def empty_pool(self) -> None:
        idle, self.idle = self.idle, []
        for wire in idle:
            wire.cut()

    def cut_all(self) -> None:
        wires, self.wires = self.wires, []
        for wire in wires:
            wire.cut()

    def engine_options(self, url: URL, settings: Settings) -> dict[str, Any]:
        return {"creator": self.connect, "poolclass": SharedPool}

    def connected(self, driver: Any) -> None:
        """All wires lead to the same connection."""

    def execute(self, driver: Wire, opened: object, sql: str, parameters: Any) -> Any:
        driver.passes()
        return self.server.connection.execute(sql, parameters)

    def begin(self, driver: Wire, *_: object) -> None:
        driver.begin()

    def begin_reading(self, driver: Wire) -> None:
        driver.begin(reads=True)

    def commit(self, driver: Wire, *_: object) -> None:
        if driver.in_transaction or driver.cut_off:
            driver.end()

    def rollback(self, driver: Wire, *_: object) -> None:
        driver.undo()
