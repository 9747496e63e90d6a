"""One reconciler at work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.database.ears import DeafEar
from penstock.database.links import Link
from penstock.reconcile.definition import Reconciler
from penstock.reconcile.ending import Ended, Kind
from penstock.reconcile.hints import concerns
from penstock.reconcile.source import RowSource
from penstock.runtime.row_crew import RowCrew
from penstock.runtime.row_pump import FIRST_DELAY, LONGEST_DELAY, RowPump
from penstock.runtime.waker import Waker

if TYPE_CHECKING:
    from penstock.runtime.rows import RowHost


class Runner:
    """One reconciler at work: source, crew and pump."""

    def __init__(self, host: RowHost, reconciler: Reconciler) -> None:
        self.reconciler = reconciler
        self.crew = RowCrew(reconciler, self._finished, host.events)
        self.source = RowSource(
            host.database, reconciler, host.wakeups, host.events, self.crew.lose, self._refused
        )
        self.waker = Waker(DeafEar())
        self.pump = RowPump(
            host.database,
            self.source,
            self.crew.room,
            self.crew.hand_over,
            self.waker,
            host.events,
            host.settings.batch,
            (FIRST_DELAY, LONGEST_DELAY),
        )
        self.pump.rows = self.source
        # Given back between turns, so that a dozen idle reconcilers do not keep a dozen connections.
        self.pump.link = Link(host.database, brief=True)

    def _finished(self, end: Ended) -> None:
        self.pump.finished(end)

    def _refused(self, end: Ended) -> None:
        if end.kind is not Kind.RELEASED:
            self.crew.regret(end.item, end)

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
