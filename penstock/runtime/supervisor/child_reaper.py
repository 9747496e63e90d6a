"""The supervisor's side of the database: its own sign of life, its dead children's work, its silent children.

It runs in a thread that is put to rest, its connection closed, whenever a child is forked. Its statements have short
timeouts, so that it can be put to rest soon.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.database.clock_watch import ClockWatch
from penstock.database.connections import ConnectionHandle
from penstock.database.database import Database
from penstock.database.transaction import Transaction
from penstock.queue import processes, reclaim
from penstock.queue.processes import ChildRow
from penstock.queue.reclaim import Crashed
from penstock.queue.wakeups import ENDED, READY, Wakeups
from penstock.runtime.liveness import host_identity
from penstock.runtime.liveness.reclaimer import Reclaimer
from penstock.runtime.pump.idle import longest_silence
from penstock.runtime.service import Service, Turn
from penstock.schema import catalog
from penstock.settings import Settings
from penstock.telemetry.events import (
    ClockStepped,
    JobCrashed,
    ProcessReaped,
    ProcessStarted,
    WorkReclaimed,
    WorkReleased,
)
from penstock.values.ids import new_id
from penstock.values.typed_json.json_text import dumps

if TYPE_CHECKING:
    from penstock.app_services import AppServices

LOOK_INTERVAL = 2.0
"""Seconds between two looks while something is wrong: a child is silent, or has no row."""
LONGEST_LOOK = 10.0
"""Between two looks at all the others. A child's end is seen by itself; when one will be too silent is known before."""
SHORTEST_LOOK = 0.05
LONGEST_STATEMENT = 5.0
LONGEST_WAIT = 2.0
SILENCE_SHARE = 0.9
"""A silent child is killed a little before others call it dead: it is gone before its work goes elsewhere. Of one that
holds none, which may rest and is seldom heard of then, it is not expected to be heard sooner than others do."""
LONGEST_START = 30.0


@dataclass(frozen=True, slots=True)
class ChildInfo:
    """A child as the child reaper knows it: the mark it got at the fork, its pid, and when it was forked."""

    birth: str
    pid: int
    since: float


class ChildReaper(Service):
    """Heartbeat and reaper of a supervisor."""

    name = "keeper"

    def __init__(self, app: AppServices, details: dict[str, object], wake: Callable[[], None]) -> None:
        super().__init__(app.events)
        settings = app.settings
        self.app = app
        self.database = Database(_impatient(app))
        catalog.describe(self.database)
        self.wakeups = Wakeups(self.database, names=False)
        self.database.call_housekeeping = self.wakeups.call_housekeeping
        self.link = ConnectionHandle(self.database, dedicated=True)
        self.id = new_id()
        self.reclaimer = Reclaimer(self.database, app.events, app.follow, self._take_back)
        self._registered = False
        self.details = details
        self.wake = wake
        self.interval = settings.heartbeat_interval
        self.silence = settings.reap_after
        self.clock = ClockWatch(settings.reap_after)
        self.longest_rest = longest_silence(settings.reap_after)
        self.living: Sequence[ChildInfo] = ()
        self.silent: set[str] = set()
        self.dead: deque[tuple[str, bool]] = deque()
        self._told = threading.Event()
        self._beat_at = self._look_at = 0.0
        self._good = self._judge_from = self._turn_began = time.monotonic()
        self._seen: dict[str, float] = {}

    # from the supervisor's thread

    def register(self) -> None:
        """Write the process row; if that must be done again, under the same id: a supervisor holds no claims."""
        host, pid = host_identity.host_name(), os.getpid()
        at_home = host_identity.this_host() if not self._registered else None  # as with every Identity
        told = self.details | (at_home.told() if at_home is not None else {})
        self.database.in_transaction(processes.register, self.id, host, pid, "supervisor", None, dumps(told))
        self._registered = True
        host_identity.announce(self.database.known_as)
        self._beat_at = time.monotonic() + self._beats_every
        self.stream.emit(ProcessStarted(self.id, host, pid, "supervisor"))

    def reap_child(self, birth: str, released: bool) -> None:
        """A child is dead. Its work is given back if it was stopped, and counts as crashed if it died."""
        self.dead.append((birth, released))
        self._told.set()

    def rest(self, seconds: float | None = None) -> bool:
        """End the thread and close the connection: after this, the process may be forked. False: not in time."""
        self.stop()
        self.join(seconds)
        if self.alive:
            return False
        self.link.close()
        self.database.close()
        self.stopping.clear()
        return True

    def resume(self) -> None:
        """Go on, if a rest that was asked for has come about."""
        if not self.alive:
            self.stopping.clear()
            self.start()

    def finish(self, seconds: float) -> None:
        """Remove the rows of the last children and of the supervisor. Other reapers do what is not done in time.

        In a thread that need not end: a database that does not answer must not delay the supervisor's exit.
        """
        leaving = threading.Thread(
            target=self._take_leave, args=(seconds,), name="penstock-last-rites", daemon=True
        )
        leaving.start()
        leaving.join(seconds)

    def _take_leave(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        self.rest()
        while self.dead and time.monotonic() < deadline:
            self.guarded_turn()
        with suppress(Exception), self.database.transaction(self.link) as tx:
            reclaim.remove_process(tx, self.id)
        self.link.close()
        self.database.close()

    # the loop

    def turn(self) -> Turn:
        self._told.clear()
        self._turn_began = time.monotonic()
        self._notice_outage()
        if time.monotonic() >= self._beat_at:
            self._beat()
        while self.dead:
            self._bury_next()
        if time.monotonic() >= self._look_at:
            self._look()
        self._good = time.monotonic()
        return Turn.IDLE

    def _look(self) -> None:
        """Look at the children and reap the dead. A look that fails stays due, so that the next turn repeats it."""
        due, self._look_at = self._look_at, time.monotonic() + min(LONGEST_LOOK, self.silence / 3)
        try:
            self._look_after_children()
            self._reap()
        except BaseException:
            self._look_at = due
            raise

    def pause(self) -> None:
        self._told.wait(max(0.0, min(self._look_at, self._beat_at) - time.monotonic()))

    def stop(self) -> None:
        super().stop()
        self._told.set()

    def _notice_outage(self) -> None:
        """A supervisor that was cut off from the database must not, once back, judge its children by their silence."""
        if time.monotonic() - self._good > self.silence / 2:
            self._judge_from = time.monotonic() + self.silence

    @property
    def _may_judge(self) -> bool:
        """True if this supervisor has had quick answers for long enough to judge silent children."""
        now = time.monotonic()
        in_touch = now >= self._judge_from and now - self._turn_began <= self.silence / 4
        return in_touch and self.clock.is_trusted

    def _told_time(self, now: int, asked: float) -> bool:
        """The database says what time it is. True: others may be judged."""
        step = self.clock.told(now, asked, self.database.clock_shift)
        if step:
            self.stream.emit(ClockStepped(step))
        return self._may_judge

    @property
    def _beats_every(self) -> float:
        """Nothing is lost if a supervisor is taken for dead: it holds nothing, and is back with its next beat."""
        return max(self.interval, min(LONGEST_LOOK, self.silence / 3))

    def _beat(self) -> None:
        with self.database.transaction(self.link, single=True) as tx:
            alive = processes.beat(tx, self.id)
        if not alive:
            self.register()
        self._beat_at = time.monotonic() + self._beats_every

    def _look_again(self, after: float) -> None:
        """At that time; what is overdue could not be dealt with now, and is looked at again soon."""
        soon = min(LOOK_INTERVAL, self.silence / 4)
        self._look_at = min(self._look_at, time.monotonic() + (after + SHORTEST_LOOK if after > 0 else soon))

    def _bury_next(self) -> None:
        birth, released = self.dead[0]
        with self.database.transaction(self.link) as tx:
            if released:
                gone, jobs = [], processes.release_child(tx, self.id, birth)
            else:
                gone, jobs = processes.reap_child(tx, self.id, birth), []
            if jobs:
                self.wakeups.notify_on_commit(tx, [READY])
        for process in gone:
            self.stream.emit(ProcessReaped(process))
        if jobs:
            self.stream.emit(WorkReleased(len(jobs)))
        while self._reclaim():
            pass
        self.dead.popleft()

    def _reap(self) -> None:
        asked = time.monotonic()
        with self.database.reading(self.link) as tx:
            silent_in, orphaned, ahead, now = reclaim.look(tx, self.silence, self.id, self.reclaimer.left)
        self._told_time(now, asked)
        if ahead:
            with self.database.transaction(self.link) as tx:
                reclaim.bring_back(tx)
        silent = silent_in is not None and silent_in < 0
        if silent_in is not None:
            self._look_again(silent_in)
        if silent and self._may_judge:
            asked = time.monotonic()
            with self.database.transaction(self.link) as tx:
                dead = reclaim.reap_silent(tx, self.silence, self.id, lambda now: self._told_time(now, asked))
            for process in dead:
                self.stream.emit(ProcessReaped(process))
        if silent or orphaned:
            self._reclaim()
            self._look_again(0.0)

    def _take_back(self, work: Callable[[Transaction], list[Crashed]]) -> list[Crashed]:
        with self.database.transaction(self.link) as tx:
            crashed = work(tx)
            if crashed:
                self.wakeups.notify_on_commit(tx, [READY, ENDED])
        return crashed

    def _reclaim(self) -> bool:
        crashed = self.reclaimer.turn()
        for job in crashed:
            self.stream.emit(JobCrashed(job.job_id, job.task, job.process_id, job.status, job.reason))
        if crashed:
            self.stream.emit(WorkReclaimed(len(crashed), sum(job.status == "failed" for job in crashed)))
        return bool(crashed)

    def _look_after_children(self) -> None:
        asked = time.monotonic()
        with self.database.reading(self.link) as tx:
            heard = {child.birth: child for child in processes.children(tx, self.id)}
        for child in heard.values():
            self._told_time(child.now, asked)
        now = time.monotonic()
        self._seen = {kin.birth: self._seen.get(kin.birth, 0.0) for kin in self.living}
        for kin in self.living:
            if kin.birth in heard:
                self._seen[kin.birth] = now
            if self._is_silent(kin, heard.get(kin.birth), now) and self._may_judge:
                self.silent.add(kin.birth)
                self.wake()

    def _is_silent(self, kin: ChildInfo, row: ChildRow | None, now: float) -> bool:
        """Its heartbeat is old; or others have removed its row, and it does not come back."""
        if row is not None:
            patience = self.silence * (SILENCE_SHARE if row.holds else 1.0)
            self._look_again(patience - row.silence)
            return row.silence > patience
        self._look_again(0.0)
        if self._seen[kin.birth]:
            return now - self._seen[kin.birth] > max(2 * self.interval, self.longest_rest) + LOOK_INTERVAL
        return now - kin.since > max(LONGEST_START, self.silence)


def _impatient(app: AppServices) -> Settings:
    settings = app.settings
    return replace(
        settings,
        statement_timeout=min(settings.statement_timeout, LONGEST_STATEMENT),
        lock_timeout=min(settings.lock_timeout, LONGEST_WAIT),
        connect_timeout=min(settings.connect_timeout, LONGEST_WAIT),
        pool_size=1,
        wakeup_interval=0.0,  # every wake-up goes with its transaction: no thread is needed to send it later
    )
