"""Wake-ups: hints to look now. They carry no truth; a process that misses one finds the work by looking now and then,
and what is heard may be anything: text that is no wake-up is ignored.

In the same process they are immediate. On PostgreSQL other processes are told by NOTIFY, at most once per interval and
subject: of work as many as it takes, by name (`fleet`), each on a channel of its own; of everything else all at once.
Commits that notify wait for each other, disk and all; so of those under way at a time only one does, the one that gets
a lock that is merely tried. For the others a thread tells a moment later, in a transaction that waits for no disk.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from pydantic_core import to_json

from penstock.database.database import Database
from penstock.database.transaction import Transaction
from penstock.queue import wakeup_targets
from penstock.queue.wakeup_targets import FRESH, Fleet, Needs
from penstock.telemetry import fault_points
from penstock.values.fork_safety import register_reset_after_fork

NOTIFY = "SELECT pg_notify(:channel, :subject)"
TURN = int.from_bytes(b"penstock")
NOTIFY_IN_TURN = f"{NOTIFY} WHERE pg_try_advisory_xact_lock({TURN})"
"""In a transaction of ours. No row: another commit notifies at this moment, and ours does not wait for it."""
NOTIFY_ONLY = "SELECT set_config('synchronous_commit', 'off', true), pg_notify(:channel, :subject)"
"""For a transaction that does nothing else: a hint need not be durable, so its commit does not wait for the disk."""
NAMED = """
SELECT pg_notify(t.channel, t.subject)
FROM json_to_recordset(CAST(:named AS json)) AS t(id uuid, channel text, subject text)
WHERE EXISTS (SELECT 1 FROM {processes} p WHERE p.id = t.id)"""
"""By name. A process without a row is left out: then the answer has fewer rows, and others must be named."""
NAMED_IN_TURN = f"{NAMED} AND pg_try_advisory_xact_lock({TURN})"
NAMED_ONLY = NAMED.replace("SELECT", "SELECT set_config('synchronous_commit', 'off', true),", 1)
Heard = Callable[[str], None]

_LANE = re.compile(r"(?:ready|(yours|later)\t([0-9]))\t([^\t\0]{1,200})\t(-?[0-9]{1,10})", re.ASCII)
TIERS = range(-(2**31), 2**31)
"""No other tier can be in the queue."""
log = logging.getLogger("penstock")
ONE = Needs()
NOT_YET = Needs(hops=-1)
"""Of what may not be committed yet all are told, so that they look again and again."""
QUIET = 30.0
"""After so many seconds without news the sending thread ends."""
LAST_WORDS = 0.5
"""So many seconds the end of an app waits for that thread."""
SEND_AGAIN = (0.1, 0.5, 2.0, 5.0, 0.0)
MOST_LANES = 8
"""Work in more lanes than that is told of as work in any lane."""
MOST_SUBJECTS = 1000
"""So many are remembered that were told of lately."""
READY = "ready"
YOURS = "yours"
"""Work for the process that hears this; if it has no room for it, it passes it on."""
LATER = "later"
"""Work for another process: should that not come to it, it is still there a moment later."""
ENDED = "ended"
RUN_ENDED = "ended\truns"
CHORES = "chores"
"""There is something to look after: for a run or a limit, or because it is due soon."""
CHORES_BY_NAME = "chores\tyours"
CONTROLS = "controls"
"""A queue was paused or resumed, or workers were given other queues: every worker is to read that."""


class HeardLane(NamedTuple):
    """A lane, and how it was told of."""

    kind: str
    queue: str
    tier: int
    hops: int = 0
    """So often it may still be passed on."""


def ready(queue: str, tier: int) -> str:
    """The subject of a lane that has new work."""
    return f"{READY}\t{queue}\t{tier}"


def lane_of(subject: str) -> HeardLane | None:
    """The lane that this is about; None: it is about something else, or about nothing."""
    found = _LANE.fullmatch(subject)
    if found is None:
        return None
    kind, hops, queue, tier = found.groups()
    lane = HeardLane(kind or READY, queue, int(tier), int(hops or 0))
    return lane if lane.tier in TIERS else None


class Wakeups:
    """Sends wake-ups to the listeners of this process and to other processes."""

    def __init__(self, database: Database, names: bool = True) -> None:
        self.database = database
        self.pushes = database.dialect.pushes_wakeups and database.settings.notify
        self.names = names and self.pushes
        """True if wake-ups for work name their processes. A thread reads now and then which processes there are."""
        self.channel = database.qualified("wakeups").replace('"', "")[:50]
        self.reset_after_fork()
        register_reset_after_fork(self)

    def reset_after_fork(self) -> None:
        """Start anew, also in a forked child: without listeners, and with nothing to send."""
        self._listeners: list[Heard] = []
        self._lock = threading.Lock()
        self._news = threading.Condition()
        self._pending: dict[str, Needs] = {}
        self._reads = False
        """True if the sender thread is to read which processes there are."""
        self._sender: threading.Thread | None = None
        self._ending = False
        """True if the sender thread is to end, once it has sent what it was given."""
        self._within: dict[str, float] = {}
        self.fleet = Fleet()
        self.here: set[str] = set()
        """The channels of the workers of this process."""
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

    def notify(self, subject: str) -> None:
        """After a commit: something is ready, or something has ended."""
        self.relay(subject)
        if self.pushes:
            self._send_soon(subject)

    def _send_soon(self, subject: str, needs: Needs = ONE) -> None:
        with self._news:
            known = self._pending.get(subject)
            self._pending[subject] = needs if known is None else known.merged(needs)
            self._start()
            self._news.notify()

    def _read_soon(self) -> None:
        with self._news:
            self._reads = True
            self._start()
            self._news.notify()

    def notify_on_commit(self, tx: Transaction, subjects: Iterable[str], needs: Needs = ONE) -> None:
        """With the commit of our own transaction."""
        for subject in _few(subjects):
            tx.after_commit(partial(self.relay, subject))
            self._tell_others_of(tx, subject, needs)

    def _may_send_now(self, subject: str) -> bool:
        now = time.monotonic()
        due = self.pushes and now - self._within.get(subject, 0.0) >= self.database.settings.wakeup_interval
        if due:
            if len(self._within) >= MOST_SUBJECTS:
                self._within = {}
            self._within[subject] = now
        return due

    def notify_other_processes(self, tx: Transaction, subjects: Iterable[str]) -> None:
        """Likewise, what this process will look for anyway, or will not do: others may rest."""
        for subject in _few(subjects):
            self._tell_others_of(tx, subject, ONE)

    def _tell_others_of(self, tx: Transaction, subject: str, needs: Needs) -> None:
        if not self._may_send_now(subject):
            if self.pushes:
                tx.after_commit(partial(self._send_soon, subject, needs))
            return
        named = self._named(subject, needs)
        if named is None:
            answer, expected = (
                tx.send_hint(NOTIFY_IN_TURN, channel=self.channel_of(subject), subject=subject),
                1,
            )
        elif named:
            answer, expected = tx.send_hint(NAMED_IN_TURN, named=_json(named)), len(named)
        else:
            return

        def sent() -> None:
            if len(answer.fetchall()) < expected:
                self.fleet.read_at = -FRESH
                self._send_soon(subject, needs)

        tx.after_commit(sent)

    def notify_after_lost_commit(self, subjects: Iterable[str]) -> None:
        """Send these again after a commit whose answer was lost: it may not have notified the other processes."""
        if self.pushes:
            for subject in subjects:
                self._send_soon(subject)

    def pass_on(self, lane: HeardLane) -> None:
        """There is no room here for what we were named for. In the end all are told."""
        subject = ready(lane.queue, lane.tier)
        self._send_soon(subject, Needs(hops=lane.hops - 1))

    def relay(self, subject: str) -> None:
        """Wake this process only. An error of one listener reaches neither the other listeners nor the caller."""
        for heard in self._listeners:
            try:
                heard(subject)
            except Exception:
                log.exception("a listener failed on the wake-up %r", subject)

    def call_housekeeping(self, tx: Transaction) -> None:
        """Our own transaction leaves chores. If this process does housekeeping, only this process is woken."""
        if self.housekeepers > 0:
            tx.after_commit(partial(self.relay, CHORES))
        else:
            self.notify_on_commit(tx, [CHORES])

    def call_housekeeping_within(self, tx: Transaction) -> None:
        """The same in a transaction that the caller commits: always by NOTIFY, since we do not see that commit."""
        if self.pushes:
            tx.rows(NOTIFY, channel=self.channel_of(CHORES), subject=CHORES)

    def notify_in_user_transaction(self, tx: Transaction, subject: str, needs: Needs = ONE) -> None:
        """In a transaction that is not ours to commit: delivered if and when it commits.

        Not every transaction notifies: commits that notify wait for each other. But a wake-up that another transaction
        sent a moment ago may never be committed. So the sender thread also sends it outside of the transaction, and
        the workers that hear it look again and again for a while.
        """
        if not self._may_send_now(subject):
            if self.pushes:
                self._send_soon(subject, NOT_YET)
            return
        named = self._named(subject, needs)
        if named is not None and (not named or len(tx.rows(NAMED, named=_json(named))) == len(named)):
            return
        tx.rows(NOTIFY, channel=self.channel_of(subject), subject=subject)

    def channel_of(self, subject: str) -> str:
        """The channel for a subject: workers and callers that wait for results listen on different channels."""
        kind = READY if subject in (CHORES, CONTROLS) else subject.partition("\t")[0]
        return f"{self.channel}_{kind}"

    def _named(self, subject: str, needs: Needs) -> list[dict[str, str]] | None:
        """The processes to tell, on which channel, and how; None: all."""
        lane = lane_of(subject)
        if not self.names or (lane is None and subject != CHORES):
            return None
        fleet = self.fleet
        if fleet.stale:
            self._read_soon()
        if lane is None:
            named = fleet.name_two()
        else:
            named = fleet.name_for(lane.queue, needs, self.here) if needs.hops >= 0 else None
        if named is None:
            return None
        words = (CHORES_BY_NAME, CHORES_BY_NAME)
        if lane is not None:
            place = f"{lane.queue}\t{lane.tier}"
            words = (f"{YOURS}\t{needs.hops}\t{place}", f"{LATER}\t0\t{place}")
        told = [(member, words[0]) for member in named.now] + [(member, words[1]) for member in named.later]
        return [{"id": member.id, "channel": member.channel, "subject": word} for member, word in told]

    def end_sender(self) -> None:
        """Let the sender thread send what it was given, and end; wait for it, but not for a database that is away."""
        with self._news:
            sender, self._reads = self._sender, False
            self._ending = sender is not None
            self._news.notify()
        if sender is not None:
            sender.join(LAST_WORDS)

    def _start(self) -> None:
        self._ending = False
        if self._sender is None or not self._sender.is_alive():
            self._sender = threading.Thread(target=self._send_forever, name="penstock-wakeups", daemon=True)
            self._sender.start()

    def _send_forever(self) -> None:
        """The first is sent at once; what comes within the interval after it goes together."""
        while True:
            with self._news:
                while not (self._pending or self._reads):
                    # Check again after a timeout: a caller that added something just then saw this thread, and started
                    # no other.
                    if self._ending or (not self._news.wait(QUIET) and not (self._pending or self._reads)):
                        self._sender = None
                        return
                subjects, self._pending = self._pending, {}
                self._reads = False
            self.read_targets()
            self._send(subjects)
            time.sleep(self.database.settings.wakeup_interval)

    def read_targets(self) -> None:
        """Read which processes there are. If that fails, all processes are woken."""
        if not self.names or not self.fleet.stale:
            return
        try:
            with fault_points.unwatched():
                self.fleet.learn(self.database.read(wakeup_targets.read))
        except Exception:
            self.fleet.forget()

    def _send(self, subjects: Mapping[str, Needs]) -> None:
        """Patiently, for others may rest. What cannot be said in the end they find by themselves, a while later."""
        lanes = [subject for subject in subjects if lane_of(subject) is not None]
        if len(lanes) > MOST_LANES:
            subjects = {subject: needs for subject, needs in subjects.items() if subject not in lanes} | {
                READY: ONE
            }
        for delay in SEND_AGAIN if subjects else ():
            try:
                with self.database.transaction(single=True) as tx:
                    for subject, needs in subjects.items():
                        self._say(tx, subject, needs)
            except Exception:
                time.sleep(delay)
            else:
                return

    def _say(self, tx: Transaction, subject: str, needs: Needs) -> None:
        """Wake the named processes if all of them still have a row; else wake all."""
        named = self._named(subject, needs)
        if named == []:
            return
        if named is not None:
            if len(tx.rows(NAMED_ONLY, named=_json(named))) == len(named):
                return
            self.fleet.read_at = -FRESH
        tx.rows(NOTIFY_ONLY, channel=self.channel_of(subject), subject=subject)


def _few(subjects: Iterable[str]) -> list[str]:
    several = list(subjects)
    return several if len(several) <= MOST_LANES else [READY]


def _json(named: list[dict[str, str]]) -> str:
    return to_json(named).decode()
