"""Processes on the same host: the operating system says at once when one of them is dead.

Decision 019. Looking costs no statement: the list is read again when a new process announces itself; whether they live
is asked of the kernel. Correctness does not depend on it: the statements that remove the row of a silent process and
take back its claims do the same for a dead one, and a process wrongly taken for dead finds its tokens void. While a
supervisor lives, it alone looks after its children: it knows whether a child was told to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.database.database import Database
from penstock.database.transaction import Transaction
from penstock.queue import processes, reclaim
from penstock.runtime.liveness.host_identity import HostIdentity, is_dead, last_announcement


@dataclass(frozen=True, slots=True)
class LocalProcess:
    """A process of this host. Without `since` it is in another namespace or publishes no host identity."""

    pid: int
    supervisor: str | None
    since: int | None

    @property
    def is_dead(self) -> bool:
        return self.since is not None and is_dead(self.pid, self.since)


class LocalProcesses:
    """The other processes on this host. Two threads use it: one looks at them, one asks the database."""

    def __init__(self, database: Database, host_identity: Callable[[], HostIdentity | None]) -> None:
        self.database = database
        self.host_identity = host_identity
        self._met: dict[str, LocalProcess] = {}
        self._heard = 0
        """The time of the last announcement when the list was read."""

    @property
    def changed(self) -> bool:
        """True if a process has appeared or died since the last look."""
        if self.host_identity() is None:
            return False
        return self._heard != last_announcement(self.database.known_as) or bool(self.dead())

    def refresh(self, me: str) -> None:
        """Read the list again, if a process has announced itself since."""
        host_identity = self.host_identity()
        if host_identity is None:
            self._met = {}
        elif self._heard != (announced := last_announcement(self.database.known_as)):
            there = self.database.read(processes.on_host, host_identity.host, me)
            self._met = {
                row.id: LocalProcess(row.pid, row.supervisor, host_identity.since_there(row.details))
                for row in there
            }
            self._heard = announced

    def dead(self) -> list[str]:
        """The processes that the operating system says are dead, and that no supervisor will reap."""
        met = self._met
        alone = [id for id, one in met.items() if one.supervisor not in met and one.is_dead]
        left = [id for id, one in met.items() if one.supervisor in alone and one.is_dead]
        return sorted([*alone, *left])

    def remove(self, dead: Sequence[str]) -> list[str]:
        """Remove their rows. Those that were still there: others may have been quicker."""
        removed = self.database.in_transaction(_remove, dead)
        self._met = {id: one for id, one in self._met.items() if id not in dead}
        return removed


def _remove(tx: Transaction, dead: Sequence[str]) -> list[str]:
    return [id for id in dead if reclaim.remove_process(tx, id)]
