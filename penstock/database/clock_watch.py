"""Notices when the database's clock is set, by comparing it with this process's monotonic clock.

Invariants 8 and 11. Times are compared by the database's clock alone. But a clock that steps forward makes every live
process look silent, and nothing in the database tells the two apart. So each process compares the database's clock with
its own monotonic clock. After a step no process is declared dead until all live ones have had time to write a heartbeat
by the new clock. This delay is bounded: even if the clock is set again and again, dead processes are found in the end.
After a step back the heartbeats of dead processes lie in the future; `reclaim.bring_back` corrects them.
"""

from __future__ import annotations

import time
from collections import deque

TOLERANCE = 0.1
"""The share of `reap_after` that a clock may gain or lose without counting as set: every process has that much time
left."""
LONGEST_DOUBT = 3.0
"""Declaring processes dead is delayed by at most this many times `reap_after`, however often the clock is set."""


class ClockWatch:
    """The readings of the database's clock, as one process took them lately."""

    def __init__(self, silence: float) -> None:
        self.silence = silence
        self._readings: deque[tuple[float, float, float]] = deque()
        """Readings: the monotonic time, and the least and most that the database's clock was ahead of it."""
        self._judge_from = -silence
        self._doubt_began = 0.0

    def compare(self, micros: int, asked: float, shift: int = 0) -> float:
        """Compare a reading of the database's clock, asked for at this monotonic time; returns by how many seconds it
        was set.

        `shift`: by how much a test has moved the clock on purpose, which counts as time that has passed.
        """
        now, says = time.monotonic(), (micros - shift) / 1_000_000
        least, most = says - now, says - asked
        while len(self._readings) > 1 and self._readings[0][0] < now - self.silence:
            self._readings.popleft()
        step = self._step(least, most)
        if step:
            self._readings.clear()
            if step > 0:
                self._put_off(now)
        self._readings.append((now, least, most))
        return step

    def _step(self, least: float, most: float) -> float:
        forward = max((least - before for _, _, before in self._readings), default=0.0)
        back = max((before - most for _, before, _ in self._readings), default=0.0)
        tolerance = self.silence * TOLERANCE
        if max(forward, back) <= tolerance:
            return 0.0
        return forward if forward > back else -back

    def _put_off(self, now: float) -> None:
        if now >= self._judge_from + self.silence:
            self._doubt_began = now  # there was time to judge since the last
        latest = self._doubt_began + LONGEST_DOUBT * self.silence
        self._judge_from = max(self._judge_from, min(now + self.silence, latest))

    @property
    def is_trusted(self) -> bool:
        """True if every live process has had time to write a heartbeat by the present clock."""
        return time.monotonic() >= self._judge_from
