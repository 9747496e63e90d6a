"""A reconciler as a source for the pump: claims rows, applies outcomes, and knows the rows that this process holds."""

from __future__ import annotations

import heapq
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence, Set
from datetime import datetime, timedelta

from penstock.database.clock_watch import ClockWatch
from penstock.database.database import Database
from penstock.database.transaction import Transaction
from penstock.database.user.statements import Statements
from penstock.queue.wakeups import Wakeups
from penstock.reconcile import apply as rows_apply
from penstock.reconcile import claim as rows_claim
from penstock.reconcile.apply import Applied
from penstock.reconcile.claim import Taken
from penstock.reconcile.columns import from_micros
from penstock.reconcile.events import ColumnsKept, LeaseLost, RelatedBusy, RowsClaimed, RowSettled
from penstock.reconcile.item import Item
from penstock.reconcile.leases import HeldRows
from penstock.reconcile.outcome import VisitKind, VisitOutcome, refused
from penstock.reconcile.reconciler import Reconciler
from penstock.reconcile.statements import Fetch, release
from penstock.reconcile.table import Key, in_order, key_text
from penstock.reconcile.wakeup_subjects import awaited, table_changed
from penstock.runtime.pump.source import Source
from penstock.telemetry.events import ClockStepped, Stream
from penstock.values.failure import Failure

# Due times of rows that this process has visited, so that the pump need not ask the database all the time.

GRAIN = 0.05
LONGEST = 3600.0


class DueTimes:
    """A coarse calendar of due times in this process. Rows of other processes are found by polling."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._known: set[float] = set()
        self._lock = threading.Lock()

    def add(self, delay: float) -> None:
        """Note that a row is due after this delay, in seconds."""
        if delay > LONGEST:
            return
        at = (int((time.monotonic() + delay) / GRAIN) + 1) * GRAIN
        with self._lock:
            if at not in self._known:
                self._known.add(at)
                heapq.heappush(self._times, at)

    def until_next(self) -> float | None:
        """Seconds until the next due time; past times are removed."""
        now = time.monotonic()
        with self._lock:
            while self._times and self._times[0] <= now:
                self._known.discard(heapq.heappop(self._times))
            return self._times[0] - now if self._times else None


CLOCK_TRUSTED = 60.0


class RowSource(Source[Item, VisitOutcome]):
    """Claims and applies for one reconciler in one process."""

    def __init__(
        self,
        database: Database,
        reconciler: Reconciler,
        wakeups: Wakeups,
        stream: Stream,
        lost: Callable[[Item], None] = lambda _: None,
        refused: Callable[[VisitOutcome], None] = lambda _: None,
    ) -> None:
        self.name = reconciler.name
        self.database = database
        self.reconciler = reconciler
        self.wakeups = wakeups
        self.stream = stream
        self.lost = lost
        """Called with items whose rows were claimed again: their handlers are stopped."""
        self.refused = refused
        """Called with outcomes that came too late."""
        self.holdings = HeldRows()
        self.due = DueTimes()
        self.counts: Counter[str] = Counter()
        self._fetch: Fetch | None = None
        self._taken: Taken | None = None
        self._applied: Applied | None = None
        self._doubtful: list[int] = []
        self._given_back: list[int] = []
        self._busy: set[Key] = set()
        self._again: set[Key] = set()
        self._trying: list[Key] = []
        self._lock = threading.Lock()
        self._clock: tuple[datetime, float] | None = None
        self._last: Statements | None = None
        self._watch = ClockWatch(reconciler.policy.lease_seconds)

    @property
    def fetch(self) -> Fetch:
        if self._fetch is None:
            self._fetch = Fetch(self.reconciler, self.database.engine)
        return self._fetch

    def claim(self, tx: Transaction, limit: int, alone: bool = False) -> list[Item]:
        tx.stage("claim_rows")
        with self._lock:
            again = self._trying = in_order(self._again)[:limit]
            self._again.difference_update(again)
        began = time.monotonic()
        taken = rows_claim.claim(self._statements(tx), self.reconciler, self.fetch, limit, again, self._watch)
        self._taken = taken
        if taken.step:
            self.stream.emit(ClockStepped(taken.step))
        self._clock = (taken.now, self._statements(tx).read_at)
        if taken.items and self.stream.wants(RowsClaimed):
            self.stream.emit(RowsClaimed(self.name, len(taken.items), time.monotonic() - began))
        return taken.items

    def _statements(self, tx: Transaction) -> Statements:
        """The statements of this turn: applies and claims in it have the same time."""
        if self._last is None or self._last.tx is not tx:
            self._last = Statements(self.database, tx)
        return self._last

    def has_due_rows(self, tx: Transaction) -> bool:
        """True if a claim may find rows. It uses the clock as last read, so it decides nothing."""
        if self._clock is None or time.monotonic() - self._clock[1] > CLOCK_TRUSTED:
            return True
        now = self._clock[0] + timedelta(seconds=time.monotonic() - self._clock[1])
        at = rows_claim.next_due(Statements(self.database, tx), self.reconciler, self.fetch, now)
        if at is not None and at > now:
            # The lease of another worker ends then: if that worker is dead, we take its row.
            self.due.add((at - now).total_seconds())
        return at is not None and at <= now

    def forget(self, claims: Sequence[Item]) -> None:
        for item in claims:
            self.holdings.remove(item)
        self._doubtful += sorted({item.token for item in claims})

    def settle(self, tx: Transaction, finished: Sequence[VisitOutcome], room: int = 0) -> list[Item]:
        tx.stage("apply_rows")
        self._applied = rows_apply.apply(self._statements(tx), self.reconciler, self.fetch, finished)
        return []

    def committed(self) -> None:
        taken, self._taken = self._taken, None
        applied, self._applied = self._applied, None
        self._doubtful = [token for token in self._doubtful if token not in self._given_back]
        if applied is not None:
            self._after_apply(applied)
        if taken is not None:
            self._after_claim(taken)

    def rolled_back(self) -> None:
        if self._taken is not None and self._taken.items:
            # If the answer was lost, it is unknown whether this was committed.
            self._doubtful.append(self._taken.token)
        self._taken = self._applied = None
        self._given_back = []
        with self._lock:
            self._again.update(self._trying)
            self._trying = []

    def heard(self, subjects: Set[str], room: int = 1) -> None:
        """Look again at once for rows that waited for related rows."""
        with self._lock:
            self._again |= self._busy

    def recover(self, tx: Transaction) -> None:
        """Give back rows that we may have claimed without getting the answer."""
        tx.stage("recover_rows")
        tokens, statements = self._doubtful, Statements(self.database, tx)
        targets = {self.reconciler.target} | {lock.target() for lock in self.reconciler.locks}
        due = from_micros(statements.now()) if tokens else None
        for target in sorted(targets, key=lambda target: target.name) if tokens else ():
            statements.run(release(target, None, tokens, due if target is self.reconciler.target else None))
        self._given_back = tokens

    def name_of(self, finished: VisitOutcome) -> str:
        return f"{self.reconciler.name} {finished.item.id}"

    def blame(self, finished: VisitOutcome, error: Exception) -> VisitOutcome | None:
        """The outcome for a row whose writes the database refuses: an error of the row."""
        return refused(self.reconciler.policy, finished, Failure.of(error))

    # afterwards

    def _after_claim(self, taken: Taken) -> None:
        for item in self.holdings.add(taken.items):
            self.lose(item)
        with self._lock:
            self._busy.difference_update(self._trying, (item.claim.key for item in taken.items))
            self._busy.update(taken.busy)
            self._trying = []
        for key in taken.busy:
            self.due.add(rows_claim.BUSY_PAUSE.total_seconds())
            self.stream.emit(RelatedBusy(self.name, self.reconciler.target.name, key_text(key)))

    def _after_apply(self, applied: Applied) -> None:
        for end in applied.accepted:
            self.holdings.remove(end.item)
            self.counts["failed" if end.failed else "processed"] += end.kind is not VisitKind.RELEASED
            self.due.add(end.delay)
        for end in applied.lost:
            self.holdings.remove(end.item)
            self.lose(end.item)
            self.refused(end)
        for end, columns in applied.kept:
            self.stream.emit(
                ColumnsKept(self.name, end.item.target.name, key_text(end.item.claim.key), columns)
            )
        if self.stream.wants(RowSettled):
            for end in applied.accepted:
                self.stream.emit(_settled(end))
        for table in applied.changed_tables:
            self.wakeups.notify(table_changed(table))
        for name in applied.awaited:
            self.wakeups.notify(awaited(name))

    def lose(self, item: Item) -> None:
        """Drop a claim that was lost."""
        if item.lease_lost:
            return
        item.lose()
        self.counts["lost"] += 1
        self.stream.emit(LeaseLost(self.name, item.target.name, key_text(item.claim.key), item.token))
        self.lost(item)


def _settled(end: VisitOutcome) -> RowSettled:
    item = end.item
    row, failure = key_text(item.claim.key), end.failure
    if failure is None:
        return RowSettled(item.reconciler, item.target.name, row, end.kind, end.seconds)
    said = (str(failure), failure.type, failure.traceback or None)
    return RowSettled(item.reconciler, item.target.name, row, end.kind, end.seconds, *said)
