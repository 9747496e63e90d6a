"""Who was cut off from the database must not, once back, judge others by their silence: they were cut off too.

Invariant 11: an outage spends nothing. A process that could not write its heartbeat because the database was away
looks dead to whoever comes back first. Nor may anybody judge who was stopped itself, as all are on a machine that
sleeps or has no processor left: only who is heard of may find others silent.
"""

from __future__ import annotations

import time
from collections.abc import Callable

SLOW = 0.25
"""An exchange that takes so much of the patience with silence is as good as none."""

NEWCOMER = 2
"""So many heartbeats a new process waits before it judges: whoever lives is heard of by then."""

STOPPED = 0.75
"""Who was not heard of itself for so much of that time was stopped, and perhaps not alone."""


class Contact:
    """How well this process reaches the database, as far as that matters for judging others."""

    def __init__(self, silence: float) -> None:
        self.silence = silence
        self._judge_from = 0.0
        self._cut_off = False
        self._heard_until: float | None = None
        """So long others have no reason to wonder about us; None: nobody has to hear of us."""

    def arrive(self, heartbeat: float) -> None:
        """We are new here: that all are silent may mean that the database was away until just now."""
        self.heard(heartbeat)
        self._judge_from = time.monotonic() + min(NEWCOMER * heartbeat, self.silence)

    def heard(self, heartbeat: float) -> None:
        """We have said that we live, and shall say so again after a heartbeat."""
        now = time.monotonic()
        if self._was_stopped(now):
            self._judge_from = now + self.silence
        self._heard_until = now + max(STOPPED * self.silence, NEWCOMER * heartbeat)

    @property
    def may_judge(self) -> bool:
        """Everybody else has had time enough to be heard."""
        now = time.monotonic()
        return not self._cut_off and now >= self._judge_from and not self._was_stopped(now)

    def _was_stopped(self, now: float) -> bool:
        return self._heard_until is not None and now > self._heard_until

    def exchange(self) -> Exchange:
        """Around something that asks the database. What is given tells whether it has been quick so far."""
        return Exchange(self)

    def exchanged(self, quick: bool) -> None:
        """The database has answered."""
        if self._cut_off or not quick:
            self._cut_off = False
            self._judge_from = time.monotonic() + self.silence

    def failed(self) -> None:
        """It has not."""
        self._cut_off = True


class Exchange:
    """One question to the database, and how long its answer takes."""

    __slots__ = ("began", "contact")

    def __init__(self, contact: Contact) -> None:
        self.contact = contact

    def quick(self) -> bool:
        return time.monotonic() - self.began <= self.contact.silence * SLOW

    def __enter__(self) -> Callable[[], bool]:
        self.began = time.monotonic()
        return self.quick

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.contact.exchanged(self.quick())
        elif issubclass(kind, Exception):
            self.contact.failed()
