"""Pauses after the system refused a thread or a process.

The jobs are given back and spend nothing; each pause is longer.

Invariant 11. All that is refused during one pause belongs to it; the first that is let through ends it all.
"""

from __future__ import annotations

import time

from penstock.values.outcome import REJECTED_DELAY

LONGEST_PAUSE = 60.0


class StartPause:
    """Computes how long a job waits after the system refused a thread or a process."""

    def __init__(self) -> None:
        self.refused_at: float | None = None
        """The time of the last refusal; None: there was none, and nothing else here needs to be asked."""
        self._until = 0.0
        self._pause = 0.0
        self.count = 0
        """Pauses in a row; 0: the last start was successful."""

    def refresh(self) -> float:
        """Note a refusal; returns the seconds until the job is tried again."""
        self.refused_at = now = time.monotonic()
        if now >= self._until:
            self.count += 1
            self._pause = min(self._pause * 2, LONGEST_PAUSE) if self._pause else REJECTED_DELAY
            self._until = now + self._pause
        return self._pause

    def end(self) -> None:
        """Note a successful start: the pause is over."""
        self._pause, self._until, self.count = 0.0, 0.0, 0

    @property
    def is_waiting(self) -> bool:
        """True while the pause lasts."""
        return time.monotonic() < self._until

    @property
    def is_fresh(self) -> bool:
        """True right after a refusal: nothing is claimed now, or every job in the queue would be given back in turn."""
        return self.refused_at is not None and time.monotonic() < self.refused_at + REJECTED_DELAY
