"""Folds tallies of finished attempts into roll-ups, and measures the queues: a chore of the housekeeping.

One process does it for all, to save work; nothing breaks if two do (`queue/tallies.py`). Each part has a boundary of
its own, and so has every tally: one that cannot be folded keeps no other from being counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from penstock.database.boundary import Boundary, do_all
from penstock.database.database import Database
from penstock.queue import processes, stack_dumps, tallies
from penstock.telemetry.events import Stream

FOLD_INTERVAL = 5.0
MEASURE_INTERVAL = 15.0
PRUNE_INTERVAL = 3600.0
TERM = 15.0
"""For so long the right to fold is kept without being used."""


class TallyKeeper:
    """Reads before it writes, and does nothing where no work is done."""

    def __init__(self, database: Database, process: Callable[[], str], stream: Stream) -> None:
        self.database = database
        self.process = process
        self.tallies: Boundary[int] = Boundary(database, stream, "the tally")
        self._fold_at = self._measure_at = time.monotonic() + FOLD_INTERVAL
        self._prune_at = 0.0

    def turn(self) -> bool:
        """Fold some tallies, if it is time; True if there may be more."""
        now = time.monotonic()
        if now < self._fold_at:
            return False
        self._fold_at = now + FOLD_INTERVAL
        measured = self._measured(now)
        if not measured and not self.database.read(tallies.are_there):
            return False
        if not self.database.in_transaction(processes.take_lease, "rollups", self.process(), TERM):
            return False
        more = do_all(self.database, (partial(self._sample, measured), partial(self._prune, now), self._fold))
        if more:
            self._fold_at = 0.0
        return more

    def _sample(self, measured: list[tallies.QueueSample]) -> bool:
        if measured:
            self.database.in_transaction(tallies.sample, measured)
        return False

    def _prune(self, now: float) -> bool:
        if now >= self._prune_at:
            self._prune_at = now + PRUNE_INTERVAL
            self.database.in_transaction(tallies.prune)
            self.database.in_transaction(stack_dumps.prune)
        return False

    def _fold(self) -> bool:
        left = self.tallies.left
        try:
            return self.database.in_transaction(tallies.fold, tallies.BATCH, left)
        except Exception as error:
            if self.database.is_passing(error):
                raise
            some = self.database.read(tallies.first, left)
            self.tallies.handle_apart(some, self._fold_some, error)
            return len(some) == tallies.BATCH

    def _fold_some(self, some: Sequence[int]) -> bool:
        return self.database.in_transaction(tallies.fold, len(some), (), some)

    def _measured(self, now: float) -> list[tallies.QueueSample]:
        if now < self._measure_at:
            return []
        self._measure_at = now + MEASURE_INTERVAL
        return self.database.read(tallies.measure)
