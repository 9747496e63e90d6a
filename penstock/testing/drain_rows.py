"""Reconcilers in tests: visits all due rows in the caller, one after the other, without threads."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from penstock.database.listeners import NoListener
from penstock.database.user.statements import Statements
from penstock.reconcile import leases
from penstock.reconcile.item import Item
from penstock.reconcile.outcome import VisitKind, VisitOutcome, beforehand, failed, raised, released, returned
from penstock.reconcile.reconciler import Reconciler
from penstock.runtime.pump.pump import Pump
from penstock.runtime.pump.waker import Waker
from penstock.runtime.reconcilers.lost_rows import undo
from penstock.runtime.reconcilers.row_source import RowSource
from penstock.telemetry.fault_points import SimulatedCrash
from penstock.values.typed_json.annotations import waited_for

if TYPE_CHECKING:
    from penstock.app import Penstock

Hear = Callable[[BaseException], None] | None
"""Called with the exception that a handler raises."""

MOST_TRIES = 20
MOST_VISITS = 100
"""The most visits of one row in one drain: a row that is always due again must not keep it going for ever."""


def reconcile(app: Penstock, *reconcilers: Reconciler, limit: int = 1000) -> int:
    """Visit every row that is due now, once; of all reconcilers, or of these. How many visits that were.

    What becomes due because of it is visited too, until nothing is due or `limit` is reached.
    """
    visits = 0
    chosen = reconcilers or tuple(app.reconcilers.values())
    hands = [ManualReconciler(app, reconciler) for reconciler in chosen]
    try:
        while visits < limit:
            done = sum(hand.visit(limit - visits) for hand in hands)
            if not done:
                break
            visits += done
    finally:
        for hand in hands:
            hand.close()
    return visits


class ReconcilerRounds:
    """The rows that are due, of all reconcilers, visited once or as often as they become due again; for `drain`."""

    def __init__(self, app: Penstock, wanted: bool = True, hear: Hear = None) -> None:
        enabled = [reconciler for reconciler in app.reconcilers.values() if reconciler.enabled]
        self.visits = 0
        self._hands = [ManualReconciler(app, reconciler, hear) for reconciler in enabled] if wanted else []
        self._seen: Counter[tuple[str, object]] = Counter()

    def __enter__(self) -> ReconcilerRounds:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as stack:
            for hand in self._hands:
                stack.callback(hand.close)

    def go(self, limit: int | None) -> int:
        """One round of at most `limit` visits; returns how many there were."""
        before = self.visits
        for hand in self._hands:
            self._note(hand, items := hand.take_again(self._room(before, limit)))
            for item in items:
                hand.finish(hand.work(item))
                hand.undo()
        return self.visits - before

    async def go_async(self, limit: int | None) -> int:
        """`go` for async callers: `async def` handlers run on their event loop."""
        before = self.visits
        for hand in self._hands:
            self._note(hand, items := await asyncio.to_thread(hand.take_again, self._room(before, limit)))
            for item in items:
                await asyncio.to_thread(hand.finish, await hand.work_async(item))
                await hand.undo_async()
        return self.visits - before

    def _room(self, before: int, limit: int | None) -> int:
        return MOST_VISITS if limit is None else min(MOST_VISITS, max(0, limit - self.visits + before))

    def _note(self, hand: ManualReconciler, items: list[Item]) -> None:
        self.visits += len(items)
        name = hand.reconciler.name
        self._seen.update([(name, item.id) for item in items])
        if items and all(self._seen[name, item.id] >= MOST_VISITS for item in items):
            self._hands = [other for other in self._hands if other is not hand]
            hand.close()


class ManualReconciler:
    """A reconciler in one process, driven by hand: take rows, end them, renew them, or drop them."""

    def __init__(self, app: Penstock, reconciler: Reconciler, hear: Hear = None) -> None:
        app.prepare()
        self._hear = hear
        self.app = app
        self.reconciler = reconciler
        self.refused_visits: list[tuple[Item, VisitOutcome | None]] = []
        self.source = RowSource(app.database, reconciler, app.wakeups, app.events, refused=self._refused)
        self.waker = Waker(NoListener())
        self._room = 0
        self._taken: list[Item] = []
        self.pump: Pump[Item, VisitOutcome] = Pump(
            app.database,
            self.source,
            lambda: self._room,
            self._taken.extend,
            self.waker,
            app.events,
            app.settings.batch,
            (1.0, 1.0),
        )

    def __enter__(self) -> ManualReconciler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def visit(self, limit: int = 100) -> int:
        """Take what is due, work on it, apply it."""
        items = self.app.database.with_retries(lambda: self.take(limit))
        self.finish(*[self.work(item) for item in items])
        return len(items)

    def take(self, limit: int = 100) -> list[Item]:
        self._room = limit
        self.pump.turn()
        self._room = 0
        taken, self._taken[:] = list(self._taken), []
        return taken

    def take_again(self, limit: int) -> list[Item]:
        """Take rows, also those that had to wait for related ones: a drain gets no wake-ups."""
        self.source.heard(frozenset())
        return self.take(limit)

    def work(self, item: Item) -> VisitOutcome:
        """Call the handler."""
        if (end := beforehand(self.reconciler.policy, item)) is not None:
            return end
        try:
            value = self.reconciler.visit(item)
            if inspect.isawaitable(value):
                return asyncio.run(self._awaited(item, value))
            return self.end(item, value)
        except (SimulatedCrash, KeyboardInterrupt):
            raise
        except BaseException as error:
            return self._failed(item, error)

    async def work_async(self, item: Item) -> VisitOutcome:
        """Call the handler: here if it is `async def`, in a thread if it is not."""
        if not self.reconciler.is_async:
            return await asyncio.to_thread(self.work, item)
        if (end := beforehand(self.reconciler.policy, item)) is not None:
            return end
        try:
            return await self._awaited(item, self.reconciler.visit(item))
        except (SimulatedCrash, KeyboardInterrupt, asyncio.CancelledError):
            raise
        except BaseException as error:
            return self._failed(item, error)

    async def _awaited(self, item: Item, value: Any) -> VisitOutcome:
        limit = asyncio.timeout(self.reconciler.policy.timeout_seconds)
        try:
            async with limit:
                return self.end(item, await waited_for(value))
        except TimeoutError as error:
            return self._failed(item, error, VisitKind.TIMED_OUT if limit.expired() else VisitKind.ERRORED)

    def _failed(self, item: Item, error: BaseException, kind: VisitKind = VisitKind.ERRORED) -> VisitOutcome:
        if self._hear is not None:
            self._hear(error)
        return failed(self.reconciler.policy, item, raised(item, error), kind, 0.0)

    def end(self, item: Item, value: object = None) -> VisitOutcome:
        """End a visit as if the handler had returned this."""
        return returned(self.reconciler.policy, item, value)

    def give_back(self, *items: Item) -> None:
        self.finish(*[released(item) for item in items])

    def finish(self, *ends: VisitOutcome) -> None:
        """Apply the outcomes; a row whose writes the database refuses gets that as its error."""
        for end in ends:
            self.pump.finished(end)
        for tries_left in reversed(range(MOST_TRIES)):
            if not self.pump.unsettled:
                return
            try:
                self.pump.turn()
            except Exception:
                if not tries_left:
                    raise

    def renew(self, *items: Item) -> list[Item]:
        """Renew the leases of these items; returns those that are lost."""
        lost = self.app.database.in_transaction(
            lambda tx: leases.renew_all(
                Statements(self.app.database, tx), items, self.reconciler.policy.lease_seconds
            )
        )
        for item in lost:
            self.source.holdings.remove(item)
            self.source.lose(item)
        return lost

    def undo(self) -> None:
        """Call `on_lost` for refused visits, as a worker does."""
        if self.reconciler.on_lost is not None and self.refused_visits:
            asyncio.run(self.undo_async())

    async def undo_async(self) -> None:
        refused_visits, self.refused_visits = self.refused_visits, []
        hook = self.reconciler.on_lost
        if hook is not None:
            for item, end in refused_visits:
                await undo(hook, item, None if end is None else dict(end.values))

    def _refused(self, end: VisitOutcome) -> None:
        self.refused_visits.append((end.item, end))

    def close(self) -> None:
        self.pump.link.close()
        self.waker.close()
