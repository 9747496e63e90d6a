"""One reconciler at work."""

from __future__ import annotations

from penstock.app_services import AppServices
from penstock.database.connections import ConnectionHandle
from penstock.database.listeners import NoListener
from penstock.reconcile.outcome import VisitKind, VisitOutcome
from penstock.reconcile.reconciler import Reconciler
from penstock.reconcile.source import RowSource
from penstock.reconcile.wakeup_subjects import concerns
from penstock.runtime.pump.waker import Waker
from penstock.runtime.reconcilers.row_dispatcher import RowDispatcher
from penstock.runtime.reconcilers.row_pump import FIRST_DELAY, LONGEST_DELAY, RowPump


class Runner:
    """One reconciler at work: source, dispatcher and pump."""

    def __init__(self, host: AppServices, reconciler: Reconciler) -> None:
        self.reconciler = reconciler
        self.dispatcher = RowDispatcher(reconciler, self._finished, host.events)
        self.source = RowSource(
            host.database, reconciler, host.wakeups, host.events, self.dispatcher.lose, self._refused
        )
        self.waker = Waker(NoListener())
        self.pump = RowPump(
            host.database,
            self.source,
            self.dispatcher.room,
            self.dispatcher.hand_over,
            self.waker,
            host.events,
            host.settings.batch,
            (FIRST_DELAY, LONGEST_DELAY),
        )
        self.pump.rows = self.source
        # Given back between turns, so that a dozen idle reconcilers do not keep a dozen connections.
        self.pump.link = ConnectionHandle(host.database, brief=True)

    def _finished(self, end: VisitOutcome) -> None:
        self.pump.finished(end)

    def _refused(self, end: VisitOutcome) -> None:
        if end.kind is not VisitKind.RELEASED:
            self.dispatcher.regret(end.item, end)

    def hear(self, subject: str) -> None:
        if concerns(subject, self.reconciler.target.name, self.reconciler.name):
            self.waker.wake(subject)

    @property
    def at_rest(self) -> bool:
        return not (self.pump.unsettled or self.pump.in_doubt or self.source.holdings.count)

    def give_back(self) -> None:
        """After the pump's last turn: what that still brought goes back now, not when its lease is over."""
        if not self.at_rest:
            self.pump.turn()
