"""Idle mode: where the database sends wake-ups, a process that holds nothing stops polling.

After a while in which nothing was held, heard or found, the pump and the housekeeping ask nothing more. Instead of a
heartbeat the process makes an idle check now and then: one statement that renews the process row and says whether
there is anything at all to do. Any work that is heard of, claimed or found ends idle mode at once.

Correctness does not depend on a wake-up: the next idle check finds the work of which no wake-up told. Idle mode is a
lease that runs out by itself: it counts for a little longer than the time to the next idle check, and only if the
listener has heard what that very check made the database send. In doubt the process polls, as all processes do on a
database that sends no wake-ups.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from penstock.database.database import Database
from penstock.database.listeners import Listener, NotifyListener, ProvableListener, RelayedListener, hears
from penstock.values.ids import new_id

CALM = 10.0
"""Seconds without a claim, a wake-up or found work, before idle mode can begin."""
INTERVAL = 20.0
"""Seconds between two idle checks; shorter if other processes could declare this one dead before that (see
`REAPED`)."""
REAPED = 2 / 3
"""The share of `reap_after` that may pass between two idle checks."""
SLACK = 1.25
"""Idle mode lasts this many intervals after an idle check; then the next check is overdue."""
ECHO = 2.0
"""Seconds within which the listener must receive the message that an idle check has sent."""
DOUBT = 60.0
"""Seconds for which the process polls if the listener has not received it."""


class IdleCheck(NamedTuple):
    """An idle check, and the state of this process when it was made."""

    proof: str
    before: str | None
    """The proof of the idle check before it: until the listener hears this proof, that one counts."""
    at: float
    stirred_at: float


class IdleMode:
    """Whether this process is idle. The pump, the housekeeping and the heartbeat use it, each in its thread."""

    def __init__(
        self,
        listener: ProvableListener | None = None,
        reap_after: float = 30.0,
        holds: Callable[[], bool] = lambda: False,
        woken: Callable[[], None] = lambda: None,
    ) -> None:
        self.listener = listener
        self.interval = longest_silence(reap_after)
        self.holds = holds
        self.woken = woken
        """Called when the pump must poll again."""
        self.called = threading.Event() if listener is not None else None
        """Set when idle mode ends: the heartbeat goes on."""
        self._begun: IdleCheck | None = None
        self._asked = ""
        self._proved: object = None
        """The listener's connection to which a first proof was sent."""
        self._stirred_at = time.monotonic() if listener is not None else 0.0
        self._doubt_until = 0.0

    @property
    def channel(self) -> str:
        """The channel to which the proof is sent."""
        return self.listener.own_channel if self.listener is not None else ""

    @property
    def is_on(self) -> bool:
        """True if the process need not poll: a wake-up will tell of new work, or the next idle check will find it."""
        begun = self._begun
        if begun is None or self.listener is None or begun.stirred_at != self._stirred_at:
            return False
        now, heard = time.monotonic(), self.listener.echoed
        if heard is None or now >= begun.at + self.interval * SLACK:
            return False
        return heard in (begun.proof, self._asked) or (heard == begun.before and now <= begun.at + ECHO)

    @property
    def is_told(self) -> bool:
        """True if the listener has heard a proof, and has not lost its connection since."""
        return self.listener is not None and self.listener.connected and self.listener.echoed is not None

    @property
    def is_unproven(self) -> bool:
        """True if the listener has just connected and heard nothing so far: a proof is to be sent to it."""
        listener = self.listener
        if listener is None or listener.echoed is not None or listener.connection is None:
            return False
        return listener.connection is not self._proved

    def prove(self) -> str:
        """The proof to be sent, once for each connection. If the listener does not hear it, nothing follows from it."""
        self._proved = self.listener.connection if self.listener is not None else None
        return new_id()

    def activity(self) -> None:
        """Note activity: something was claimed, settled, heard of or found."""
        if self.called is None:
            return
        self._stirred_at = time.monotonic()
        begun, self._begun = self._begun, None
        if begun is not None:
            self.called.set()

    def wake_up(self) -> None:
        """The same, called from other services than the pump: the pump is to look now."""
        self.activity()
        self.woken()

    def is_wanted(self) -> bool:
        """True if nothing happens and the listener is connected: from now on idle checks replace the heartbeat."""
        if self.listener is None or not self.listener.connected:
            return False
        now = time.monotonic()
        begun = self._begun
        if begun is not None and self.listener.echoed != begun.proof and now > begun.at + ECHO:
            self._begun, self._doubt_until = None, now + DOUBT
            self.woken()
        return now >= max(self._stirred_at + CALM, self._doubt_until) and not self.holds()

    def is_due(self) -> bool:
        """True if it is time for an idle check."""
        begun = self._begun
        if begun is None or begun.stirred_at != self._stirred_at:
            return True
        return time.monotonic() >= begun.at + self.interval

    def begin_check(self) -> IdleCheck:
        """Call this before an idle check. Activity while the check is under way counts as later than the check."""
        before = self._begun.proof if self._begun is not None else None
        self._asked = new_id()
        return IdleCheck(self._asked, before, time.monotonic(), self._stirred_at)

    def begin(self, check: IdleCheck) -> None:
        """The check was made and found nothing to do: idle mode begins once the listener hears its proof."""
        self._begun = check

    def end(self) -> None:
        """The check failed: idle mode ends."""
        self._begun = None


def longest_silence(reap_after: float) -> float:
    """How long an idle process is silent at most, as far as it depends on the process itself."""
    return min(INTERVAL, reap_after * REAPED)


def resting(
    database: Database, listener: Listener, holds: Callable[[], bool], woken: Callable[[], None]
) -> IdleMode:
    """The idle mode of a worker. A worker whose settings name a polling interval never becomes idle."""
    settings = database.settings
    free = settings.poll_interval is None and settings.housekeeping_interval is None
    tells = settings.notify and hears(database)
    if free and tells and isinstance(listener, NotifyListener | RelayedListener):
        return IdleMode(listener, settings.reap_after, holds, woken)
    return IdleMode()
