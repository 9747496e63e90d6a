"""The pump of a reconciler: polls for rows, less and less often while there are none."""

from __future__ import annotations

import random
import time

from penstock.reconcile.item import Item
from penstock.reconcile.outcome import VisitOutcome
from penstock.reconcile.wakeup_subjects import ROWS
from penstock.runtime.pump.pump import Pump
from penstock.runtime.reconcilers.row_source import RowSource
from penstock.runtime.service import Turn

FIRST_DELAY = 0.05
GROWTH = 1.6
LONGEST_DELAY = 1.1
"""A change without a wake-up is found about a second later. Leases of dead processes are known beforehand."""
RESTS_AFTER = 6
"""After this many empty fetches, one statement checks for due rows before the next fetch."""
HINT_INTERVAL = 0.005


class RowPump(Pump[Item, VisitOutcome]):
    """Fetches rows when there is room, and waits longer and longer when there are none."""

    rows: RowSource
    _looked = 0.0

    def turn(self) -> Turn:
        self._looked = time.monotonic()
        if self._is_resting():
            if not self._has_due_rows():
                self._empty_turns += 1
                return Turn.IDLE
            # Another worker may be quicker, or our clock may be ahead: look again soon.
            self._empty_turns = 0
        return super().turn()

    def _is_resting(self) -> bool:
        return self._empty_turns >= RESTS_AFTER and not self.unsettled and self.claiming and self.room() > 0

    def _has_due_rows(self) -> bool:
        with self.database.reading(self.link) as tx:
            return self.rows.has_due_rows(tx)

    def pause(self) -> None:
        if self.unsettled:
            return
        subjects = self.waker.wait(self.delay())
        if subjects:
            # A wake-up that is not about our rows: one statement checks for due rows. One about our rows: a fetch.
            self._empty_turns = RESTS_AFTER if subjects == {ROWS} else 0
            self.source.heard(subjects)
            # Several hints count as one: the next fetch finds the rows of all of them.
            early = HINT_INTERVAL - (time.monotonic() - self._looked)
            if early > 0:
                self.stopping.wait(early)

    def delay(self) -> float:
        """The delay to the next poll: growing, so that an empty table costs little; jittered, so that processes do
        not poll together."""
        grown = min(FIRST_DELAY * GROWTH ** min(self._empty_turns, 20), LONGEST_DELAY) * random.uniform(
            0.95, 1.1
        )
        due = self.rows.due.until_next()
        return grown if due is None else min(grown, due + 0.001)
