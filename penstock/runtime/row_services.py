"""What the reconcilers of a process share: a keeper of their leases, a sweeper of locks, an ear for hints."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from penstock.database.engine import Database
from penstock.database.links import Link
from penstock.database.statements import Statements
from penstock.database.transaction import Transaction
from penstock.reconcile import renew, sweep, tally
from penstock.reconcile.definition import Reconciler
from penstock.reconcile.events import LocksSwept
from penstock.reconcile.hints import ROWS
from penstock.reconcile.item import Item
from penstock.reconcile.source import RowSource
from penstock.reconcile.target import Target
from penstock.runtime.relay import Listener
from penstock.runtime.service import Service, Turn
from penstock.telemetry.events import Stream

UNSPECIFIC_INTERVAL = 0.02
TALLY_INTERVAL = 5.0
SWEEP_INTERVAL = 120.0


class LeaseKeeper(Service):
    """Keeps the claims of everything that runs or waits here. A thread and a connection of its own."""

    name = "lease keeper"

    def __init__(
        self,
        database: Database,
        stream: Stream,
        sources: Callable[[], Sequence[RowSource]],
        process: Callable[[], str],
    ) -> None:
        super().__init__(stream)
        self.database = database
        self.sources = sources
        self.process = process
        self.link = Link(database)
        self._told_at = time.monotonic()
        self._told: dict[str, dict[str, int]] = {}

    def turn(self) -> Turn:
        problem: Exception | None = None
        for source in self.sources():
            try:
                self.keep(source)
            except Exception as error:
                problem = error
        if problem is not None:
            raise problem
        if time.monotonic() - self._told_at >= TALLY_INTERVAL:
            self.tell()
        return Turn.IDLE

    def keep(self, source: RowSource) -> None:
        """Drop what is over, renew what soon would be."""
        now = renew.clock()
        for item in source.holdings.overdue(now):
            source.lose(item)
        lease = source.reconciler.policy.lease_seconds
        items = source.holdings.near_end(now, lease / 2)
        if not items:
            return
        with self.database.transaction(self.link) as tx:
            lost = self._renew(tx, items, lease)
        renew.trust([item for item in items if item not in lost], now, lease)
        for item in lost:
            source.holdings.remove(item)
            source.lose(item)

    def _renew(self, tx: Transaction, items: Sequence[Item], lease: float) -> list[Item]:
        return renew.renew_all(Statements(self.database, tx), items, lease)

    def tell(self) -> None:
        """What has been done here, for those who look at it; nothing is written when nothing was done."""
        seconds, self._told_at = time.monotonic() - self._told_at, time.monotonic()
        counts = {source.name: dict(source.counts) for source in self.sources() if source.counts}
        changed = {name: count for name, count in counts.items() if count != self._told.get(name)}
        if not changed:
            return
        rows = [tally.row(name, count, self._told.get(name, {}), seconds) for name, count in changed.items()]
        with self.database.transaction(self.link) as tx:
            tally.write(tx, self.process(), rows)
        self._told |= changed

    def pause(self) -> None:
        leases = [source.reconciler.policy.lease_seconds for source in self.sources()]
        self.stopping.wait(max(0.02, min([1.0, *(lease / 8 for lease in leases)])))


class Sweeper(Service):
    """Removes locks that nobody would come back for."""

    name = "lock sweeper"

    def __init__(
        self, database: Database, stream: Stream, reconcilers: Callable[[], Sequence[Reconciler]]
    ) -> None:
        super().__init__(stream)
        self.database = database
        self.reconcilers = reconcilers

    def turn(self) -> Turn:
        for target, reconcilers in sweep.targets(self.reconcilers()).items():
            swept = self.database.in_transaction(self._sweep, target, reconcilers)
            if swept:
                self.stream.emit(LocksSwept(target.name, swept))
        return Turn.IDLE

    def _sweep(self, tx: Transaction, target: Target, reconcilers: Sequence[Reconciler]) -> int:
        tx.stage("sweep_rows")
        return sweep.sweep(Statements(self.database, tx), target, reconcilers)

    def pause(self) -> None:
        self.stopping.wait(SWEEP_INTERVAL * random.uniform(1.0, 1.5))


class RowEar(Listener):
    """Passes on what other processes say about rows."""

    name = "row ear"

    def turn(self) -> Turn:
        for subject in self.waker.wait(60.0):
            self.wakeups.relay(subject if subject.startswith(ROWS) else ROWS)
            if not subject.startswith(ROWS):
                # About everything: a file was written, our own writes included. That may go on all the time.
                self.stopping.wait(UNSPECIFIC_INTERVAL)
        return Turn.WORKED
