"""One reconciler at work."""

from __future__ import annotations

from collections.abc import Callable

from penstock.app_services import AppServices
from penstock.database.connections import ConnectionHandle
from penstock.database.listeners import NoListener
from penstock.reconcile.item import Item
from penstock.reconcile.outcome import VisitKind, VisitOutcome
from penstock.reconcile.reconciler import Reconciler
from penstock.reconcile.wakeup_subjects import concerns
from penstock.runtime.executors.dispatcher import Dispatcher
from penstock.runtime.executors.executor_set import ExecutorSet
from penstock.runtime.executors.prefetch import RowPrefetch
from penstock.runtime.executors.work import Interruption
from penstock.runtime.pump.waker import Waker
from penstock.runtime.reconcilers.lost_rows import LostRows
from penstock.runtime.reconcilers.row_pump import FIRST_DELAY, LONGEST_DELAY, RowPump
from penstock.runtime.reconcilers.row_source import RowSource
from penstock.runtime.reconcilers.row_visit import RowVisit, visit_maker
from penstock.runtime.service import call_on_loop
from penstock.telemetry.events import Stream


def row_dispatcher(
    reconciler: Reconciler,
    executors: ExecutorSet,
    finished: Callable[[VisitOutcome], None],
    lost: Callable[[RowVisit], None],
    stream: Stream,
) -> Dispatcher[Item, VisitOutcome]:
    """The dispatcher of one reconciler's rows. Outcomes that are not on record are not bounded: few rows are ahead."""
    policy = reconciler.policy
    prefetch = RowPrefetch(policy.workers, policy.most_waiting)
    made = Dispatcher(executors, visit_maker(reconciler, finished), finished, lost, stream, prefetch)
    made.uses = {reconciler.executor}
    return made


class Runner:
    """One reconciler at work: source, dispatcher and pump."""

    def __init__(self, host: AppServices, reconciler: Reconciler, executors: ExecutorSet) -> None:
        self.reconciler = reconciler
        self.lost_rows = LostRows(reconciler.on_lost)
        self.dispatcher = row_dispatcher(reconciler, executors, self._finished, self._lost, host.events)
        self.source = RowSource(
            host.database, reconciler, host.wakeups, host.events, self._lose, self._refused
        )
        self.waker = Waker(NoListener())
        self.pump = RowPump(
            host.database,
            self.source,
            self._room,
            self.dispatcher.hand_over,
            self.waker,
            host.events,
            host.settings.batch,
            (FIRST_DELAY, LONGEST_DELAY),
        )
        self.pump.rows = self.source
        # The connection is given back between turns, so that many idle reconcilers do not keep many connections.
        self.pump.link = ConnectionHandle(host.database, brief=True)

    def _room(self) -> int:
        paused = self.reconciler.name in self.dispatcher.processes.paused_tasks
        return self.dispatcher.room() if self.reconciler.enabled and not paused else 0

    def _finished(self, end: VisitOutcome) -> None:
        self.pump.finished(end)

    def _lose(self, item: Item) -> None:
        """From any thread: stop the handler of a claim that was lost."""
        call_on_loop(self.dispatcher.loop, self.dispatcher.interrupt, {item}, Interruption.LOST)

    def _lost(self, visit: RowVisit) -> None:
        if visit.visited:
            self.lost_rows.call_on_lost(visit.item, None)

    def _refused(self, end: VisitOutcome) -> None:
        if end.kind is not VisitKind.RELEASED:
            self.lost_rows.call_on_lost(end.item, end)

    def hear(self, subject: str) -> None:
        if concerns(subject, self.reconciler.target.name, self.reconciler.name):
            self.waker.wake(subject)

    @property
    def at_rest(self) -> bool:
        return not (self.pump.unsettled or self.pump.in_doubt or self.source.holdings.count)

    def give_back(self) -> None:
        """After the pump's last turn: give back the rows that it claimed, instead of leaving them to the end of their
        lease."""
        if not self.at_rest:
            self.pump.turn()
