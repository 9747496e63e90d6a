"""Rest: where others tell of what is new, a process that holds nothing need not ask for it all the time.

After a while in which nothing was held, heard or found, the pump and the housekeeping ask nothing more, and instead of
a heartbeat there is a glance now and then: one statement that renews the process row and tells whether there is
anything at all to do. Whatever is heard, claimed or found ends the rest at once.

Nothing rests on a wake-up: whatever nobody told of is found by the next glance. And the rest is a lease that runs out
by itself: it counts for a little longer than it takes to the next glance, and only if the ear has heard what that very
glance made the database say. Who is in doubt polls, as everybody does where nobody tells.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from penstock.database.ears import Ear, PostgresEar, hears
from penstock.database.engine import Database
from penstock.values.ids import new_id

CALM = 10.0
"""So long nothing must have been held, heard or found."""
INTERVAL = 20.0
"""Between two glances; and never so long that others could wonder whether we live (see `REAPED`)."""
REAPED = 2 / 3
"""So much of the time after which a silent process is taken for dead may pass between two glances."""
SLACK = 1.25
"""A rest counts for so many intervals; then another glance is overdue."""
ECHO = 2.0
"""So soon the ear must have heard what a glance has sent."""
DOUBT = 60.0
"""So long it is taken for deaf if it has not."""


class Begun(NamedTuple):
    """A glance, and what the world was like when it was made."""

    proof: str
    before: str | None
    """The proof of the glance before it, as long as that went on: until this one is heard, that one counts."""
    at: float
    stirred_at: float


class Rest:
    """Whether this process rests. Asked and told by the pump, the housekeeping and the heartbeat, in their threads."""

    def __init__(
        self,
        ear: PostgresEar | None = None,
        reap_after: float = 30.0,
        holds: Callable[[], bool] = lambda: False,
        woken: Callable[[], None] = lambda: None,
    ) -> None:
        self.ear = ear
        self.interval = longest_silence(reap_after)
        self.holds = holds
        self.woken = woken
        """The pump must look by itself."""
        self.called = threading.Event() if ear is not None else None
        """Set when a rest ends: the heartbeat goes on."""
        self._begun: Begun | None = None
        self._asked = ""
        self._stirred_at = time.monotonic() if ear is not None else 0.0
        self._doubt_until = 0.0

    @property
    def channel(self) -> str:
        """Where the proof is to be said."""
        return self.ear.own_channel if self.ear is not None else ""

    @property
    def is_on(self) -> bool:
        """Nobody need ask the database for anything: what there is will be told, or found by the next glance."""
        begun = self._begun
        if begun is None or self.ear is None or begun.stirred_at != self._stirred_at:
            return False
        now, heard = time.monotonic(), self.ear.echoed
        if heard is None or now >= begun.at + self.interval * SLACK:
            return False
        return heard in (begun.proof, self._asked) or (heard == begun.before and now <= begun.at + ECHO)

    def stir(self) -> None:
        """Something was claimed, settled, heard of or found."""
        if self.called is None:
            return
        self._stirred_at = time.monotonic()
        begun, self._begun = self._begun, None
        if begun is not None:
            self.called.set()

    def rouse(self) -> None:
        """The same, for anybody but the pump: it is to look now."""
        self.stir()
        self.woken()

    def is_wanted(self) -> bool:
        """It is quiet, and the ear seems to hear: from now on a glance does instead of a heartbeat."""
        if self.ear is None or not self.ear.connected:
            return False
        now = time.monotonic()
        begun = self._begun
        if begun is not None and self.ear.echoed != begun.proof and now > begun.at + ECHO:
            self._begun, self._doubt_until = None, now + DOUBT
            self.woken()
        return now >= max(self._stirred_at + CALM, self._doubt_until) and not self.holds()

    def is_due(self) -> bool:
        """It is time for a glance."""
        begun = self._begun
        if begun is None or begun.stirred_at != self._stirred_at:
            return True
        return time.monotonic() >= begun.at + self.interval

    def try_on(self) -> Begun:
        """Before a glance. What is stirred while it is under way has come after it."""
        before = self._begun.proof if self._begun is not None else None
        self._asked = new_id()
        return Begun(self._asked, before, time.monotonic(), self._stirred_at)

    def begin(self, glance: Begun) -> None:
        """It was made, and nothing stands against resting once its proof is heard."""
        self._begun = glance

    def end(self) -> None:
        """It failed."""
        self._begun = None


def longest_silence(reap_after: float) -> float:
    """How long a process that rests is silent at most, as far as it depends on the process itself."""
    return min(INTERVAL, reap_after * REAPED)


def resting(database: Database, ear: Ear, holds: Callable[[], bool], woken: Callable[[], None]) -> Rest:
    """The rest of a worker. Who was told how often to look does so."""
    settings = database.settings
    free = settings.poll_interval is None and settings.housekeeping_interval is None
    tells = settings.notify and hears(database)
    if free and tells and isinstance(ear, PostgresEar):
        return Rest(ear, settings.reap_after, holds, woken)
    return Rest()
