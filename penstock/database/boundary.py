"""Handles batches of rows so that one row that always fails does not stop the others. Invariant 14.

A batch is tried whole first, so the ordinary case costs nothing. If it fails, and not because the database is away, it
is split until the failing row is alone. That row is set aside in memory: it is logged once, left out of the next
batches, and tried again at growing intervals. Correctness does not depend on this memory: each process has its own, the
row itself stays where it was, and `penstock doctor` finds it there.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from penstock.errors import AdvancementFailed
from penstock.telemetry.events import RowHandled, RowSetAside, Stream

if TYPE_CHECKING:
    from penstock.database.database import Database

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 600.0
MOST_ROWS = 10_000
"""How many rows are remembered; a row that was dropped from here is set aside again after its next failure."""


class SetAside(NamedTuple):
    """A row that is set aside: how often it has failed, and when it is tried again."""

    tries: int
    again: float


class Boundary(Generic[K]):
    """Handles rows of one kind, each by its key."""

    def __init__(self, database: Database, stream: Stream, what: str) -> None:
        self.database = database
        self.stream = stream
        self.what = what
        """The kind of row, as the log names it."""
        self.is_empty = True
        """True if no row is or was set aside. A field, because every turn of a pump reads it."""
        self._aside: OrderedDict[K, SetAside] = OrderedDict()
        self._tries: OrderedDict[K, int] = OrderedDict()
        """How often rows have failed whose pause is over: if one fails again, its pause goes on growing."""

    @property
    def left(self) -> list[K]:
        """The rows to leave out for now."""
        if not self._aside:
            return []
        now = time.monotonic()
        return [key for key, row in self._aside.items() if row.again > now]

    @property
    def next_due(self) -> float | None:
        """Seconds until a row that was set aside is tried again; None: there is none."""
        again = min((row.again for row in self._aside.values()), default=None)
        return None if again is None else max(0.0, again - time.monotonic())

    def handle(self, keys: Sequence[K], work: Callable[[Sequence[K]], R]) -> list[R]:
        """Do `work`, which opens a transaction of its own, for all of these rows; returns the result of each part
        that succeeded.

        Raises only what is wrong with the database, not with a row.
        """
        try:
            done = [work(keys)]
        except Exception as error:
            return self.handle_apart(keys, work, error)
        self.handled(keys)
        return done

    def handle_apart(self, keys: Sequence[K], work: Callable[[Sequence[K]], R], error: Exception) -> list[R]:
        """The same for rows whose batch has already failed with this error."""
        if not keys or self.database.is_passing(error):
            raise error
        done: list[R] = []
        if self.database.is_outage(error):
            # The error looks like an outage; but if other rows succeed, one row caused it.
            keys = self._probed(keys, work, done)
            if not done:
                raise error
        elif len(keys) == 1:
            self.set_aside(keys[0], error)
            return done
        self._split(keys, work, done)
        return done

    def _probed(self, keys: Sequence[K], work: Callable[[Sequence[K]], R], done: list[R]) -> Sequence[K]:
        """Try the first and the last row alone; returns the rows still to be tried."""
        for key in (keys[0], keys[-1]) if len(keys) > 1 else ():
            with suppress(Exception):
                done.append(work([key]))
                self.handled([key])
                keys = [other for other in keys if other != key]
        return keys

    def _split(self, keys: Sequence[K], work: Callable[[Sequence[K]], R], done: list[R]) -> None:
        for half in _halves(keys):
            try:
                done.append(work(half))
            except Exception as problem:
                if self.database.is_passing(problem):
                    raise
                if len(half) == 1:
                    self.set_aside(half[0], problem)
                else:
                    self._split(half, work, done)
            else:
                self.handled(half)

    def set_aside(self, key: K, error: Exception) -> float:
        """Set this row aside with an event; returns for how many seconds."""
        if isinstance(error, AdvancementFailed):
            error.spend()
        tries, pause = self.count_failure(key)
        self.stream.emit(RowSetAside(self.what, _name(key), f"{type(error).__name__}: {error}", tries, pause))
        return pause

    def next_pause(self, key: K) -> float:
        """Seconds for which this row will be set aside if it fails once more."""
        before = self._aside.get(key)
        return self.pause_after(1 + (self._tries.get(key, 0) if before is None else before.tries))

    def count_failure(self, key: K) -> tuple[int, float]:
        """Set this row aside without an event; returns the number of its failures, and for how many seconds."""
        pause = self.next_pause(key)
        before = self._aside.pop(key, None)
        tries = 1 + (self._tries.pop(key, 0) if before is None else before.tries)
        self._aside[key] = SetAside(tries, time.monotonic() + pause)
        self.is_empty = False
        while len(self._aside) > MOST_ROWS:
            self._aside.popitem(last=False)
        while len(self._tries) > MOST_ROWS:
            self._tries.popitem(last=False)
        return tries, pause

    def lapse(self) -> None:
        """Drop rows whose pause is over: they were tried just now, or are gone."""
        now = time.monotonic()
        for key in [key for key, row in self._aside.items() if row.again <= now]:
            self._tries[key] = self._aside.pop(key).tries

    def pause_after(self, tries: int) -> float:
        """Seconds until a row that has failed so often is tried again."""
        return min(FIRST_PAUSE * 2.0 ** min(tries - 1, 30), LONGEST_PAUSE)

    def handled(self, keys: Sequence[K]) -> None:
        """These rows succeeded: none of them is set aside any more."""
        if self.is_empty:
            return
        for key in keys:
            if self._tries.pop(key, None) is not None or self._aside.pop(key, None) is not None:
                self.stream.emit(RowHandled(self.what, _name(key)))
        self.is_empty = not (self._aside or self._tries)


def do_all(database: Database, chores: Iterable[Callable[[], bool]]) -> bool:
    """Do each of these chores, even if one before it raises; True if one had something to do.

    The first error is raised when all are done; at once, if the database is away: then all of them would wait for it.
    """
    worked, wrong = False, None
    for chore in chores:
        try:
            worked |= chore()
        except Exception as error:
            if database.is_passing(error):
                raise
            wrong = wrong or error
    if wrong is not None:
        raise wrong
    return worked


def _name(key: object) -> str:
    return " ".join(map(str, key)) if isinstance(key, tuple) else str(key)


def _halves(keys: Sequence[K]) -> list[Sequence[K]]:
    if len(keys) == 1:
        return [keys]
    middle = len(keys) // 2
    return [keys[:middle], keys[middle:]]
