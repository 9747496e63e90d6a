"""Connections to the server of a schedule: wires that can be cut.

What is open on a wire that is cut is rolled back, as a server does. Every statement, BEGIN and COMMIT is a place where
another fiber may go first, and where fate may strike.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.server import Faults, Server


class Disconnected(sqlite3.ProgrammingError):
    """The wire was cut."""

    def __init__(self) -> None:
        super().__init__("Cannot operate on a closed database.")


class Wire:
    """A connection of one host, in the shape of `sqlite3.Connection`."""

    isolation_level = None

    def __init__(self, server: Server) -> None:
        self.server = server
        self.lent: Any = None
        """How it goes back to its pool, when SQLAlchemy has it."""
        self.cut_off = False
        self.reads = False
        """Nothing was begun on the real connection: a fiber that only reads, while no other writes, needs no
        transaction."""
        self.implicit = False
        """What is sent up to a wait is a transaction by itself, as on PostgreSQL outside of BEGIN."""
        self.is_one_statement = False
        """True while statements are executed that are one on PostgreSQL: they are committed together."""

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
            if server.faults.interrupts:
                server.faults.interrupt(world)
            if server.holder is not None:
                world.wait(server, 10.0)
                if server.holder is not None:
                    raise sqlite3.OperationalError("database is locked")
            faults = server.faults
            if self.cut_off or faults.strikes or world.now < faults.away_until:
                self._meet_fate(faults)
        self.reads = reads
        if not reads:
            server.connection.execute("BEGIN")
        server.holder, server.flag = self, False
        server.opener = world.current if world is not None else None

    def end(self) -> None:
        """Commit, as far as the faults let it."""
        server, world = self.server, self.server.world
        if world is None or world.current is None:
            self._really_commit()
            return
        world.give_way("commit")
        if server.faults.interrupts:
            server.faults.interrupt(world)
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

    def begin_implicit(self) -> None:
        self.implicit = True

    def sync(self) -> None:
        """Commit what was sent since the last wait, and hear how that went."""
        if self.implicit and not self.is_one_statement and self.server.holder is self:
            self.end()

    def end_implicit(self) -> None:
        try:
            self.sync()
        finally:
            self.implicit = False

    def _really_commit(self) -> None:
        server = self.server
        server.connection.execute("COMMIT")
        server.holder, server.flag = None, True
        if server.written:
            server.committed()

    def undo(self) -> None:
        server = self.server
        if server.holder is self:
            server.holder, server.flag = None, True
            if self.reads:
                assert not server.written, "a fiber writes that said that it only reads"
                return
            server.connection.execute("ROLLBACK")
            server.written = []

    def cut(self) -> None:
        """From here on nothing gets through; what is open is rolled back."""
        self.undo()
        self.cut_off = True

    def passes(self) -> None:
        """Before a statement: another fiber may go first, and the statement may not get through at all."""
        if self.implicit and self.server.holder is not self:
            self.begin()
        world = self.server.world
        if world is not None and (fiber := world.current) is not None:
            if world.stickiness == 1.0 and fiber.owner.alive:
                world.now += 50  # as `give_way` would have it
            else:
                world.give_way(fiber.point)
            faults = self.server.faults
            if faults.interrupts:
                faults.interrupt(world)
            if self.cut_off or faults.strikes or world.now < faults.away_until:
                self._meet_fate(faults)
        elif self.cut_off:
            raise Disconnected

    def _meet_fate(self, faults: Faults) -> None:
        error = Disconnected() if self.cut_off else faults.statement(self)
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
    """A cursor on a wire. There is a real one once something was executed."""

    __slots__ = ("real", "wire")

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.real: Any = None

    def execute(self, sql: str, parameters: Any = ()) -> Cursor:
        self.wire.passes()
        self.real = self.wire.server.connection.execute(sql, parameters)
        return self

    def executemany(self, sql: str, rows: Any) -> Cursor:
        self.wire.passes()
        self.real = self.wire.server.connection.executemany(sql, rows)
        return self

    def close(self) -> None:
        if self.real is not None:
            self.real.close()

    def fetchall(self) -> list[Any]:
        return list(self.real.fetchall())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)
