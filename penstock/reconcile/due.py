"""When the rows that this process has worked on come due again: so that nobody has to ask the database all the time."""

from __future__ import annotations

import heapq
import threading
import time

GRAIN = 0.05
LONGEST = 3600.0


class DueTimes:
    """A coarse calendar of this process. Rows of other processes are found by looking now and then."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._known: set[float] = set()
        self._lock = threading.Lock()

    def add(self, delay: float) -> None:
        """Something is due after so many seconds."""
        if delay > LONGEST:
            return
        at = (int((time.monotonic() + delay) / GRAIN) + 1) * GRAIN
        with self._lock:
            if at not in self._known:
                self._known.add(at)
                heapq.heappush(self._times, at)

    def until_next(self) -> float | None:
        """Seconds to wait; what is past is forgotten."""
        now = time.monotonic()
        with self._lock:
            while self._times and self._times[0] <= now:
                self._known.discard(heapq.heappop(self._times))
            return self._times[0] - now if self._times else None
