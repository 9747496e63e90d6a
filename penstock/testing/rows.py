"""Reconcilers in tests: everything due is worked on here and now, one row after the other, without threads."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from penstock.database.ears import DeafEar
from penstock.database.statements import Statements
from penstock.reconcile import renew
from penstock.reconcile.definition import Reconciler
from penstock.reconcile.ending import Ended, Kind, crashed, failed, released, returned
from penstock.reconcile.item import Item
from penstock.reconcile.source import RowSource
from penstock.runtime.pump import Pump
from penstock.runtime.waker import Waker
from penstock.telemetry.points import SimulatedCrash
from penstock.values.failure import Failure

if TYPE_CHECKING:
    from penstock.app import Penstock

MOST_TRIES = 20


def reconcile(app: Penstock, *reconcilers: Reconciler, limit: int = 1000) -> int:
    """Visit every row that is due now, once; of all reconcilers, or of these. How many visits that were.

    What becomes due because of it is visited too, until nothing is due or `limit` is reached.
    """
    visits = 0
    chosen = reconcilers or tuple(app.reconcilers.values())
    hands = [RowHand(app, reconciler) for reconciler in chosen]
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


class RowHand:
    """One process's share in a reconciler, moved by hand: take rows, end them, renew them, or just vanish."""

    def __init__(self, app: Penstock, reconciler: Reconciler) -> None:
        app.prepare()
        self.app = app
        self.reconciler = reconciler
        self.regretted: list[tuple[Item, Ended | None]] = []
        self.source = RowSource(app.database, reconciler, app.wakeups, app.events, refused=self._refused)
        self.waker = Waker(DeafEar())
        self._room = 0
        self._taken: list[Item] = []
        self.pump: Pump[Item, Ended] = Pump(
            app.database,
            self.source,
            lambda: self._room,
            self._taken.extend,
            self.waker,
            app.events,
            app.settings.batch,
            (1.0, 1.0),
        )

    def __enter__(self) -> RowHand:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def visit(self, limit: int = 100) -> int:
        """Take what is due, work on it, apply it."""
        items = self.take(limit)
        self.finish(*[self.work(item) for item in items])
        return len(items)

    def take(self, limit: int = 100) -> list[Item]:
        self._room = limit
        self.pump.turn()
        self._room = 0
        taken, self._taken[:] = list(self._taken), []
        return taken

    def work(self, item: Item) -> Ended:
        """Call the handler."""
        policy = self.reconciler.policy
        if (end := crashed(policy, item)) is not None:
            return end
        try:
            return returned(policy, item, _called(self.reconciler, item))
        except SimulatedCrash:
            raise
        except BaseException as error:
            return failed(policy, item, Failure.of(error), Kind.ERRORED, 0.0)

    def end(self, item: Item, value: object = None) -> Ended:
        """As if the handler had returned this."""
        return returned(self.reconciler.policy, item, value)

    def give_back(self, *items: Item) -> None:
        self.finish(*[released(item) for item in items])

    def finish(self, *ends: Ended) -> None:
        """Apply; what the database refuses is that row's own error."""
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
        """Move the deadlines of these; those that turn out to be lost."""
        lost = self.app.database.in_transaction(
            lambda tx: renew.renew_all(
                Statements(self.app.database, tx), items, self.reconciler.policy.lease_seconds
            )
        )
        for item in lost:
            self.source.holdings.remove(item)
            self.source.lose(item)
        return lost

    def _refused(self, end: Ended) -> None:
        self.regretted.append((end.item, end))

    def close(self) -> None:
        self.pump.link.close()
        self.waker.close()


def _called(reconciler: Reconciler, item: Item) -> Any:
    value = reconciler.function(item)
    return asyncio.run(_awaited(value)) if inspect.isawaitable(value) else value


async def _awaited(value: Any) -> Any:
    return await value
