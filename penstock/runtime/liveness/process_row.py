"""The row of a process: a random id, never a pid or a host name. It is written at the start and removed at the end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from penstock.database.boundary import Boundary
from penstock.database.database import Database
from penstock.database.transaction import Transaction
from penstock.queue import processes
from penstock.queue.unknown_tasks import KNOWS, marks
from penstock.runtime.liveness.host_identity import HostIdentity, announce, host_name
from penstock.runtime.liveness.reaper import Reach
from penstock.telemetry.events import ProcessStarted, Stream
from penstock.values.ids import new_id
from penstock.values.typed_json.json_text import dumps


@dataclass(slots=True)
class Identity:
    """The process row. It is replaced, never reused, when others have taken us for dead."""

    database: Database
    stream: Stream
    role: str
    supervisor_id: str | None = None
    details: dict[str, object] = field(default_factory=dict)
    tasks: Callable[[], Iterable[str]] | None = None
    """The tasks that this process can run; None: it does not say."""
    find_identity: Callable[[], HostIdentity | None] = lambda: None
    id: str = ""
    host_identity: HostIdentity | None = None
    """Host identity, published only by the first registration.

    A live process that was declared dead stops publishing it: perhaps the host identity was the reason.
    """

    def register(self) -> str:
        id = new_id()
        host, pid = host_name(), os.getpid()
        self.host_identity = self.find_identity() if not self.id else None
        silence = self.database.settings.reap_after
        self.database.in_transaction(
            processes.register, id, host, pid, self.role, self.supervisor_id, self._details_text(), silence
        )
        self.id = id
        if self.host_identity is not None:
            announce(self.database.known_as)
        self.stream.emit(ProcessStarted(id, host, pid, self.role))
        return id

    def tell(self, changed: dict[str, object]) -> None:
        """Change details in the process row."""
        self.details = self.details | changed
        self.database.in_transaction(processes.describe, self.id, self._details_text())

    def _details_text(self) -> str:
        told = self.details | ({KNOWS: marks(self.tasks())} if self.tasks is not None else {})
        return dumps(told | (self.host_identity.details() if self.host_identity is not None else {}))


class Departure:
    """Removes the rows of processes that stop, and gives back what they hold, which spends nothing.

    A job that the database does not give back is left to the reapers; all others go back. `wake` is called in a
    transaction that gives something back.
    """

    def __init__(
        self,
        database: Database,
        stream: Stream,
        ids: Sequence[str],
        wake: Callable[[Transaction], None] = lambda _: None,
        reach: Reach | None = None,
    ) -> None:
        self.database = database
        self.ids = ids
        self.wake = wake
        self.reach: Reach = database if reach is None else reach
        self._boundary: Boundary[str] = Boundary(database, stream, "the claim of")
        self._back: list[str] = []

    def go(self) -> list[str]:
        """Returns the jobs that were given back. Raises what is wrong with the database, not with a job."""
        try:
            self._back += self.reach.in_transaction(self._leave)
        except Exception as error:
            if self.database.is_outage(error):
                raise
            self._go_apart()
        return self._back

    def _go_apart(self) -> None:
        held = self.reach.in_transaction(processes.held_by, self.ids)
        jobs = sorted({job for job, _ in held})
        if jobs:
            self._give_back(jobs, held)
        self._back += self.reach.in_transaction(self._leave, [job for job in jobs if job not in self._back])

    def _give_back(self, jobs: Sequence[str], held: Sequence[tuple[str, int]]) -> None:
        """Job by job, where they fail together."""
        part = [(job, token) for job, token in held if job in jobs]
        try:
            self._back += self.reach.in_transaction(
                lambda tx: self._waking(tx, processes.give_back(tx, part))
            )
        except Exception as error:
            if self.database.is_outage(error):
                raise
            if len(jobs) == 1:
                self._boundary.set_aside(jobs[0], error)
                return
            middle = len(jobs) // 2
            self._give_back(jobs[:middle], held)
            self._give_back(jobs[middle:], held)

    def _leave(self, tx: Transaction, left: Sequence[str] = ()) -> list[str]:
        return self._waking(tx, processes.leave(tx, self.ids, left))

    def _waking(self, tx: Transaction, jobs: list[str]) -> list[str]:
        if jobs:
            self.wake(tx)
        return jobs
