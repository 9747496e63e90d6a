"""The heartbeat: a thread and a connection of its own, so that nothing a handler does can cost us our claims.

It renews the process row, which is the lease of everything held here; learns of cancellations; writes progress. When
the row is gone, others have taken us for dead: handlers are told, claims dropped, and we go on under a new name.

It also reads which claims the database has for this process. A claim that the pump gave up for lost may still be
committed, long after: the system sends what is left in a socket when the network is back. The process would not know
of that claim, and while it lives no other process takes it.

In idle mode (see `idle`), an idle check now and then takes its place; the heartbeat is back as soon as idle mode ends.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Set

from penstock.database.connections import ConnectionHandle
from penstock.database.database import Database
from penstock.pipelines.maintenance.idle_check import SEND_PROOF, IdleQuery, IdleReport, run_idle_check
from penstock.queue import job_records, processes
from penstock.runtime.liveness.outage_guard import OutageGuard
from penstock.runtime.liveness.process_row import Identity
from penstock.runtime.pump.idle import IdleMode
from penstock.runtime.service import Service, Turn
from penstock.settings import Settings
from penstock.telemetry.events import ProcessDeclaredDead, Stream

LOOK_INTERVAL = 0.5
"""How soon a running handler learns that it is cancelled, at the latest."""
MOMENT = 0.05
LEAST_PATIENCE = 0.5
"""Seconds: a database that is only busy answers within that."""

Reports = dict[str, tuple[float, str]]
"""By job, how far it is and what it says about that."""

log = logging.getLogger("penstock")


class Heartbeat(Service):
    """Renews the process row, and reads requests to cancel."""

    name = "heartbeat"

    def __init__(
        self,
        database: Database,
        identity: Identity,
        stream: Stream,
        busy: Callable[[], bool],
        cancelled: Callable[[Set[tuple[str, int]]], object],
        declared_dead: Callable[[], None],
        knows: Callable[[Set[int]], bool],
        in_doubt: Callable[[], None],
        rest: IdleMode | None = None,
        wanted: Callable[[], IdleQuery] | None = None,
        seen: Callable[[IdleReport], None] = lambda _: None,
        look_up: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(stream)
        self.database = database
        self.identity = identity
        self.busy = busy
        self.cancelled = cancelled
        self.declared_dead = declared_dead
        self.knows = knows
        """Called with tokens of claims held longer than `reap_after`; True if one is unknown here."""
        self.in_doubt = in_doubt
        """Called if the database has a claim of this process that the process does not know."""
        self.rest = rest or IdleMode()
        self.wanted = wanted
        self.seen = seen
        self.look_up = look_up
        """Called every turn: this thread runs even if the event loop is closed."""
        self.interval = database.settings.heartbeat_interval
        # After an outage the heartbeat must be written before others declare this process dead.
        self.longest_backoff = min(self.longest_backoff, self.interval)
        self.link = ConnectionHandle(database, dedicated=True, patience=_patience(database.settings))
        self.outage_guard = OutageGuard(database.settings.reap_after, database.is_away)
        """The reaper shares it: a heartbeat that fails is the surest sign of an outage."""
        self.last_beat = -self.interval
        self.reports: Reports = {}
        self._attentive = False
        """True if a handler was told to end: its cancellation is removed once it has ended."""

    def report(self, job_id: str, fraction: float, message: str) -> None:
        self.reports[job_id] = (fraction, message)

    def turn(self) -> Turn:
        self.look_up()
        if self.wanted is not None and self.rest.is_wanted():
            if self.rest.is_due():
                self._run_idle_check(self.wanted())
        elif time.monotonic() - self.last_beat >= self.interval or self.rest.is_unproven:
            self._beat()
        if self.reports or self._attentive or self.busy():
            self._look_around()
        return Turn.IDLE

    def _beat(self) -> None:
        with self.outage_guard.exchange(), self.database.transaction(self.link, single=True) as tx:
            alive = processes.beat(tx, self.identity.id)
            if self.rest.is_unproven:
                tx.run(SEND_PROOF, channel=self.rest.channel, proof=self.rest.prove())
            tokens = processes.held_long(tx, self.identity.id, self.database.settings.reap_after)
        self._beaten(alive)
        if not self.knows(tokens):
            self.in_doubt()

    def _beaten(self, alive: bool) -> None:
        if not alive:
            self.stream.emit(ProcessDeclaredDead(self.identity.id))
            self.declared_dead()
            self.identity.register()
            # Claims without a process row were refused: look again.
            self.rest.wake_up()
        self.outage_guard.heard(self.interval)
        self.last_beat = time.monotonic()

    def _run_idle_check(self, wanted: IdleQuery) -> None:
        begun = self.rest.begin_check()
        channel = self.rest.channel
        try:
            with self.outage_guard.exchange(), self.database.transaction(self.link, single=True) as tx:
                seen = run_idle_check(tx, self.identity.id, wanted, channel, begun.proof)
        except Exception:
            self.rest.end()
            raise
        self.rest.begin(begun)
        self._beaten(seen.alive)
        if seen.unknown:
            self.in_doubt()
        self.seen(seen)

    def _look_around(self) -> None:
        with self.database.reading(self.link) as tx:
            wanted, over = processes.cancellations(tx, self.identity.id)
        self._attentive = bool(wanted)
        if wanted:
            self.cancelled(wanted)
        if over:
            with self.database.transaction(self.link) as tx:
                processes.forget_cancellations(tx, self.identity.id, over)
        if self.reports:
            self._write_reports()

    def _write_reports(self) -> None:
        reports, self.reports = self.reports, {}
        try:
            self._record(reports)
        except Exception as error:
            if self.database.is_outage(error):
                self.reports = reports | self.reports
                raise
            self._write_one_by_one(reports)

    def _record(self, reports: Reports) -> None:
        with self.database.transaction(self.link) as tx:
            job_records.record(tx, reports)

    def _write_one_by_one(self, reports: Reports) -> None:
        """Write the reports one by one: the database refuses one, for instance for characters that its encoding
        lacks."""
        for job_id, report in reports.items():
            one = {job_id: report}
            try:
                self._record(one)
            except Exception as error:
                if self.database.is_outage(error):
                    raise
                log.warning("the progress of job %s cannot be stored as it is: %s", job_id, error)
                self._record(job_records.plainly(one))

    def pause(self) -> None:
        called = self.rest.called
        if called is None:
            self.stopping.wait(min(self.interval, LOOK_INTERVAL))
            return
        if called.wait(min(self.interval, LOOK_INTERVAL)) and not self.stopping.is_set():
            # The pump may have been woken to claim something and does that first; there is time enough.
            self.stopping.wait(min(self.interval, MOMENT))
            called.clear()

    def stop(self) -> None:
        super().stop()
        if self.rest.called is not None:
            self.rest.called.set()


def _patience(settings: Settings) -> float:
    """Seconds to wait for an answer: short enough to reconnect twice before others declare this process dead."""
    return max((settings.reap_after - settings.heartbeat_interval) / 3, LEAST_PATIENCE)
