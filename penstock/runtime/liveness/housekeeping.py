"""Housekeeping: promote what is due, take back what the dead held, let old work go.

Every role does it. Any number of processes may promote and reclaim at once; only retention is left to the process that
holds a lease, to save work.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from penstock.database.boundary import Boundary, do_all
from penstock.database.database import Database
from penstock.database.listeners import hears
from penstock.pipelines.maintenance.idle_check import IdleReport
from penstock.queue import processes, reclaim, retention, schedule
from penstock.queue.jobs import Follow
from penstock.queue.limits import admission, upkeep, waiting_line
from penstock.queue.rules import queue_controls
from penstock.queue.rules.queue_controls import QueueControls
from penstock.queue.wakeups import ENDED, READY, Wakeups, ready
from penstock.runtime.liveness.local_processes import LocalProcesses
from penstock.runtime.liveness.outage_guard import OutageGuard
from penstock.runtime.liveness.reclaimer import Reclaimer
from penstock.runtime.liveness.tally_keeper import TallyKeeper
from penstock.runtime.pump.idle import IdleMode
from penstock.runtime.service import Service, Turn
from penstock.settings import Settings
from penstock.telemetry.events import ClockStepped, JobCrashed, ProcessReaped, Stream, WorkReclaimed
from penstock.values.ids import FIRST_ID
from penstock.values.limits import TaskLimits

# The chores of limits: let go what waits although there is room, and tidy up. Part of the housekeeping.

TIDY_INTERVAL = 10.0
SHORTEST_PAUSE = 0.02
"""A rate of thousands a second is let go in portions."""
REVISE_INTERVAL = 60.0
"""Once at the beginning, and then so often, waiting jobs are compared with the limits that the tasks declare now."""
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
        self._revise_at = time.monotonic() + REVISE_INTERVAL
        tasks, worked = self.declared.tasks(), False
        for line in self.database.read(waiting_line.lines) if tasks else ():
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
        return bool(lanes) or any(some.has_news for some in swept) or seen.after is not None

    def _let_go(self, keys: Sequence[str]) -> admission.Admission:
        return self.database.in_transaction(admission.sweep, keys)


RETENTION_INTERVAL = 60.0
REAPS = 3
"""So many times within `reap_after` the reaper looks for dead processes, and for claims without a process."""
AGAIN = 1.0
"""After a death the reaper looks once more: the last statements of the dead process may still arrive or hold locks."""
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
    """The chores of a process."""

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
        self.process = process
        self.wakeups = wakeups
        self.follow = follow
        self.chores = chores
        self.next_chore = next_chore
        self.fire = fire
        """Called when a schedule is due."""
        self._called = threading.Event()
        self.settings = database.settings
        self.next_due: float | None = None
        self.next_tick: float | None = None
        self.limits = LimitKeeper(database, wakeups, stream, declared)
        self.reclaimer = Reclaimer(database, stream, follow, database.in_transaction)
        self.due: Boundary[str] = Boundary(database, stream, "the scheduled job")
        self.old: Boundary[str] = Boundary(database, stream, "the old job")
        self.outage_guard = OutageGuard(self.settings.reap_after)
        self.local_processes = LocalProcesses(database, lambda: None)
        self._reap_at = self._looked_at = 0.0
        self.rest = IdleMode()
        self._judge_at = math.inf
        """When also an idle process looks: a process will have been silent for too long, or a chore was left undone."""
        self._round_after = RARELY
        self.interval = looks_every(database, self.settings.housekeeping_interval)
        self._prune_at = time.monotonic() + RETENTION_INTERVAL
        self._prune_after = FIRST_ID
        self.tallies = TallyKeeper(database, process)

    def run(self) -> None:
        self.outage_guard.arrive(self.settings.heartbeat_interval)
        super().run()

    def turn(self) -> Turn:
        """One chore that cannot be done does not keep the others from being done; only an outage does."""
        self._looked_at = time.monotonic()
        chores = (
            self._keep_contact,
            self._reap_if_due,
            *self.chores,
            self._prune_if_due,
            self.tallies.turn,
        )
        return Turn.WORKED if do_all(self.database, chores) else Turn.IDLE

    def _keep_contact(self) -> bool:
        """Promote, and note whether the database answers. An error about a row is an answer too, and no outage."""
        worked, wrong = False, None
        with self.outage_guard.exchange():
            try:
                worked = self.promote()
            except Exception as error:
                if self.database.is_outage(error):
                    raise
                wrong = error
        if wrong is not None:
            raise wrong
        return worked

    def _reap_if_due(self) -> bool:
        return time.monotonic() >= self._reap_at and self.reap()

    def _prune_if_due(self) -> bool:
        age = self.settings.retention
        return age is not None and time.monotonic() >= self._prune_at and self.prune(age)

    def promote(self) -> bool:
        """Give a place in the queue to what is due, and to what has waited for a limit long enough."""
        left = self.due.left
        seen = self.database.read(schedule.look, left)
        self.next_due = seen.due
        self.next_tick = seen.tick
        self._notice_controls(seen.controls)
        limits = partial(self.limits.turn, seen.parked, seen.limited)
        return do_all(self.database, (limits, self._fire_ticks, partial(self._promote_due, left)))

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
        self._notice_controls(seen.controls)
        return self._promote_due(left)

    def _notice_controls(self, revision: int) -> None:
        if revision != self._controls:
            self.control(self.database.read(queue_controls.read))

    def control(self, controls: QueueControls) -> None:
        """Follow these controls of queues."""
        self.follow_controls(controls)
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

    def reap(self) -> bool:
        """Declare silent processes dead, and take back what the dead held."""
        silence = self.settings.reap_after
        buried = self._bury_neighbours()
        asked = time.monotonic()
        silent_in, orphaned, ahead, now = self.database.read(
            reclaim.look, silence, self.process(), self.reclaimer.left
        )
        self._told_time(now, asked)
        if ahead:
            self.database.in_transaction(reclaim.bring_back)
        silent = silent_in is not None and silent_in < 0
        self._reap_at = time.monotonic() + (AGAIN if buried else self._until_reaping(silent_in))
        # An idle process makes no regular rounds, but it must come back for this one.
        self._judge_at = self._reap_at if buried or silent or orphaned else math.inf
        dead = self._declare_dead() if silent and self.outage_guard.may_judge else []
        taken = (orphaned or bool(dead)) and self.reclaim()
        self.reclaimer.lapse()
        if (again := self.reclaimer.next_due) is not None:
            self._reap_at = self._judge_at = min(self._reap_at, time.monotonic() + again)
        return buried | bool(dead) | taken

    def check_local_processes(self) -> None:
        """Look at the processes on this host, without a statement: if one is dead or new, reap now."""
        if self.local_processes.changed:
            self._reap_at = 0.0
            self.call()

    def _bury_neighbours(self) -> bool:
        """Remove the rows of dead processes on this host. True if one is dead, even if its row was already removed."""
        self.local_processes.refresh(self.process())
        dead = self.local_processes.dead()
        for process in self.local_processes.reap_child(dead) if dead else []:
            self.stream.emit(ProcessReaped(process))
        return bool(dead)

    def _until_reaping(self, silent_in: float | None) -> float:
        """Seconds until the next look: when a process that writes no heartbeat will have been silent for too long.

        If one already is, the reaper may not judge it yet, and looks again soon.
        """
        if silent_in is not None and silent_in < 0:
            return min(self.settings.heartbeat_interval, self.settings.reap_after / 10)
        rarely = self.settings.reap_after / REAPS
        return rarely if silent_in is None else min(silent_in, rarely)

    def _declare_dead(self) -> list[str]:
        # An outage may begin and end during this call: no process could write its heartbeat meanwhile.
        asked = time.monotonic()
        with self.outage_guard.exchange() as quick:
            silent = self.database.in_transaction(
                reclaim.reap_silent,
                self.settings.reap_after,
                self.process(),
                lambda now: quick() and self._told_time(now, asked),
            )
        for process in silent:
            self.stream.emit(ProcessReaped(process))
        return silent

    def _told_time(self, now: int, asked: float) -> bool:
        """The database says what time it is. True: by that others may be judged."""
        step = self.outage_guard.clock.told(now, asked, self.database.clock_shift)
        if step:
            self.stream.emit(ClockStepped(step))
        return self.outage_guard.clock.is_trusted

    def reclaim(self) -> bool:
        crashed = self.reclaimer.turn()
        for job in crashed:
            self.stream.emit(JobCrashed(job.job_id, job.task, job.process_id, job.status, job.reason))
        if len(crashed) >= reclaim.CLAIMS_PER_TURN:
            self._reap_at = 0.0  # there may be more
        if crashed:
            self.stream.emit(WorkReclaimed(len(crashed), sum(job.status == "failed" for job in crashed)))
            self.wakeups.notify(READY)
            self.wakeups.notify(ENDED)
        return bool(crashed)

    def prune(self, age: float) -> bool:
        """One batch of old work. A full walk is followed by a pause."""
        term = RETENTION_INTERVAL * 2
        if not self.database.in_transaction(processes.take_lease, "retention", self.process(), term):
            self._prune_at = time.monotonic() + RETENTION_INTERVAL
            return False
        after = self._prune_some(age)
        self._prune_after = after or FIRST_ID
        if after is None:
            self._prune_at = time.monotonic() + RETENTION_INTERVAL
        return after is not None

    def _prune_some(self, age: float) -> str | None:
        """Where to go on; a job that cannot be removed is passed by."""
        walk = (age, self._prune_after, self.settings.batch)
        try:
            return self.database.in_transaction(retention.prune, *walk)[1]
        except Exception as error:
            if self.database.is_passing(error):
                raise
            old, after = self.database.read(retention.candidates, *walk)

            def remove(some: Sequence[str]) -> int:
                return self.database.in_transaction(retention.remove, age, some)

            self.old.handle_apart(old, remove, error)
            return after

    def apply_idle_report(self, seen: IdleReport) -> None:
        """Do the chores that an idle check found: now, or when they are due if that is before the next check."""
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
        due.append(max(0.0, self._reap_at - time.monotonic()))
        self._called.wait(min([self.interval, *[after + 0.001 for after in due]]))
        while self.rest.is_on and not self._called.is_set():
            left = min(known, self._judge_at, self._looked_at + self._round_after) - time.monotonic()
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
