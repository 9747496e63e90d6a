"""Wake-ups: hints to look now. They carry no truth; whoever misses one finds the work by polling.

In the same process they are immediate. On PostgreSQL other processes are told by NOTIFY, in a transaction of its own
after the commit, and at most once per interval and subject: inside every enqueue it would halve the commit rate.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from penstock.database.engine import Database
from penstock.database.transaction import Transaction

NOTIFY = "SELECT pg_notify(:channel, :subject)"
Heard = Callable[[str], None]

READY = "ready"
ENDED = "ended"


def ready(queue: str, tier: int) -> str:
    """The subject of a lane that has new work."""
    return f"{READY}\t{queue}\t{tier}"


class Wakeups:
    """Tells everybody who may care, here and elsewhere."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.pushes = database.dialect.pushes_wakeups and database.settings.notify
        self.channel = database.qualified("wakeups").replace('"', "")[:50]
        self._listeners: list[Heard] = []
        self._lock = threading.Lock()
        self._sent: dict[str, float] = {}
        self._pending: set[str] = set()
        self._later: threading.Thread | None = None

    def listen(self, heard: Heard) -> Callable[[], None]:
        """Hear of what happens in this process. Call what is returned to stop."""
        with self._lock:
            self._listeners = [*self._listeners, heard]

        def stop() -> None:
            with self._lock:
                self._listeners = [other for other in self._listeners if other is not heard]

        return stop

    def tell(self, subject: str) -> None:
        """After a commit: something is ready, or something has ended."""
        self.relay(subject)
        if self.pushes and self._is_due(subject):
            self._send([subject])

    def relay(self, subject: str) -> None:
        """Tell this process only."""
        for heard in self._listeners:
            heard(subject)

    def tell_within(self, tx: Transaction, subject: str) -> None:
        """In a transaction that is not ours to commit: delivered if and when it commits."""
        if self.pushes and self._is_due(subject):
            tx.rows(NOTIFY, channel=self.channel_of(subject), subject=subject)

    def channel_of(self, subject: str) -> str:
        """Those who wait for work and those who wait for results listen on different channels."""
        kind = subject.partition("\t")[0]
        return f"{self.channel}_{kind}"

    def _is_due(self, subject: str) -> bool:
        interval = self.database.settings.wakeup_interval
        with self._lock:
            now = time.monotonic()
            if now - self._sent.get(subject, -interval) >= interval:
                self._sent[subject] = now
                return True
            if subject not in self._pending:
                self._pending.add(subject)
                self._start_timer(interval)
            return False

    def _start_timer(self, interval: float) -> None:
        if self._later is None:
            self._later = threading.Thread(target=self._send_later, args=(interval,), daemon=True)
            self._later.name = "penstock-wakeups"
            self._later.start()

    def _send_later(self, interval: float) -> None:
        time.sleep(interval)
        with self._lock:
            subjects, self._pending, self._later = list(self._pending), set(), None
            now = time.monotonic()
            self._sent = {s: t for s, t in self._sent.items() if now - t < 60} | dict.fromkeys(subjects, now)
        self._send(subjects)

    def _send(self, subjects: list[str]) -> None:
        try:
            with self.database.reading() as tx:
                for subject in subjects:
                    tx.rows(NOTIFY, channel=self.channel_of(subject), subject=subject)
        except Exception:
            # A lost hint costs at most one poll interval; the work itself is committed.
            return
