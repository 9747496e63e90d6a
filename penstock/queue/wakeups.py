"""Wake-ups: hints to look now. They carry no truth; whoever misses one finds the work by looking now and then.

In the same process they are immediate. On PostgreSQL other processes are told by NOTIFY, at most once per interval and
subject. Commits that notify wait for each other, disk and all; so of those under way at a time only one does, whoever
gets a lock that is merely tried. For the others a thread tells a moment later, in a transaction that waits for no disk.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from functools import partial

from penstock.database.engine import Database
from penstock.database.transaction import Transaction
from penstock.values.forks import forget_after_fork

NOTIFY = "SELECT pg_notify(:channel, :subject)"
TURN = int.from_bytes(b"penstock")
NOTIFY_IN_TURN = f"{NOTIFY} WHERE pg_try_advisory_xact_lock({TURN})"
"""In a transaction of ours. No row: somebody else's commit notifies just now, and ours is not to wait for it."""
NOTIFY_ONLY = "SELECT set_config('synchronous_commit', 'off', true), pg_notify(:channel, :subject)"
"""For a transaction that holds nothing else: a hint need not be durable, so nobody waits for the disk."""
Heard = Callable[[str], None]

QUIET = 30.0
"""After so many seconds without news the sending thread ends."""
SEND_AGAIN = (0.1, 0.5, 2.0, 5.0, 0.0)
READY = "ready"
ENDED = "ended"
RUN_ENDED = "ended\truns"
CHORES = "chores"
"""There is something to look after: for a run or a limit, or because it is due soon."""


def ready(queue: str, tier: int) -> str:
    """The subject of a lane that has new work."""
    return f"{READY}\t{queue}\t{tier}"


class Wakeups:
    """Tells everybody who may care, here and elsewhere."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.pushes = database.dialect.pushes_wakeups and database.settings.notify
        self.channel = database.qualified("wakeups").replace('"', "")[:50]
        self.forget()
        forget_after_fork(self)

    def forget(self) -> None:
        """Nobody listens, and nothing waits to be sent."""
        self._listeners: list[Heard] = []
        self._lock = threading.Lock()
        self._news = threading.Condition()
        self._pending: set[str] = set()
        self._sender: threading.Thread | None = None
        self._within: dict[str, float] = {}
        self.housekeepers = 0
        """How many workers of this process do their housekeeping here."""

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
        if self.pushes:
            self._send_soon(subject)

    def _send_soon(self, subject: str) -> None:
        with self._news:
            self._pending.add(subject)
            self._start()
            self._news.notify()

    def tell_with(self, tx: Transaction, subjects: Iterable[str]) -> None:
        """With the commit of our own transaction."""
        for subject in subjects:
            tx.after_commit(partial(self.relay, subject))
            self._tell_others_of(tx, subject)

    def _may_send_now(self, subject: str) -> bool:
        now = time.monotonic()
        due = self.pushes and now - self._within.get(subject, 0.0) >= self.database.settings.wakeup_interval
        if due:
            self._within[subject] = now
        return due

    def tell_others(self, tx: Transaction, subjects: Iterable[str]) -> None:
        """Likewise, what this process will look for anyway, or will not do: others may rest."""
        for subject in subjects:
            self._tell_others_of(tx, subject)

    def _tell_others_of(self, tx: Transaction, subject: str) -> None:
        if self._may_send_now(subject):
            answer = tx.aside(NOTIFY_IN_TURN, channel=self.channel_of(subject), subject=subject)
            tx.after_commit(lambda: None if answer.fetchall() else self._send_soon(subject))
        elif self.pushes:
            tx.after_commit(partial(self._send_soon, subject))

    def tell_after_all(self, subjects: Iterable[str]) -> None:
        """A commit whose answer was lost: nobody knows whether others were told."""
        if self.pushes:
            for subject in subjects:
                self._send_soon(subject)

    def relay(self, subject: str) -> None:
        """Tell this process only."""
        for heard in self._listeners:
            heard(subject)

    def call_housekeeping(self, tx: Transaction) -> None:
        """Our own transaction leaves chores. If the housekeeping is done in this process, nobody else is told."""
        if self.housekeepers > 0:
            tx.after_commit(partial(self.relay, CHORES))
        else:
            self.tell_with(tx, [CHORES])

    def call_housekeeping_within(self, tx: Transaction) -> None:
        """The same in a transaction that is not ours to commit. It is sent in any case: nobody else would tell."""
        if self.pushes:
            tx.rows(NOTIFY, channel=self.channel_of(CHORES), subject=CHORES)

    def tell_within(self, tx: Transaction, subject: str) -> None:
        """In a transaction that is not ours to commit: delivered if and when it commits.

        Not in every one of them: commits that notify wait for each other. But that the same was said a moment ago does
        not mean that it was, or will be, committed; so it is also said outside, and whoever hears that looks again and
        again for a while.
        """
        if self._may_send_now(subject):
            tx.rows(NOTIFY, channel=self.channel_of(subject), subject=subject)
        elif self.pushes:
            self._send_soon(subject)

    def channel_of(self, subject: str) -> str:
        """Those who wait for work and those who wait for results listen on different channels."""
        kind = READY if subject == CHORES else subject.partition("\t")[0]
        return f"{self.channel}_{kind}"

    def _start(self) -> None:
        if self._sender is None or not self._sender.is_alive():
            self._sender = threading.Thread(target=self._send_forever, name="penstock-wakeups", daemon=True)
            self._sender.start()

    def _send_forever(self) -> None:
        """The first is sent at once; what comes within the interval after it goes together."""
        while True:
            with self._news:
                while not self._pending:
                    # Also after a wait in vain: whoever added something just then saw a sender, and made no other.
                    if not self._news.wait(QUIET) and not self._pending:
                        self._sender = None
                        return
                subjects, self._pending = self._pending, set()
            self._send(subjects)
            time.sleep(self.database.settings.wakeup_interval)

    def _send(self, subjects: set[str]) -> None:
        """Patiently, for others may rest. What cannot be said in the end they find by themselves, a while later."""
        for delay in SEND_AGAIN:
            try:
                with self.database.transaction(single=True) as tx:
                    for subject in subjects:
                        tx.rows(NOTIFY_ONLY, channel=self.channel_of(subject), subject=subject)
            except Exception:
                time.sleep(delay)
            else:
                return
