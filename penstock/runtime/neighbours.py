"""Neighbours: processes that live where we do. Of these the operating system tells at once that one is dead.

Decision 019. Looking costs no statement: who they are is read when somebody has moved in, who knocks; whether they live
is asked of the kernel. Nothing rests on it: the row of a dead neighbour is removed and its claims are taken
back by the statements that do it for the silent, and whoever is wrongly taken for dead finds its tokens void.
A child is its supervisor's affair for as long as that one lives: it knows whether the child was told to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.database.engine import Database
from penstock.database.transaction import Transaction
from penstock.queue import processes, reclaim
from penstock.runtime.dwelling import Dwelling, is_dead, last_knock


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A process of this host. Without `since` it lives elsewhere, or does not say where: nothing is known of it."""

    pid: int
    supervisor: str | None
    since: int | None

    @property
    def is_dead(self) -> bool:
        return self.since is not None and is_dead(self.pid, self.since)


class Neighbours:
    """Who lives here beside us. Known to two threads: one looks at them, one asks the database."""

    def __init__(self, database: Database, dwelling: Callable[[], Dwelling | None]) -> None:
        self.database = database
        self.dwelling = dwelling
        self._met: dict[str, Neighbour] = {}
        self._heard = 0
        """When somebody had last knocked, as we read who is there."""

    @property
    def changed(self) -> bool:
        """Somebody has moved in, or died."""
        if self.dwelling() is None:
            return False
        return self._heard != last_knock(self.database.known_as) or bool(self.dead())

    def meet(self, me: str) -> None:
        """Read who is there, if somebody has moved in since."""
        dwelling = self.dwelling()
        if dwelling is None:
            self._met = {}
        elif self._heard != (knock := last_knock(self.database.known_as)):
            there = self.database.read(processes.on_host, dwelling.host, me)
            self._met = {
                row.id: Neighbour(row.pid, row.supervisor, dwelling.since_there(row.details)) for row in there
            }
            self._heard = knock

    def dead(self) -> list[str]:
        """Whom the operating system says to be dead, and nobody else will bury."""
        met = self._met
        alone = [id for id, one in met.items() if one.supervisor not in met and one.is_dead]
        left = [id for id, one in met.items() if one.supervisor in alone and one.is_dead]
        return sorted([*alone, *left])

    def bury(self, dead: Sequence[str]) -> list[str]:
        """Remove their rows. Those that were still there: others may have been quicker."""
        removed = self.database.in_transaction(_remove, dead)
        self._met = {id: one for id, one in self._met.items() if id not in dead}
        return removed


def _remove(tx: Transaction, dead: Sequence[str]) -> list[str]:
    return [id for id in dead if reclaim.remove_process(tx, id)]
