"""Short of threads or processes: an outage of our own. It spends nothing, and each pause is longer than the last.

Invariant 11. All that is refused during one pause belongs to it; the first that is let through ends it all.
"""

from __future__ import annotations

import time

from penstock.values.outcome import HINDERED_FOR

LONGEST_PAUSE = 60.0


class Hindrance:
    """Refusals of the system, and how long a job waits that met one."""

    def __init__(self) -> None:
        self._met_at = -HINDERED_FOR
        self._until = 0.0
        self._pause = 0.0
        self.count = 0
        """Pauses in a row."""

    def refresh(self) -> float:
        """The system refuses: how many seconds the job that needed it waits before it is tried again."""
        self._met_at = now = time.monotonic()
        if now >= self._until:
            self.count += 1
            self._pause = min(self._pause * 2, LONGEST_PAUSE) if self._pause else HINDERED_FOR
            self._until = now + self._pause
        return self._pause

    def end(self) -> None:
        """The system has let something through."""
        self._pause, self._until, self.count = 0.0, 0.0, 0

    @property
    def is_waiting(self) -> bool:
        """The pause is not over."""
        return time.monotonic() < self._until

    @property
    def is_fresh(self) -> bool:
        """A moment ago: nothing is claimed for now, or all that is in the queue would be given back in turn."""
        return time.monotonic() < self._met_at + HINDERED_FOR
