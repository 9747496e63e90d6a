"""The heartbeat: a thread and a connection of its own, so that nothing a handler does can cost us our claims.

It renews the process row, which is the lease of everything held here; learns of cancellations; writes progress. When
the row is gone, others have taken us for dead: handlers are told, claims dropped, and we go on under a new name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from penstock.database.engine import Database, Link
from penstock.database.transaction import Transaction
from penstock.queue import processes, progress
from penstock.runtime.identity import Identity
from penstock.runtime.service import Service, Turn
from penstock.telemetry.events import ProcessDeclaredDead, Stream

GLANCE = 0.5
"""How soon a running handler learns that it is cancelled, at the latest."""


class Heartbeat(Service):
    """Says that this process lives, and hears what is wanted of it."""

    name = "heartbeat"

    def __init__(
        self,
        database: Database,
        identity: Identity,
        stream: Stream,
        busy: Callable[[], bool],
        cancelled: Callable[[Sequence[str]], None],
        declared_dead: Callable[[], None],
    ) -> None:
        super().__init__(stream)
        self.database = database
        self.identity = identity
        self.busy = busy
        self.cancelled = cancelled
        self.declared_dead = declared_dead
        self.interval = database.settings.heartbeat_interval
        # After an outage we must be heard of before the patience of others ends.
        self.longest_backoff = min(self.longest_backoff, self.interval)
        self.link = Link(database)
        self.last_beat = -self.interval
        self.reports: dict[str, tuple[float, str]] = {}

    def report(self, job_id: str, fraction: float, message: str) -> None:
        self.reports[job_id] = (fraction, message)

    def turn(self) -> Turn:
        if time.monotonic() - self.last_beat >= self.interval:
            self._beat()
        if self.reports or self.busy():
            self._look_around()
        return Turn.IDLE

    def _beat(self) -> None:
        with self.database.transaction(self.link, single=True) as tx:
            alive = processes.beat(tx, self.identity.id)
        if alive:
            self.last_beat = time.monotonic()
            return
        self.stream.emit(ProcessDeclaredDead(self.identity.id))
        self.declared_dead()
        self.identity.register()
        self.last_beat = time.monotonic()

    def _look_around(self) -> None:
        reports, self.reports = self.reports, {}
        try:
            with self.database.reading(self.link) as tx:
                wanted = processes.cancellations(tx, self.identity.id)
            if reports or wanted:
                with self.database.transaction(self.link) as tx:
                    self._write(tx, reports, wanted)
        except Exception:
            self.reports = reports | self.reports
            raise
        if wanted:
            self.cancelled(wanted)

    def _write(self, tx: Transaction, reports: dict[str, tuple[float, str]], wanted: list[str]) -> None:
        if wanted:
            processes.forget_cancellations(tx, self.identity.id, wanted)
        progress.record(tx, reports)

    def pause(self) -> None:
        self.stopping.wait(min(self.interval, GLANCE))
