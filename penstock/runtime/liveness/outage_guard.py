"""Outage guard: a process that was cut off from the database does not, once back, declare silent processes dead.

Invariant 11: an outage spends nothing. A process that could not write its heartbeat because the database was away
looks dead to the process that reconnects first. A process that was stopped itself, as all are on a machine that sleeps
or has no processor left, does not judge either: its own heartbeat must be recent. Nor does it judge while the
database's clock has just been set (see `clock_watch`).

How long it waits before it judges is measured by the database's clock, by which the silence of the others is measured
too: a local clock may leap. A wait begins with the first reading of that clock after its cause.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from penstock.database.clock_watch import ClockWatch

SLOW = 0.25
"""The share of `reap_after` after which a slow answer counts as no answer."""

NEWCOMER = 2
"""How many heartbeats a new process waits before it declares others dead: by then every live process has written its
own."""

STOPPED = 0.75
"""The share of `reap_after`: a process without a heartbeat of its own for this long was stopped, and perhaps others
were too."""


class OutageGuard:
    """Tells whether this process has reached the database well enough to declare others dead."""

    def __init__(self, silence: float, is_away: Callable[[BaseException], bool] = lambda _: True) -> None:
        """`is_away`: whether an error says that the database did not answer. One about a row is an answer too."""
        self.silence = silence
        self.is_away = is_away
        self.clock = ClockWatch(silence)
        self._lock = threading.Lock()
        self._wait = 0.0
        """Seconds to wait from the next reading of the database's clock on."""
        self._judge_from = self._read = 0
        """By the database's clock, in microseconds: when this process may judge, and the last reading."""
        self._cut_off = False
        self._heard_until: float | None = None
        """Until then the last heartbeat of this process is recent; None: this process writes no heartbeat."""

    def arrive(self, heartbeat: float) -> None:
        """Start: a new process cannot know whether the database was away until just now."""
        self.heard(heartbeat)
        self._wait_for(min(NEWCOMER * heartbeat, self.silence))

    def heard(self, heartbeat: float) -> None:
        """Note that this process has written its heartbeat."""
        now = time.monotonic()
        if self._was_stopped(now):
            self._wait_for(self.silence)
        self._heard_until = now + max(STOPPED * self.silence, NEWCOMER * heartbeat)

    def compare(self, micros: int, asked: float, shift: int) -> float:
        """The database was asked then, and says what time it is. How many seconds its clock was set by.

        `shift`: so far a test has moved the clock on purpose.
        """
        with self._lock:
            if self._wait:
                self._judge_from = max(self._judge_from, micros + int(self._wait * 1_000_000))
                self._wait = 0.0
            # No wait is longer: the clock was set back since.
            self._judge_from = min(self._judge_from, micros + int(self.silence * 1_000_000))
            self._read = micros
        return self.clock.compare(micros, asked, shift)

    @property
    def may_declare_dead(self) -> bool:
        """True if every other live process has had time to write its heartbeat."""
        with self._lock:
            waited = not self._wait and self._read >= self._judge_from
        in_touch = waited and not self._cut_off and not self._was_stopped(time.monotonic())
        return in_touch and self.clock.is_trusted

    def _wait_for(self, seconds: float) -> None:
        with self._lock:
            self._wait = max(self._wait, seconds)

    def _was_stopped(self, now: float) -> bool:
        return self._heard_until is not None and now > self._heard_until

    def exchange(self) -> DatabaseCall:
        """Around something that asks the database. What is given tells whether it has been quick so far."""
        return DatabaseCall(self)

    def exchanged(self, quick: bool) -> None:
        """The database has answered."""
        if self._cut_off or not quick:
            self._cut_off = False
            self._wait_for(self.silence)

    def failed(self) -> None:
        """The database has not answered."""
        self._cut_off = True


class DatabaseCall:
    """One question to the database, and how long its answer takes."""

    __slots__ = ("began", "outage_guard")

    def __init__(self, outage_guard: OutageGuard) -> None:
        self.outage_guard = outage_guard

    def quick(self) -> bool:
        return time.monotonic() - self.began <= self.outage_guard.silence * SLOW

    def __enter__(self) -> Callable[[], bool]:
        self.began = time.monotonic()
        return self.quick

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None:
            self.outage_guard.exchanged(self.quick())
        elif isinstance(error, Exception):
            if self.outage_guard.is_away(error):
                self.outage_guard.failed()
            else:
                self.outage_guard.exchanged(self.quick())
