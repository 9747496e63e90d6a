"""Keeps limits: lets go the jobs that wait although there is room, and tidies up. A chore of the housekeeping."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from penstock.database.boundary import Boundary, do_all
from penstock.database.database import Database
from penstock.queue.limits import admission, upkeep, waiting_line
from penstock.queue.wakeups import Wakeups, ready
from penstock.telemetry.events import Stream
from penstock.values.limits import TaskLimits

TIDY_INTERVAL = 10.0
SHORTEST_PAUSE = 0.02
"""A rate of thousands a second is let go in portions."""
REVISE_INTERVAL, LONGEST_REVISE_INTERVAL = 5.0, 60.0
"""Once at the beginning, and then so often, waiting jobs are compared with the limits that the tasks declare now."""
REVISE_SHARE = 200
"""The comparison reads every job that waits: where that takes long, it is made so many times as rarely as it takes."""
LONGEST_PAUSE = 1.0
"""While a job waits for a limit: other processes may take and free slots without waking this one."""


class Declared(NamedTuple):
    """The tasks of a process: their names, and the limits of those that have some."""

    tasks: Callable[[], Collection[str]] = tuple
    limited: Mapping[str, TaskLimits] = {}


class LimitKeeper:
    """Does nothing where no limits are used, and reads before it writes."""

    def __init__(
        self, database: Database, wakeups: Wakeups, stream: Stream, declared: Declared | None = None
    ) -> None:
        self.database = database
        self.wakeups = wakeups
        self.keys: Boundary[str] = Boundary(database, stream, "the limit")
        self.declared = declared or Declared()
        self._revise_at = 0.0
        self.next_due: float | None = None
        """Seconds until a limit with waiting jobs may have a free slot again; None: no job waits."""
        self._tidy_at = time.monotonic() + TIDY_INTERVAL
        self._after = ""

    def turn(self, parked: bool, limited: bool) -> bool:
        """Do the chores of limits; True if there was something to do."""
        self.next_due = LONGEST_PAUSE if parked else None
        chores = (partial(self._revise, parked), partial(self._sweep, parked), partial(self._tidy, limited))
        return do_all(self.database, chores)

    def _tidy(self, limited: bool) -> bool:
        if limited and time.monotonic() >= self._tidy_at:
            self._tidy_at = time.monotonic() + TIDY_INTERVAL
            self.database.in_transaction(upkeep.tidy)
        return False

    def _revise(self, parked: bool) -> bool:
        """A deploy may have removed or renamed a limit for which jobs wait, or let more through."""
        if not parked or time.monotonic() < self._revise_at:
            return False
        tasks, worked, began = self.declared.tasks(), False, time.monotonic()
        lines = self.database.read(waiting_line.lines) if tasks else []
        pause = max(REVISE_INTERVAL, REVISE_SHARE * (time.monotonic() - began))
        self._revise_at = began + min(pause, LONGEST_REVISE_INTERVAL)
        for line in lines:
            if line.task not in tasks:
                continue
            limits = self.declared.limited.get(line.task)
            most = None if limits is None else limits.allows(line.key)
            if most is None:
                worked |= self._free(line)
            elif most > line.most:
                self.database.in_transaction(waiting_line.widen, line.key, most)
        return worked

    def _free(self, line: waiting_line.Line) -> bool:
        lanes, more = self.database.in_transaction(waiting_line.free, line.key, line.task)
        self._tell(lanes)
        if more:
            self._revise_at = 0.0
        return bool(lanes)

    def _tell(self, lanes: Collection[waiting_line.Lane]) -> None:
        for queue, tier in sorted(set(lanes)):
            self.wakeups.notify(ready(queue, tier))

    def _sweep(self, parked: bool) -> bool:
        if not parked:
            return False
        seen = self.database.read(upkeep.look, self._after)
        self._after = seen.after or ""
        if seen.next is not None:
            self.next_due = min(max(seen.next, SHORTEST_PAUSE), LONGEST_PAUSE)
        if not seen.free:
            return seen.after is not None
        left = set(self.keys.left)
        free = [key for key in seen.free if key not in left]
        swept = self.keys.handle(free, self._let_go) if free else []
        lanes = {lane for some in swept for lane in some.lanes}
        self._tell(lanes)
        # A job that went over to another line left its place to the next one: look again.
        return bool(lanes) or any(some.needs_sweep for some in swept) or seen.after is not None

    def _let_go(self, keys: Sequence[str]) -> admission.Admission:
        return self.database.in_transaction(admission.sweep, keys)
