"""The supervisor's database thread: writes its heartbeat, reaps dead children, and finds silent ones.

Here is only what is about children: their deaths are proven by the operating system, their work is given back or taken
back at once, and a silent one is named, to be killed. Everything else is the reaper's (`liveness/reaper`), as in a
worker.

It runs in a thread that is put to rest, its connection closed, whenever a child is forked. Its statements have short
timeouts and are tried once, so that it can be put to rest soon.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from penstock.database.connections import ConnectionHandle
from penstock.database.database import Database
from penstock.database.transaction import Transaction
from penstock.queue import processes, reclaim
from penstock.queue.processes import ChildRow
from penstock.queue.wakeups import ENDED, READY, Wakeups
from penstock.runtime.liveness import host_identity
from penstock.runtime.liveness.outage_guard import OutageGuard
from penstock.runtime.liveness.process_row import Departure
from penstock.runtime.liveness.reaper import Reaper
from penstock.runtime.pump.idle import longest_silence
from penstock.runtime.service import Service, Turn
from penstock.schema import catalog
from penstock.settings import Settings
from penstock.telemetry.events import ProcessReaped, ProcessStarted, WorkReleased
from penstock.values.ids import new_id
from penstock.values.typed_json.json_text import dumps

if TYPE_CHECKING:
    from penstock.app_services import AppServices

P = ParamSpec("P")
R = TypeVar("R")

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

    child_key: str
    pid: int
    since: float


class GuardedConnection:
    """The child reaper's connection to the database. Every call tells the outage guard whether the database answers."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.link = ConnectionHandle(database, dedicated=True)
        self.outage_guard = OutageGuard(database.settings.reap_after, database.is_away)

    def read(self, work: Callable[Concatenate[Transaction, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        with self.outage_guard.exchange(), self.database.reading(self.link) as tx:
            return work(tx, *args, **kwargs)

    def in_transaction(
        self, work: Callable[Concatenate[Transaction, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        with self.outage_guard.exchange(), self.database.transaction(self.link) as tx:
            return work(tx, *args, **kwargs)

    def close(self) -> None:
        self.link.close()
        self.database.close()


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
        self.connection = GuardedConnection(self.database)
        self.id = new_id()
        self.reaper = Reaper(
            self.database, lambda: self.id, app.events, app.follow, self._wake_all, self.connection
        )
        self.outage_guard = self.reaper.outage_guard = self.connection.outage_guard
        self._registered = False
        self.details = details
        self.wake = wake
        self.interval = settings.heartbeat_interval
        self.silence = settings.reap_after
        self.longest_rest = longest_silence(settings.reap_after)
        self.living: Sequence[ChildInfo] = ()
        self.silent: set[str] = set()
        self.dead: deque[tuple[str, bool]] = deque()
        self._told = threading.Event()
        self._beat_at = self._look_at = 0.0
        self._seen: dict[str, float] = {}

    # from the supervisor's thread

    def register(self) -> None:
        """Write the process row; if that must be done again, under the same id: a supervisor holds no claims."""
        host, pid = host_identity.host_name(), os.getpid()
        at_home = host_identity.this_host() if not self._registered else None  # as with every Identity
        told = self.details | (at_home.details() if at_home is not None else {})
        self.database.in_transaction(processes.register, self.id, host, pid, "supervisor", None, dumps(told))
        if not self._registered:
            self.outage_guard.arrive(self.interval)
        self._registered = True
        host_identity.announce(self.database.known_as)
        self._beat_at = time.monotonic() + self._beats_every
        self.stream.emit(ProcessStarted(self.id, host, pid, "supervisor"))

    def reap_child(self, child_key: str, released: bool) -> None:
        """A child is dead. Its work is given back if it was stopped, and counts as crashed if it died."""
        self.dead.append((child_key, released))
        self._told.set()

    def rest(self, seconds: float | None = None) -> bool:
        """End the thread and close the connection: after this, the process may be forked. False: not in time."""
        self.stop()
        self.join(seconds)
        if self.alive:
            return False
        self.connection.close()
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
        with suppress(Exception):
            self.connection.in_transaction(reclaim.remove_process, self.id)
        self.connection.close()

    # the loop

    def turn(self) -> Turn:
        self._told.clear()
        if time.monotonic() >= self._beat_at:
            self._beat()
        while self.dead:
            try:
                self._reap_next()
            except BaseException:
                self.dead.rotate(-1)  # the others have their turn before this one is tried again
                raise
        if time.monotonic() >= self._look_at:
            self._look()
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

    @property
    def _beats_every(self) -> float:
        """Nothing is lost if a supervisor is taken for dead: it holds nothing, and is back with its next beat."""
        return max(self.interval, min(LONGEST_LOOK, self.silence / 3))

    def _beat(self) -> None:
        with self.outage_guard.exchange(), self.database.transaction(self.connection.link, single=True) as tx:
            alive = processes.beat(tx, self.id)
        if not alive:
            self.register()
        self.outage_guard.heard(self._beats_every)
        self._beat_at = time.monotonic() + self._beats_every

    def _look_again(self, after: float) -> None:
        """At that time; what is overdue could not be dealt with now, and is looked at again soon."""
        soon = min(LOOK_INTERVAL, self.silence / 4)
        self._look_at = min(self._look_at, time.monotonic() + (after + SHORTEST_LOOK if after > 0 else soon))

    def _reap_next(self) -> None:
        child_key, released = self.dead[0]
        if released:
            self._release(child_key)
        else:
            for process in self.connection.in_transaction(processes.reap_child, self.id, child_key):
                self.stream.emit(ProcessReaped(process))
        while self.reaper.reclaim():
            pass
        self.dead.popleft()

    def _release(self, child_key: str) -> None:
        ids = self.connection.read(processes.rows_of_child, self.id, child_key)
        if jobs := Departure(self.database, self.stream, ids, self._wake_ready, self.connection).go():
            self.stream.emit(WorkReleased(len(jobs)))

    def _wake_ready(self, tx: Transaction) -> None:
        self.wakeups.notify_on_commit(tx, [READY])

    def _reap(self) -> None:
        self.reaper.turn()
        self._look_at = min(self._look_at, self.reaper.look_at + SHORTEST_LOOK)
        if self.reaper.is_unfinished:
            self._look_again(0.0)

    def _wake_all(self, tx: Transaction) -> None:
        self.wakeups.notify_on_commit(tx, [READY, ENDED])

    def _look_after_children(self) -> None:
        asked = time.monotonic()
        heard = {child.child_key: child for child in self.connection.read(processes.children, self.id)}
        for child in heard.values():
            self.reaper.note_clock(child.now, asked)
        now = time.monotonic()
        self._seen = {info.child_key: self._seen.get(info.child_key, 0.0) for info in self.living}
        for info in self.living:
            if info.child_key in heard:
                self._seen[info.child_key] = now
            if self._is_silent(info, heard.get(info.child_key), now) and self.outage_guard.may_declare_dead:
                self.silent.add(info.child_key)
                self.wake()

    def _is_silent(self, info: ChildInfo, row: ChildRow | None, now: float) -> bool:
        """True if its heartbeat is old, or another reaper removed its row and it did not register again."""
        if row is not None:
            patience = self.silence * (SILENCE_SHARE if row.holds else 1.0)
            self._look_again(patience - row.silence)
            return row.silence > patience
        self._look_again(0.0)
        if self._seen[info.child_key]:
            return (
                now - self._seen[info.child_key] > max(2 * self.interval, self.longest_rest) + LOOK_INTERVAL
            )
        return now - info.since > max(LONGEST_START, self.silence)


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
