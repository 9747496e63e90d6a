"""The chores of limits: let go what waits although there is room, and tidy up. Part of the housekeeping."""

from __future__ import annotations

import time

from penstock.database.engine import Database
from penstock.queue import admission, upkeep
from penstock.queue.wakeups import Wakeups, ready

TIDY_INTERVAL = 10.0
SHORTEST_PAUSE = 0.02
"""A rate of thousands a second is let go in portions."""
LONGEST_PAUSE = 1.0
"""As long as somebody waits: others may start and end what counts, and need not call us."""


class LimitKeeper:
    """Does nothing where nobody uses limits, and reads before it writes."""

    def __init__(self, database: Database, wakeups: Wakeups) -> None:
        self.database = database
        self.wakeups = wakeups
        self.next_due: float | None = None
        """Seconds until a limit that somebody waits for may have room again; None: nobody waits."""
        self._tidy_at = time.monotonic() + TIDY_INTERVAL
        self._after = ""

    def turn(self, parked: bool, limited: bool) -> bool:
        """True if somebody could go on."""
        self.next_due = LONGEST_PAUSE if parked else None
        worked = parked and self._sweep()
        if limited and time.monotonic() >= self._tidy_at:
            self._tidy_at = time.monotonic() + TIDY_INTERVAL
            self.database.in_transaction(upkeep.tidy)
        return worked

    def _sweep(self) -> bool:
        seen = self.database.read(upkeep.look, self._after)
        self._after = seen.after or ""
        if seen.next is not None:
            self.next_due = min(max(seen.next, SHORTEST_PAUSE), LONGEST_PAUSE)
        if not seen.free:
            return seen.after is not None
        swept = self.database.in_transaction(admission.sweep, seen.free)
        for queue, tier in sorted(set(swept.lanes)):
            self.wakeups.tell(ready(queue, tier))
        # Whoever went over to another line left its place to the next: look again.
        return bool(swept.lanes) or swept.has_news or seen.after is not None
