"""The reaper: declares silent processes dead, and takes back what the dead held. Invariants 10 and 11.

Workers and supervisors use this one (decision 058). What decides is in the database: the row of a silent process is
deleted by a statement that compares its heartbeat with the database's clock once more, and a claim without a process
row is taken back through its token. Here is only the rule who may ask for that, and when: a process that may have been
cut off itself judges no other (see `outage_guard`). A death that the operating system proves needs no judgement.

Each receipt and each job is taken back within a boundary: one that cannot be is set aside, and all others go on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from penstock.database.boundary import Boundary
from penstock.database.database import Database
from penstock.database.transaction import Transaction
from penstock.queue import reclaim
from penstock.queue.jobs import Follow
from penstock.queue.reclaim import Crashed, ReapReport, UnreadableReceipt
from penstock.runtime.liveness.local_processes import LocalProcesses
from penstock.runtime.liveness.outage_guard import OutageGuard
from penstock.telemetry.events import ClockStepped, JobCrashed, ProcessReaped, Stream, WorkReclaimed

P = ParamSpec("P")
R = TypeVar("R")

REAPS = 3
"""How many times within `reap_after` the reaper looks for dead processes, and for claims without a process."""
AGAIN = 1.0
"""After a death the reaper looks once more: the last statements of the dead process may still arrive or hold locks."""


class Reach(Protocol):
    """A way to the database: `Database` itself, or a connection that one thread has for itself."""

    def read(
        self, work: Callable[Concatenate[Transaction, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R: ...

    def in_transaction(
        self, work: Callable[Concatenate[Transaction, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R: ...


class Reaper:
    """Looks for the dead, and knows when to look again."""

    def __init__(
        self,
        database: Database,
        me: Callable[[], str],
        stream: Stream,
        follow: Follow,
        wake: Callable[[Transaction], None],
        reach: Reach | None = None,
    ) -> None:
        """`wake` is called in a transaction that takes work back: once it commits, others may go on with that work."""
        self.database = database
        self.settings = database.settings
        self.me = me
        self.stream = stream
        self.reach: Reach = database if reach is None else reach
        self.reclaimer = Reclaimer(database, stream, follow, wake, self.reach)
        self.outage_guard = OutageGuard(self.settings.reap_after, database.is_away)
        self.local_processes: LocalProcesses | None = None
        """The processes of this host; None: their deaths are not looked for."""
        self.look_at = 0.0
        """When to look again; the first look is due at once."""
        self.needed_at = math.inf
        """When also an idle process has to look: one will have been silent for too long, or not all could be done."""
        self.is_unfinished = False
        """True if the last look found a silent process, a dead one, or a claim without a holder."""

    def turn(self) -> bool:
        """Look for dead processes and orphaned claims, and handle them; True if there were any."""
        buried = self._remove_dead_here()
        asked = time.monotonic()
        seen = self.reach.read(reclaim.look, self.settings.reap_after, self.me(), self.reclaimer.left)
        self.note_clock(seen.now, asked)
        if seen.ahead:
            self.reach.in_transaction(reclaim.bring_back)
        self._plan(seen, buried)
        dead = self._declare_dead() if seen.is_silent and self.outage_guard.may_declare_dead else []
        taken = (seen.orphaned or bool(dead)) and self.reclaim()
        self.reclaimer.lapse()
        if (again := self.reclaimer.next_due) is not None:
            self.look_at = self.needed_at = min(self.look_at, time.monotonic() + again)
        return buried | bool(dead) | taken

    def turn_if_due(self) -> bool:
        return time.monotonic() >= self.look_at and self.turn()

    def call_at(self, moment: float) -> None:
        """Set the time of the next look, also for an idle process."""
        self.look_at = self.needed_at = moment

    def reclaim(self) -> bool:
        """Take back a batch of orphaned claims; True if there were any."""
        crashed = self.reclaimer.turn()
        for job in crashed:
            self.stream.emit(JobCrashed(job.job_id, job.task, job.process_id, job.status, job.reason))
        if len(crashed) >= reclaim.CLAIMS_PER_TURN:
            self.look_at = 0.0  # there may be more
        if crashed:
            self.stream.emit(WorkReclaimed(len(crashed), sum(job.status == "failed" for job in crashed)))
        return bool(crashed)

    def note_clock(self, now: int, asked: float) -> None:
        """Compare a reading of the database's clock with our own."""
        step = self.outage_guard.compare(now, asked, self.database.clock_shift)
        if step:
            self.stream.emit(ClockStepped(step))

    def has_local_news(self) -> bool:
        """True if a process of this host has died or is new. Asked of the operating system, without a statement."""
        return self.local_processes is not None and self.local_processes.changed

    def _remove_dead_here(self) -> bool:
        """Remove the rows of dead processes on this host. True if one is dead, even if its row was already removed."""
        if self.local_processes is None:
            return False
        self.local_processes.refresh(self.me())
        dead = self.local_processes.dead()
        for process in self.local_processes.remove(dead) if dead else []:
            self.stream.emit(ProcessReaped(process))
        return bool(dead)

    def _declare_dead(self) -> list[str]:
        # An outage may begin and end during this call: no process could write its heartbeat meanwhile.
        asked = time.monotonic()
        with self.outage_guard.exchange() as quick:

            def may_declare_dead(now: int) -> bool:
                self.note_clock(now, asked)
                return quick() and self.outage_guard.may_declare_dead

            dead = self.reach.in_transaction(
                reclaim.reap_silent, self.settings.reap_after, self.me(), may_declare_dead
            )
        for process in dead:
            self.stream.emit(ProcessReaped(process))
        return dead

    def _plan(self, seen: ReapReport, buried: bool) -> None:
        self.look_at = time.monotonic() + (AGAIN if buried else self._until_next_look(seen))
        self.is_unfinished = buried or seen.is_silent or seen.orphaned
        # An idle process makes no regular rounds, but it must come back for this one.
        self.needed_at = self.look_at if self.is_unfinished else math.inf

    def _until_next_look(self, seen: ReapReport) -> float:
        """Seconds until a process that writes no heartbeat will have been silent for too long.

        If one already is, the reaper may not judge it yet, and looks again soon.
        """
        if seen.is_silent:
            return min(self.settings.heartbeat_interval, self.settings.reap_after / 10)
        rarely = self.settings.reap_after / REAPS
        return rarely if seen.silent_in is None else min(seen.silent_in, rarely)


class Reclaimer:
    """Takes back the work of the dead, and remembers what could not be taken back."""

    def __init__(
        self,
        database: Database,
        stream: Stream,
        follow: Follow,
        wake: Callable[[Transaction], None],
        reach: Reach,
    ) -> None:
        self.follow = follow
        self.wake = wake
        self.database = database
        self.reach = reach
        self.receipts: Boundary[int] = Boundary(database, stream, "the receipt of claim")
        self.jobs: Boundary[str] = Boundary(database, stream, "the lost job")
        self._claims: dict[int, list[str]] = {}
        """The jobs of claims of which some could not be taken back."""

    @property
    def left(self) -> list[int]:
        """The claims that are left out for now: their receipts cannot be read, or a job of theirs is set aside."""
        jobs = set(self.jobs.left)
        self._claims = {token: held for token, held in self._claims.items() if not jobs.isdisjoint(held)}
        return [*self.receipts.left, *self._claims]

    @property
    def next_due(self) -> float | None:
        """Seconds until something that was set aside is tried again."""
        due = [after for after in (self.receipts.next_due, self.jobs.next_due) if after is not None]
        return min(due, default=None)

    def lapse(self) -> None:
        """All that has no holder was looked at: what was not met, although its time has come, is gone."""
        self.receipts.lapse()
        self.jobs.lapse()

    def turn(self) -> list[Crashed]:
        """Take back one batch of orphaned claims."""
        try:
            crashed = self._take_back(None)
        except Exception as error:
            return self._apart(error)
        self.jobs.handled([job.job_id for job in crashed])
        return crashed

    def _take_back(self, only: Sequence[str] | None) -> list[Crashed]:
        left, passed_over = self.left, self.jobs.left
        unreadable: list[int] = []

        def work(tx: Transaction) -> list[Crashed]:
            unreadable.clear()
            crashed = reclaim.reclaim(tx, self.follow, left, passed_over, only, unreadable)
            if crashed:
                self.wake(tx)
            return crashed

        crashed = self.reach.in_transaction(work)
        for token in unreadable:
            self.receipts.set_aside(token, UnreadableReceipt("what it says of its jobs cannot be read"))
        return crashed

    def _apart(self, error: Exception) -> list[Crashed]:
        """Job by job, where they fail together."""
        if self.database.is_passing(error):
            raise error
        found = self.reach.read(reclaim.orphans, self.left)
        passed_over = set(self.jobs.left)
        ids = sorted({id for jobs in found.values() for id in jobs} - passed_over)
        done = self.jobs.handle_apart(ids, self._take_back, error)
        # A claim of which nothing else is left must not take the place of others.
        self._claims |= {token: jobs for token, jobs in found.items() if not passed_over.issuperset(jobs)}
        return [job for some in done for job in some]
