"""Notices when the database's clock is set: compared with how long one has waited oneself, it goes too far.

Invariants 8 and 11. Times are compared by the database's clock alone; but a clock that steps forward makes all who live
look silent, and nothing in the database tells that from silence. So each process holds what the database says beside
its own monotonic clock. After a step no process is judged until all have had time to be heard by the new clock. That is
bounded: a clock that is set again and again does not keep the dead for ever. What a step back does to the dead, whose
heartbeats then lie in the future, is mended in the database (see `reclaim.bring_back`).
"""

from __future__ import annotations

import time
from collections import deque

TOLERANCE = 0.1
"""So much of the patience with silence a clock may gain or lose without being taken for set: every
process has that much left."""
LONGEST_DOUBT = 3.0
"""So many times that patience judgement is put off at most, however often the clock is set."""


class ClockWatch:
    """The readings of the database's clock, as one process took them lately."""

    def __init__(self, silence: float) -> None:
        self.silence = silence
        self._told: deque[tuple[float, float, float]] = deque()
        """When, by our own clock, and how far the database's was ahead of that: at least, at most."""
        self._judge_from = -silence
        self._doubt_began = 0.0

    def told(self, micros: int, asked: float, shift: int = 0) -> float:
        """The database was asked then, and says what time it is. How many seconds it was set by; 0: it was not.

        `shift`: so far a test has moved the clock on purpose, which stands for time that has passed.
        """
        now, says = time.monotonic(), (micros - shift) / 1_000_000
        least, most = says - now, says - asked
        while len(self._told) > 1 and self._told[0][0] < now - self.silence:
            self._told.popleft()
        step = self._step(least, most)
        if step:
            self._told.clear()
            if step > 0:
                self._put_off(now)
        self._told.append((now, least, most))
        return step

    def _step(self, least: float, most: float) -> float:
        forward = max((least - before for _, _, before in self._told), default=0.0)
        back = max((before - most for _, before, _ in self._told), default=0.0)
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
        """Every living process has had time to be heard by the clock as it is now."""
        return time.monotonic() >= self._judge_from
