"""Services that all reconcilers of a process share: renewal of row leases, the lock sweeper, the hint listener."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from functools import partial

from penstock.database.boundary import Boundary, do_all
from penstock.database.connections import ConnectionHandle
from penstock.database.database import Database
from penstock.database.transaction import Transaction
from penstock.database.user.statements import Statements
from penstock.reconcile import counts as tally
from penstock.reconcile import leases
from penstock.reconcile.events import LocksSwept
from penstock.reconcile.item import Item
from penstock.reconcile.reconciler import Reconciler
from penstock.reconcile.table import Target
from penstock.reconcile.wakeup_subjects import ROWS
from penstock.runtime.pump.waker import ResultListener
from penstock.runtime.reconcilers.row_source import RowSource
from penstock.runtime.service import Service, Turn
from penstock.telemetry.events import Stream

UNSPECIFIC_INTERVAL = 0.02
TALLY_INTERVAL = 5.0
SWEEP_INTERVAL = 120.0


class LeaseKeeper(Service):
    """Renews the leases of all rows that this process holds. It has a thread and a connection of its own."""

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
        self.link = ConnectionHandle(database)
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
            self.notify()
        return Turn.IDLE

    def keep(self, source: RowSource) -> None:
        """Drop items whose lease is over, and renew those whose lease ends soon."""
        now = leases.clock()
        for item in source.holdings.overdue(now):
            source.lose(item)
        lease = source.reconciler.policy.lease_seconds
        items = source.holdings.near_end(now, lease / 2)
        if not items:
            return
        with self.database.transaction(self.link) as tx:
            lost = self._renew(tx, items, lease)
        leases.trust([item for item in items if item not in lost], now, lease)
        for item in lost:
            source.holdings.remove(item)
            source.lose(item)

    def _renew(self, tx: Transaction, items: Sequence[Item], lease: float) -> list[Item]:
        return leases.renew_all(Statements(self.database, tx), items, lease)

    def notify(self) -> None:
        """Write the counts of this process's reconcilers for operators, but only those that changed."""
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
    """Removes orphaned row locks that no reconciler would take over."""

    name = "lock sweeper"

    def __init__(
        self, database: Database, stream: Stream, reconcilers: Callable[[], Sequence[Reconciler]]
    ) -> None:
        super().__init__(stream)
        self.database = database
        self.reconcilers = reconcilers
        self._boundaries: dict[str, Boundary[tuple[object, ...]]] = {}

    def turn(self) -> Turn:
        found = leases.targets(self.reconcilers())
        do_all(self.database, [partial(self._sweep_table, *table) for table in found.items()])
        return Turn.IDLE

    def _sweep_table(self, target: Target, reconcilers: Sequence[Reconciler]) -> bool:
        try:
            swept = self.database.in_transaction(self._sweep, target, reconcilers)
        except Exception as error:
            swept = self._sweep_apart(target, reconcilers, error)
        if swept:
            self.stream.emit(LocksSwept(target.name, swept))
        return bool(swept)

    def _sweep_apart(self, target: Target, reconcilers: Sequence[Reconciler], error: Exception) -> int:
        if self.database.is_passing(error):
            raise error
        boundary = self._boundaries.get(target.name)
        if boundary is None:
            made = Boundary[tuple[object, ...]](self.database, self.stream, f"the lock of {target.name}")
            boundary = self._boundaries[target.name] = made

        def find(tx: Transaction) -> list[tuple[object, ...]]:
            return leases.orphaned(Statements(self.database, tx), target, reconcilers)

        def remove(rows: Sequence[tuple[object, ...]]) -> int:
            return self.database.in_transaction(
                lambda tx: leases.remove(Statements(self.database, tx), target, rows)
            )

        left = set(boundary.left)
        rows = [row for row in self.database.in_transaction(find) if row not in left]
        return sum(boundary.handle_apart(rows, remove, error))

    def _sweep(self, tx: Transaction, target: Target, reconcilers: Sequence[Reconciler]) -> int:
        tx.stage("sweep_rows")
        return leases.sweep(Statements(self.database, tx), target, reconcilers)

    def pause(self) -> None:
        self.stopping.wait(SWEEP_INTERVAL * random.uniform(1.0, 1.5))


class RowListener(ResultListener):
    """Passes on wake-ups of other processes about rows."""

    name = "row listener"

    def turn(self) -> Turn:
        for subject in self.waker.wait(60.0):
            self.wakeups.relay(subject if subject.startswith(ROWS) else ROWS)
            if not subject.startswith(ROWS):
                # Not about a table: a SQLite file was written, perhaps by us. That may happen all the time.
                self.stopping.wait(UNSPECIFIC_INTERVAL)
        return Turn.WORKED
