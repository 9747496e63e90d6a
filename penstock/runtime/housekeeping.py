"""Housekeeping: promote what is due, take back what the dead held, let old work go.

Every role does it. Promotion and reclaiming are safe from everywhere at once; only retention is left to whoever holds
a lease, to save work.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from penstock.database.ears import hears
from penstock.database.engine import Database
from penstock.errors import AdvancementFailed
from penstock.queue import processes, reclaim, retention, schedule
from penstock.queue.glance import Seen
from penstock.queue.jobs import Follow
from penstock.queue.wakeups import ENDED, READY, Wakeups, ready
from penstock.runtime.contact import Contact
from penstock.runtime.limit_keeper import LimitKeeper
from penstock.runtime.neighbours import Neighbours
from penstock.runtime.rest import Rest
from penstock.runtime.service import Service, Turn
from penstock.settings import Settings
from penstock.telemetry.events import JobCrashed, ProcessReaped, Stream, WorkReclaimed
from penstock.values.ids import FIRST_ID

RETENTION_INTERVAL = 60.0
REAPS = 3
"""So many times within `reap_after` it is looked whether somebody is dead or something is held by nobody."""
AGAIN = 1.0
"""What one had sent that died just now may still arrive, or be locked until the server knows: one more look."""
GRAIN = 0.02
SELDOM, OFTEN = 5.0, 1.0
RARELY = 3600.0
"""The longest time without a round while the process rests; shorter where something is kept for a short time only."""
SHARE_OF_AGE = 100
LATE = 2.0
"""A glance that comes so much later than planned has still seen in time what is due before the one after it."""
Chore = Callable[[], bool]
"""Something to look after now and then; True if there was something to do."""


class Housekeeping(Service):
    """The chores of a process."""

    name = "housekeeping"

    def __init__(
        self,
        database: Database,
        process: Callable[[], str],
        wakeups: Wakeups,
        stream: Stream,
        follow: Follow,
        chores: tuple[Chore, ...] = (),
        next_chore: Callable[[], float | None] = lambda: None,
    ) -> None:
        super().__init__(stream)
        self.database = database
        self.process = process
        self.wakeups = wakeups
        self.follow = follow
        self.chores = chores
        self.next_chore = next_chore
        self._called = threading.Event()
        self.settings = database.settings
        self.next_due: float | None = None
        self.limits = LimitKeeper(database, wakeups)
        self.contact = Contact(self.settings.reap_after)
        self.neighbours = Neighbours(database, lambda: None)
        self._reap_at = 0.0
        self.rest = Rest()
        self._judge_at = math.inf
        """Also who rests looks then: somebody will have been silent for too long, or something was left to do."""
        self._looked_at = 0.0
        self._round_after = RARELY
        self.interval = looks_every(database, self.settings.housekeeping_interval)
        self._prune_at = time.monotonic() + RETENTION_INTERVAL
        self._prune_after = FIRST_ID

    def run(self) -> None:
        self.contact.arrive(self.settings.heartbeat_interval)
        super().run()

    def turn(self) -> Turn:
        self._looked_at = time.monotonic()
        with self.contact.exchange():
            worked = self.promote()
        if time.monotonic() >= self._reap_at:
            worked |= self.reap()
        for chore in self.chores:
            worked |= chore()
        if self.settings.retention is not None and time.monotonic() >= self._prune_at:
            worked |= self.prune(self.settings.retention)
        return Turn.WORKED if worked else Turn.IDLE

    def promote(self) -> bool:
        """Give a place in the queue to what is due, and to what has waited for a limit long enough."""
        seen = self.database.read(schedule.look)
        self.next_due = seen.due
        worked = self.limits.turn(seen.parked, seen.limited)
        if self.next_due is None or self.next_due > 0:
            return worked
        lanes = self.database.in_transaction(schedule.promote, self.settings.batch)
        for queue, tier in sorted(set(lanes)):
            self.wakeups.tell(ready(queue, tier))
        return worked or bool(lanes)

    def reap(self) -> bool:
        """Declare silent processes dead, and take back what the dead held."""
        silence = self.settings.reap_after
        buried = self._bury_neighbours()
        silent_in, orphaned = self.database.read(reclaim.look, silence, self.process())
        silent = silent_in is not None and silent_in < 0
        self._reap_at = time.monotonic() + (AGAIN if buried else self._until_reaping(silent_in))
        # Whoever rests knows nothing of the next round, but does not leave before this is done.
        self._judge_at = self._reap_at if buried or silent or orphaned else math.inf
        dead = self._declare_dead() if silent and self.contact.may_judge else []
        return buried | bool(dead) | ((orphaned or bool(dead)) and self.reclaim())

    def look_next_door(self) -> None:
        """Look at the neighbours, without a statement: if one is dead or new, look after that now."""
        if self.neighbours.changed:
            self._reap_at = 0.0
            self.call()

    def _bury_neighbours(self) -> bool:
        """True if somebody was seen to be dead: its work has no holder now, whoever has removed its row."""
        self.neighbours.meet(self.process())
        dead = self.neighbours.dead()
        for process in self.neighbours.bury(dead) if dead else []:
            self.stream.emit(ProcessReaped(process))
        return bool(dead)

    def _until_reaping(self, silent_in: float | None) -> float:
        """Who lives is heard of before that; who does not is found at that very time, or judged a little later."""
        if silent_in is not None and silent_in < 0:
            return min(self.settings.heartbeat_interval, self.settings.reap_after / 10)
        rarely = self.settings.reap_after / REAPS
        return rarely if silent_in is None else min(silent_in, rarely)

    def _declare_dead(self) -> list[str]:
        # An outage may begin here and end here: whoever is asked again after it was not to be heard meanwhile.
        with self.contact.exchange() as quick:
            silent = self.database.in_transaction(
                reclaim.reap_silent, self.settings.reap_after, self.process(), quick
            )
        for process in silent:
            self.stream.emit(ProcessReaped(process))
        return silent

    def reclaim(self) -> bool:
        try:
            crashed = self.database.in_transaction(reclaim.reclaim, self.follow)
        except AdvancementFailed as error:
            error.spend()
            raise
        for job in crashed:
            self.stream.emit(JobCrashed(job.job_id, job.task, job.process_id, job.status, job.reason))
        if len(crashed) >= reclaim.CLAIMS_PER_TURN:
            self._reap_at = 0.0  # there may be more
        if crashed:
            self.stream.emit(WorkReclaimed(len(crashed), sum(job.status == "failed" for job in crashed)))
            self.wakeups.tell(READY)
            self.wakeups.tell(ENDED)
        return bool(crashed)

    def prune(self, age: float) -> bool:
        """One batch of old work. A full walk is followed by a pause."""
        term = RETENTION_INTERVAL * 2
        if not self.database.in_transaction(processes.take_lease, "retention", self.process(), term):
            self._prune_at = time.monotonic() + RETENTION_INTERVAL
            return False
        _, after = self.database.in_transaction(retention.prune, age, self._prune_after, self.settings.batch)
        self._prune_after = after or FIRST_ID
        if after is None:
            self._prune_at = time.monotonic() + RETENTION_INTERVAL
        return after is not None

    def glanced(self, seen: Seen) -> None:
        """What was seen by a glance is looked after now, or when it is time if that is before the next glance."""
        now, soon = time.monotonic(), self.rest.interval + LATE
        self._round_after = RETENTION_INTERVAL if seen.runs else rounds_at_rest(self.settings)
        silent = [after for after in (seen.holder_silent, seen.silent) if after is not None]
        if seen.orphaned or min(silent, default=0.0) < 0:
            self._reap_at = self._judge_at = now
            self.call()
        elif seen.holder_silent is not None and seen.holder_silent < soon:
            self._reap_at = self._judge_at = now + seen.holder_silent
            self.call()
        tidy = seen.limited and now >= self._looked_at + RETENTION_INTERVAL
        if seen.kept or tidy or (seen.due is not None and seen.due < soon):
            self.call()

    def call(self) -> None:
        """There is something to do: look now. A call that comes during a turn is kept."""
        self._called.set()

    def stop(self) -> None:
        super().stop()
        self._called.set()

    def pause(self) -> None:
        due = [
            after for after in (self.next_due, self.limits.next_due, self.next_chore()) if after is not None
        ]
        known = time.monotonic() + min(due, default=math.inf)
        due.append(max(0.0, self._reap_at - time.monotonic()))
        self._called.wait(min([self.interval, *[after + 0.001 for after in due]]))
        while self.rest.is_on and not self._called.is_set():
            left = min(known, self._judge_at, self._looked_at + self._round_after) - time.monotonic()
            if left <= 0:
                break
            self._called.wait(min(OFTEN, left + 0.001))
        if not self.stopping.is_set():
            # Those who call all the time are answered together.
            self.stopping.wait(max(0.0, self._looked_at + GRAIN - time.monotonic()))
            self._called.clear()


def rounds_at_rest(settings: Settings) -> float:
    """Where nothing changes, what is old enough to go is all that there can be to do."""
    ages = [settings.retention, settings.audit_retention, settings.unknown_task_after]
    shortest = min((age / SHARE_OF_AGE for age in ages if age is not None), default=RARELY)
    return min(max(shortest, RETENTION_INTERVAL), RARELY)


def looks_every(database: Database, chosen: float | None) -> float:
    """Where one is called when there is something to do, a look now and then is enough."""
    if chosen is not None:
        return chosen
    return SELDOM if database.settings.notify and hears(database) else OFTEN
