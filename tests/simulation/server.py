"""The database server of a schedule: real SQLite in memory, and what all hosts know of it.

SQLite has one writer at a time, so all wires lead to one connection, and a transaction has it for itself: the others
wait at their BEGIN. Everything that commits is told to the history by triggers, in the order in which it was written;
what is rolled back never was.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from penstock.reconcile.columns import from_micros
from tests.simulation.poison import is_ghost

if TYPE_CHECKING:
    from tests.simulation.fibers import Fiber
    from tests.simulation.wire import Wire
    from tests.simulation.world import World


class Faults:
    """What happens to a statement or a commit on its way. The nemesis has opinions; this one is kind."""

    away_until = 0
    """Until then the database cannot be reached."""
    strikes = False
    """Statements are struck now and then: ask before each."""

    interrupts = False
    """Now and then no task waits any longer for a thread that is about to go on: ask before each."""

    def interrupt(self, world: World) -> None:
        """A task on an event loop may be told to end while this thread works for it."""

    def statement(self, wire: Wire) -> Exception | None:
        return None

    def commit(self, wire: Wire) -> str:
        """`passes`, `refused`, `lost` (not committed, and without an error) or `unanswered` (committed)."""
        return "passes"

    def committed(self, world: World) -> None:
        """Something was written: others may hear of it, or not."""


class Server:
    """The one connection, who has it, and what it has written so far."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=512)
        self.connection.execute("PRAGMA secure_delete = OFF")  # no test looks for what was deleted
        # A page is copied before it is written: small ones.
        self.connection.execute("PRAGMA page_size = 1024")
        # The same throughout a statement: SQLite need not ask again for every row.
        self.connection.create_function("sim_now", 0, self._now, deterministic=True)
        self.connection.create_function("sim_host_now", 0, self._host_now, deterministic=True)
        self.connection.create_function("sim_calm", 0, self._calm, deterministic=True)
        self.connection.create_function("sim_log", -1, self._log)
        self.world: World | None = None
        self.faults = Faults()
        self.holder: Wire | None = None
        self.flag = True
        """No fiber has it: what fibers wait for at their BEGIN."""
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
        self.flag = True
        self.written = []
        self.transactions = 0

    def committed(self) -> None:
        world = self.world
        written, self.written = self.written, []
        if world is None:
            return
        self.transactions += 1
        world.record("commit", self.transactions, written)
        self.faults.committed(world)

    def _now(self) -> int:
        return self.world.now if self.world is not None else 0

    def _host_now(self) -> int:
        """The clock of the host that asks: no statement may decide by it. For mutants."""
        world = self.world
        if world is None or world.current is None:
            return self._now()
        return world.current.owner.clock(world)

    def _calm(self) -> str:
        """When the trouble ended, as SQLAlchemy writes times."""
        assert self.world is not None
        return time_text(self.world.calm_at)

    def _log(self, *facts: object) -> None:
        if self.world is not None and not is_ghost(facts):
            self.written.append((self.world.now, *facts))


def time_text(micros: int) -> str:
    return f"{from_micros(micros):%Y-%m-%d %H:%M:%S.%f}"
