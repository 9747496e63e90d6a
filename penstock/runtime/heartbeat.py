"""The heartbeat: a thread and a connection of its own, so that nothing a handler does can cost us our claims.

It renews the process row, which is the lease of everything held here; learns of cancellations; writes progress. When
the row is gone, others have taken us for dead: handlers are told, claims dropped, and we go on under a new name.

It also reads what the database has us hold. A claim that was given up for lost may arrive all the same, long after:
what is left in a socket is sent on when the network is back. Nobody here would know of it, and as long as we live it is
nobody else's.

Where the process may rest (see `rest`), a glance now and then takes its place; it is back as soon as the rest ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Set

from penstock.database.engine import Database
from penstock.database.links import Link
from penstock.database.transaction import Transaction
from penstock.queue import processes, progress
from penstock.queue.glance import Seen, Wanted, glance
from penstock.runtime.contact import Contact
from penstock.runtime.identity import Identity
from penstock.runtime.rest import Rest
from penstock.runtime.service import Service, Turn
from penstock.settings import Settings
from penstock.telemetry.events import ProcessDeclaredDead, Stream

LOOK_INTERVAL = 0.5
"""How soon a running handler learns that it is cancelled, at the latest."""
MOMENT = 0.05
LEAST_PATIENCE = 0.5
"""Seconds: a database that is only busy answers within that."""


class Heartbeat(Service):
    """Says that this process lives, and hears what is wanted of it."""

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
        rest: Rest | None = None,
        wanted: Callable[[], Wanted] | None = None,
        seen: Callable[[Seen], None] = lambda _: None,
        look_up: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(stream)
        self.database = database
        self.identity = identity
        self.busy = busy
        self.cancelled = cancelled
        self.declared_dead = declared_dead
        self.knows = knows
        """Asked about the tokens of what we have held for as long as it takes until a dead process is found."""
        self.in_doubt = in_doubt
        """Told if there is one that nobody knows."""
        self.rest = rest or Rest()
        self.wanted = wanted
        self.seen = seen
        self.look_up = look_up
        """Called every turn: nobody else is sure to be there when the event loop is not."""
        self.interval = database.settings.heartbeat_interval
        # After an outage we must be heard of before the patience of others ends.
        self.longest_backoff = min(self.longest_backoff, self.interval)
        self.link = Link(database, dedicated=True, patience=_patience(database.settings))
        self.contact = Contact(database.settings.reap_after)
        """Whoever judges others by their silence shares it: a beat that fails is the surest sign of an outage."""
        self.last_beat = -self.interval
        self.reports: dict[str, tuple[float, str]] = {}
        self._attentive = False
        """Somebody here was told to end: there is something to tidy up when it has."""

    def report(self, job_id: str, fraction: float, message: str) -> None:
        self.reports[job_id] = (fraction, message)

    def turn(self) -> Turn:
        self.look_up()
        if self.wanted is not None and self.rest.is_wanted():
            if self.rest.is_due():
                self._glance(self.wanted())
        elif time.monotonic() - self.last_beat >= self.interval:
            self._beat()
        if self.reports or self._attentive or self.busy():
            self._look_around()
        return Turn.IDLE

    def _beat(self) -> None:
        with self.contact.exchange(), self.database.transaction(self.link, single=True) as tx:
            alive = processes.beat(tx, self.identity.id)
            tokens = processes.held_long(tx, self.identity.id, self.database.settings.reap_after)
        self._beaten(alive)
        if not self.knows(tokens):
            self.in_doubt()

    def _beaten(self, alive: bool) -> None:
        if not alive:
            self.stream.emit(ProcessDeclaredDead(self.identity.id))
            self.declared_dead()
            self.identity.register()
            # Whatever was tried without a row was refused: look again.
            self.rest.rouse()
        self.contact.heard(self.interval)
        self.last_beat = time.monotonic()

    def _glance(self, wanted: Wanted) -> None:
        begun = self.rest.try_on()
        channel = self.rest.channel
        try:
            with self.contact.exchange(), self.database.transaction(self.link, single=True) as tx:
                seen = glance(tx, self.identity.id, wanted, channel, begun.proof)
        except Exception:
            self.rest.end()
            raise
        self.rest.begin(begun)
        self._beaten(seen.alive)
        if seen.unknown:
            self.in_doubt()
        self.seen(seen)

    def _look_around(self) -> None:
        reports, self.reports = self.reports, {}
        try:
            with self.database.reading(self.link) as tx:
                wanted, over = processes.cancellations(tx, self.identity.id)
            if reports or over:
                with self.database.transaction(self.link) as tx:
                    self._write(tx, reports, over)
        except Exception:
            self.reports = reports | self.reports
            raise
        self._attentive = bool(wanted)
        if wanted:
            self.cancelled(wanted)

    def _write(self, tx: Transaction, reports: dict[str, tuple[float, str]], over: list[str]) -> None:
        if over:
            processes.forget_cancellations(tx, self.identity.id, over)
        progress.record(tx, reports)

    def pause(self) -> None:
        called = self.rest.called
        if called is None:
            self.stopping.wait(min(self.interval, LOOK_INTERVAL))
            return
        if called.wait(min(self.interval, LOOK_INTERVAL)) and not self.stopping.is_set():
            # Whoever was woken to claim something does that first; there is time enough.
            self.stopping.wait(min(self.interval, MOMENT))
            called.clear()

    def stop(self) -> None:
        super().stop()
        if self.rest.called is not None:
            self.rest.called.set()


def _patience(settings: Settings) -> float:
    """How long to wait for an answer: others wait long enough for us to connect anew, twice."""
    return max((settings.reap_after - settings.heartbeat_interval) / 3, LEAST_PATIENCE)
