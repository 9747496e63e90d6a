"""Removes jobs that are older than the retention: a chore of the housekeeping.

One process does it for all, by a lease, to save work; nothing breaks if two do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from penstock.database.boundary import Boundary
from penstock.database.database import Database
from penstock.queue import processes, retention
from penstock.telemetry.events import Stream
from penstock.values.ids import FIRST_ID

RETENTION_INTERVAL = 60.0


class JobRetention:
    """Walks over the finished jobs by their ids, a batch at a time; a full walk is followed by a pause."""

    def __init__(self, database: Database, process: Callable[[], str], stream: Stream) -> None:
        self.database = database
        self.settings = database.settings
        self.process = process
        self.old: Boundary[str] = Boundary(database, stream, "the old job")
        self._prune_at = time.monotonic() + RETENTION_INTERVAL
        self._after = FIRST_ID

    def turn(self) -> bool:
        """Remove some, if it is time; True if there may be more."""
        age = self.settings.retention
        return age is not None and time.monotonic() >= self._prune_at and self.prune(age)

    def prune(self, age: float) -> bool:
        """Remove one batch of jobs that finished longer ago than that; True if there may be more."""
        term = RETENTION_INTERVAL * 2
        if not self.database.in_transaction(processes.take_lease, "retention", self.process(), term):
            self._prune_at = time.monotonic() + RETENTION_INTERVAL
            return False
        after = self._prune_some(age)
        self._after = after or FIRST_ID
        if after is None:
            self._prune_at = time.monotonic() + RETENTION_INTERVAL
        return after is not None

    def _prune_some(self, age: float) -> str | None:
        """Where to go on; a job that cannot be removed is passed by."""
        walk = (age, self._after, self.settings.batch)
        try:
            return self.database.in_transaction(retention.prune, *walk)[1]
        except Exception as error:
            if self.database.is_passing(error):
                raise
            old, after = self.database.read(retention.candidates, *walk)

            def remove(some: Sequence[str]) -> int:
                return self.database.in_transaction(retention.remove, age, some)

            self.old.handle_apart(old, remove, error)
            return after
