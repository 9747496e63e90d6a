"""The identity of this process: a random id in a row, never a pid or a host name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from penstock.database.database import Database
from penstock.queue import processes
from penstock.queue.unknown_tasks import KNOWS, marks
from penstock.runtime.liveness.host_identity import HostIdentity, announce, host_name
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
