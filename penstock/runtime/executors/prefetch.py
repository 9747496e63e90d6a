"""How many claims a dispatcher may hold ahead of its handlers. One strategy for jobs, one for rows.

They differ because a claim ahead costs something else. A job that waits here is found by no other worker, so no more
wait than are done in one turn of the pump, and they are fetched in a few large claims. A row's claim has a lease that
must be renewed, and a reconciler's turn is as slow as the user's table: rows are fetched for a few turns as long as
those really take, and given back when handlers turn out to be slower.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from penstock.runtime.executors.dispatcher import Dispatcher

TURN = 0.02
"""About what a turn of the pump takes: so many jobs may wait here as are done in that time."""
ROW_TURN = 0.01
"""About what a turn of a reconciler's pump takes, until it is known better."""
TURNS_AHEAD = 3
"""Half of it is left when more is fetched: a turn, and half a turn for those that take longer."""


class Prefetch(Protocol):
    """Says how many claims the pump may bring to a dispatcher."""

    limit: int
    """Handlers at a time."""
    counts_threads: bool
    """True if handlers in threads and processes count for how long handlers take."""

    def room(self, load: Dispatcher[Any, Any]) -> int:
        """How many claims may come now. From the pump's thread."""

    def surplus(self, load: Dispatcher[Any, Any]) -> int:
        """How many of those that wait would wait too long."""

    def claimed(self) -> None:
        """The pump brings claims: its turn is over."""


class JobPrefetch:
    """Free places, and what will be done within a turn."""

    counts_threads = False

    def __init__(self, limit: int, most_waiting: int) -> None:
        self.limit = limit
        self.most_waiting = most_waiting

    def room(self, load: Dispatcher[Any, Any]) -> int:
        ahead = min(self.most_waiting, int(self.limit * TURN / max(load.average, 1e-5)))
        waiting = len(load.waiting) + len(load.coming)
        if ahead > self.limit and waiting > ahead // 2:
            return 0  # a few large claims cost less than many small ones
        return self.limit + ahead - len(load.active) - waiting - len(load.late)

    def surplus(self, load: Dispatcher[Any, Any]) -> int:
        return 0

    def claimed(self) -> None: ...


class RowPrefetch:
    """No rows while enough wait, all that fit once half of those are gone."""

    counts_threads = True

    def __init__(self, limit: int, most_waiting: int) -> None:
        self.limit = limit
        self.most_waiting = most_waiting
        self._turn = ROW_TURN
        self._asked = 0.0

    def room(self, load: Dispatcher[Any, Any]) -> int:
        ahead = self._ahead(load)
        taken, waiting = len(load.active) + len(load.late), len(load.waiting) + len(load.coming)
        if taken >= self.limit and waiting > ahead // 2:
            return 0
        self._asked = time.monotonic()
        return self.limit + ahead - taken - waiting

    def surplus(self, load: Dispatcher[Any, Any]) -> int:
        """Handlers take longer than it seemed: rows that would wait for them may be taken by others."""
        if len(load.active) + len(load.late) < self.limit:
            return 0
        return max(0, len(load.waiting) - self._ahead(load))

    def claimed(self) -> None:
        if self._asked:
            took = min(time.monotonic() - self._asked, 1.0)
            # Quick to believe in slow turns: it is those that let handlers run dry.
            self._turn += (took - self._turn) * (0.5 if took > self._turn else 0.05)

    def _ahead(self, load: Dispatcher[Any, Any]) -> int:
        """How many rows may wait: as many as are done in a few turns, by handlers past and present."""
        works = [*load.active.copy().values(), *load.late.copy().values()]
        present = [work.began for work in works if work.started]
        running = time.monotonic() - sum(present) / len(present) if present else 0.0
        done = TURNS_AHEAD * self.limit * self._turn / max(load.average, running, 1e-4)
        return min(self.most_waiting, int(done))
