"""Folds tallies of finished attempts into roll-ups, and measures the queues: a chore of the housekeeping.

One process does it for all, to save work; nothing breaks if two do (`queue/tallies.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.database.database import Database
from penstock.queue import processes, stack_dumps, tallies

FOLD_INTERVAL = 5.0
MEASURE_INTERVAL = 15.0
PRUNE_INTERVAL = 3600.0
TERM = 15.0
"""For so long the right to fold is kept without being used."""


class TallyKeeper:
    """Reads before it writes, and does nothing where no work is done."""

    def __init__(self, database: Database, process: Callable[[], str]) -> None:
        self.database = database
        self.process = process
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
        if measured:
            self.database.in_transaction(tallies.sample, measured)
        if now >= self._prune_at:
            self._prune_at = now + PRUNE_INTERVAL
            self.database.in_transaction(tallies.prune)
            self.database.in_transaction(stack_dumps.prune)
        more = self.database.in_transaction(tallies.fold)
        if more:
            self._fold_at = 0.0
        return more

    def _measured(self, now: float) -> list[tallies.QueueSample]:
        if now < self._measure_at:
            return []
        self._measure_at = now + MEASURE_INTERVAL
        return self.database.read(tallies.measure)
