"""What the checker reads: the history of a schedule, and the tables at its end."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.simulation.hosts import Host
from tests.simulation.model import Model
from tests.simulation.world import World

Fact = tuple[Any, ...]
"""Time, who, kind, and what that kind tells. `commit` tells a transaction's number, and (time, kind, ...) per row."""


@dataclass(frozen=True, slots=True)
class Story:
    seed: int
    history: list[Fact]
    connection: sqlite3.Connection
    died: list[str]
    hosts: Sequence[Host]
    locks: Sequence[Any]
    """Every `app.lock()` that was ever asked for."""
    model: Model
    """What the rules make of it."""

    @classmethod
    def of(cls, world: World, connection: sqlite3.Connection, hosts: Sequence[Host]) -> Story:
        return cls(world.seed, world.history, connection, world.died, hosts, world.locks, Model())

    def facts(self, kind: str) -> Iterator[Fact]:
        return (fact for fact in self.history if fact[2] == kind)

    def written(self) -> Iterator[tuple[int, Fact]]:
        """Every row that was committed, with its transaction."""
        return ((fact[3], row) for fact in self.history if fact[2] == "commit" for row in fact[4])

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        return self.connection.execute(sql).fetchall()
