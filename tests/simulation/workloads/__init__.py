"""What a schedule works on. A workload declares tasks, says what clients do, and judges what came of it.

Others are added by a module with a class of this shape and a line in `ALL` (`tests/simulation/schedule.py`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import sqlite3

    from penstock.app import Penstock
    from tests.simulation.hosts import ClientHost
    from tests.simulation.story import Story

Act = Callable[["ClientHost"], None]
"""One thing that a client does. It may be cut short by the death of its host, and is then repeated or left."""


class Workload(Protocol):
    name: str
    often: int
    """How often it is played, against the others."""
    unfinished: str
    """A query for how much of this workload has not come to its end, beside the jobs."""

    def prepare(self, connection: sqlite3.Connection) -> None:
        """Make the user's own tables, with triggers that call `sim_log(kind, ...)`. Once."""

    def declare(self, app: Penstock) -> None:
        """Declare tasks, on every machine's app. Once."""

    def fill(self, connection: sqlite3.Connection, rng: random.Random) -> Sequence[str]:
        """Put the user's own rows there, before any process moves. Says which reconcilers run in this schedule."""

    def script(self, rng: random.Random) -> Sequence[Act]:
        """What clients will do in this schedule."""

    def check(self, story: Story) -> list[str]:
        """What is wrong with what came of it, beside what is wrong with any workload."""
