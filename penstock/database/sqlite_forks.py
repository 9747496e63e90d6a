"""Closes all SQLite connections before a fork, and refuses children that were forked inside a transaction.

SQLite notes in the memory of a process which of its connections hold which locks, and a child has that memory without
the locks. Its own connections rely on those notes: they take no lock of their own. When the parent then closes its last
one it finds no other user, removes the write-ahead log, and whatever the child commits from then on is lost. And
while a write was under way in the parent, the child waits for its end for ever.

So before a fork every connection is closed; those in use are waited for, and no write begins meanwhile. Who forks
inside a block of its own, or beside one that takes too long, has a child that is not let in: what was said above
would come true for it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

from penstock.errors import DatabaseError
from penstock.values.fork_safety import prepare_for_forks, register_reset_after_fork

LONGEST = 5.0
FORKED_INSIDE = (
    "this process was forked while a transaction on the SQLite file was open in its parent: what it wrote there could "
    "be lost. Fork before such a block or behind it, or start another program (subprocess)"
)


class ForkGate:
    """Counts transactions, and keeps a fork and a transaction from running at the same time."""

    def __init__(self, close_all: Callable[[], None]) -> None:
        self._close_all = close_all
        self._in_use = False
        """True if a transaction was open when this process was forked, or when the fork under way began."""
        self._is_refused = False
        self.reset_after_fork()
        register_reset_after_fork(self)
        prepare_for_forks(self)

    def reset_after_fork(self) -> None:
        self._changed = threading.Condition()
        self._inside: Counter[int] = Counter()
        self._forks = 0
        """How many threads are about to fork."""
        self._is_refused = self._in_use

    def enter(self) -> None:
        if self._is_refused:
            raise DatabaseError(FORKED_INSIDE)
        me = threading.get_ident()
        with self._changed:
            if self._forks and me not in self._inside:
                self._changed.wait_for(lambda: not self._forks, LONGEST)
            self._inside[me] += 1

    def leave(self) -> None:
        me = threading.get_ident()
        with self._changed:
            self._inside[me] -= 1
            if self._inside[me] <= 0:
                del self._inside[me]
            if self._forks:
                self._changed.notify_all()

    __enter__ = enter

    def __exit__(self, *_: object) -> None:
        self.leave()

    def wait_for_writers(self) -> None:
        """Wait for writers before a fork. A thread that forks inside a write would wait for itself: it is refused."""
        with self._changed:
            self._forks += 1
            free = not self._inside or (
                threading.get_ident() not in self._inside
                and self._changed.wait_for(lambda: not self._inside, LONGEST)
            )
            self._in_use = self._is_refused or not free
        if free:
            self._close_all()

    def go_on(self) -> None:
        """Let transactions begin again, after the fork, in the parent."""
        with self._changed:
            self._forks -= 1
            self._in_use = self._is_refused
            self._changed.notify_all()
