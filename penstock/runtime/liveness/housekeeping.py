"""Housekeeping: the chores of a process, one round after the other.

Every role does it. A round, in this order, each chore apart from the others:

    due jobs     get a place in the queue; before that, limits let jobs go (`limit_keeper`) and schedules fire
    the dead     lose their rows, and their work is taken back (`reaper`)
    runs         timers, expands, repair (`pipelines/maintenance`), passed in as `chores`
    old jobs     are removed (`job_retention`)
    tallies      are folded into roll-ups (`tally_keeper`)

Any number of processes may do all of it at once: only the last two are left to one that holds a lease, to save work.
Each chore has a boundary around every row (`database/boundary`), and a chore that fails keeps none of the others from
being done; only an outage does.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from penstock.database.boundary import Boundary, do_all
from penstock.database.database import Database
from penstock.database.listeners import hears
from penstock.database.transaction import Transaction
from penstock.pipelines.maintenance.idle_check import IdleReport
from penstock.queue import schedule
from penstock.queue.jobs import Follow
from penstock.queue.rules import queue_controls
from penstock.queue.rules.queue_controls import QueueControls
from penstock.queue.wakeups import ENDED, READY, Wakeups, ready
from penstock.runtime.liveness.job_retention import RETENTION_INTERVAL, JobRetention
from penstock.runtime.liveness.limit_keeper import Declared, LimitKeeper
from penstock.runtime.liveness.reaper import Reaper
from penstock.runtime.liveness.tally_keeper import TallyKeeper
from penstock.runtime.pump.idle import IdleMode
from penstock.runtime.service import Service, Turn
from penstock.settings import Settings
from penstock.telemetry.events import Stream

AGAIN = 1.0
"""A schedule that is due and that another process has is looked at again after so many seconds."""
GRAIN = 0.02
SELDOM, OFTEN = 5.0, 1.0
RARELY = 3600.0
"""The longest time without a round while the process is idle; shorter if the retention is short."""
SHARE_OF_AGE = 100
LATE = 2.0
"""An idle check that comes so much later than planned has still seen in time what is due before the next one."""
Chore = Callable[[], bool]
"""Something to look after now and then; True if there was something to do."""


class Housekeeping(Service):
    """Does the chores of a process, and knows when the next round is due."""

    name = "housekeeping"
    follow_controls: Callable[[QueueControls], None] = staticmethod(lambda _: None)
    """Told the controls of queues when one of them has changed."""
    _controls = 0
    """The revision of the controls that are followed."""

    def __init__(
        self,
        database: Database,
        process: Callable[[], str],
        wakeups: Wakeups,
        stream: Stream,
        follow: Follow,
        chores: tuple[Chore, ...] = (),
        next_chore: Callable[[], float | None] = lambda: None,
        declared: Declared | None = None,
        fire: Chore = lambda: False,
    ) -> None:
        super().__init__(stream)
        self.database = database
        self.wakeups = wakeups
        self.chores = chores
        self.next_chore = next_chore
        self.fire = fire
        """Called when a schedule is due."""
        self._called = threading.Event()
        self.settings = database.settings
        self.next_due: float | None = None
        self.next_tick: float | None = None
        self.limits = LimitKeeper(database, wakeups, stream, declared)
        self.due: Boundary[str] = Boundary(database, stream, "the scheduled job")
        self.reaper = Reaper(database, process, stream, follow, self._wake_all)
        self.retention = JobRetention(database, process, stream)
        self.tallies = TallyKeeper(database, process, stream)
        self.rest = IdleMode()
        self.interval = looks_every(database, self.settings.housekeeping_interval)
        self._looked_at = 0.0
        self._round_after = RARELY

    def run(self) -> None:
        self.reaper.outage_guard.arrive(self.settings.heartbeat_interval)
        super().run()

    # one round

    def turn(self) -> Turn:
        """All chores, in order."""
        self._looked_at = time.monotonic()
        chores = (
            self._keep_contact,
            self.reaper.turn_if_due,
            *self.chores,
            self.retention.turn,
            self.tallies.turn,
        )
        return Turn.WORKED if do_all(self.database, chores) else Turn.IDLE

    def _keep_contact(self) -> bool:
        """Promote, and let the reaper know whether the database answers."""
        with self.reaper.outage_guard.exchange():
            return self.promote()

    def promote(self) -> bool:
        """Give a place in the queue to what is due, and to what has waited for a limit long enough."""
        left = self.due.left
        seen = self.database.read(schedule.look, left)
        self.next_due = seen.due
        self.next_tick = seen.tick
        chores = (
            partial(self._notice_controls, seen.controls),
            partial(self.limits.turn, seen.parked, seen.limited),
            self._fire_ticks,
            partial(self._promote_due, left),
        )
        return do_all(self.database, chores)

    def _fire_ticks(self) -> bool:
        if self.next_tick is None or self.next_tick > 0:
            return False
        fired = self.fire()
        self.next_tick = 0.0 if fired else AGAIN  # another process has it
        return fired

    def promote_due(self) -> bool:
        """Give a place in the queue to what is due, and look at nothing else."""
        left = self.due.left
        seen = self.database.read(schedule.look, left)
        self.next_due = seen.due
        notice = partial(self._notice_controls, seen.controls)
        return do_all(self.database, (notice, partial(self._promote_due, left)))

    def _notice_controls(self, revision: int) -> bool:
        if revision != self._controls:
            self.control(self.database.read(queue_controls.read))
        return False

    def control(self, controls: QueueControls) -> None:
        """Follow these controls of queues. If that fails, they are not tried again until one of them has changed;
        unless the database was away."""
        try:
            self.follow_controls(controls)
        except Exception as error:
            if self.database.is_passing(error):
                raise
            self._controls = controls.revision
            raise
        self._controls = controls.revision

    def _promote_due(self, left: list[str]) -> bool:
        if self.next_due is None or self.next_due > 0:
            return False
        try:
            lanes = self.database.in_transaction(schedule.promote, self.settings.batch, left)
        except Exception as error:
            lanes = self._promote_apart(left, error)
        for queue, tier in sorted(set(lanes)):
            self.wakeups.notify(ready(queue, tier))
        return bool(lanes)

    def _promote_apart(self, left: list[str], error: Exception) -> list[tuple[str, int]]:
        if self.database.is_passing(error):
            raise error
        batch = self.settings.batch
        due = self.database.read(schedule.due, batch, left)

        def promote(some: Sequence[str]) -> list[tuple[str, int]]:
            return self.database.in_transaction(schedule.promote, batch, left, some)

        return [lane for lanes in self.due.handle_apart(due, promote, error) for lane in lanes]

    def _wake_all(self, tx: Transaction) -> None:
        """Work was taken back: once that is durable, every worker may look for it."""
        for subject in (READY, ENDED):
            tx.after_commit(partial(self.wakeups.notify, subject))

    # when the next round is due

    def check_local_processes(self) -> None:
        """Look at the processes on this host, without a statement: if one is dead or new, reap now."""
        if self.reaper.has_local_news():
            self.reaper.look_at = 0.0
            self.call()

    def apply_idle_report(self, seen: IdleReport) -> None:
        """Do the chores that an idle check found: now, or when they are due if that is before the next check."""
        now, soon = time.monotonic(), self.rest.interval + LATE
        self._round_after = RETENTION_INTERVAL if seen.runs else rounds_at_rest(self.settings)
        silent = [after for after in (seen.holder_silent, seen.silent) if after is not None]
        if seen.orphaned or min(silent, default=0.0) < 0:
            self.reaper.call_at(now)
            self.call()
        elif seen.holder_silent is not None and seen.holder_silent < soon:
            self.reaper.call_at(now + seen.holder_silent)
            self.call()
        tidy = seen.limited and now >= self._looked_at + RETENTION_INTERVAL
        if seen.kept or tidy or seen.controls != self._controls or (seen.due is not None and seen.due < soon):
            self.call()

    def call(self) -> None:
        """There is something to do: look now. A call that comes during a turn is kept."""
        self._called.set()

    def stop(self) -> None:
        super().stop()
        self._called.set()

    def pause(self) -> None:
        nexts = (self.next_due, self.next_tick, self.limits.next_due, self.next_chore())
        due = [after for after in nexts if after is not None]
        known = time.monotonic() + min(due, default=math.inf)
        due.append(max(0.0, self.reaper.look_at - time.monotonic()))
        self._called.wait(min([self.interval, *[after + 0.001 for after in due]]))
        while self.rest.is_on and not self._called.is_set():
            left = min(known, self.reaper.needed_at, self._looked_at + self._round_after) - time.monotonic()
            if left <= 0:
                break
            self._called.wait(min(OFTEN, left + 0.001))
        if not self.stopping.is_set():
            # Frequent calls are answered together.
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
