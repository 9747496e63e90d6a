"""Answers requests for a page without building it again, as long as nothing was committed.

The database has a cheap stamp that changes with every commit (`Dialect.commit_stamp`), which is read once a second at
most. A page that was built at the latest stamp is good for every viewer with the same rights: ten people who watch a
busy installation cost one page a second. Where there is no stamp, the page is built each time.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from penstock.dashboard.views import Page

LOOK_EVERY = 1.0
"""Seconds between two looks at the stamp, shared by all viewers of the process."""
TRUSTED = 10.0
"""Seconds after which a page is built in any case: it shows ages and lags, which grow without a commit."""
MOST_PAGES = 1000
MOST_CONTENTS = 10
MOST_NAMES = 20


@dataclass(slots=True)
class Content:
    """A page with its data, and its HTML for some viewers, by their names."""

    page: Page
    data: object
    html: dict[str, bytes] = field(default_factory=dict)

    def keep(self, name: str, html: bytes) -> None:
        if len(self.html) < MOST_NAMES:
            self.html[name] = html


@dataclass(slots=True)
class BuiltPage:
    """A page that was built: a digest of its data, and the stamp and the time from before it was read."""

    digest: str
    stamp: str
    at: float
    content: Content | None
    """Kept for the latest pages only."""


class Pulse:
    """Reads the stamp of the database, and remembers the pages that were built at it."""

    def __init__(self, look: Callable[[], str | None]) -> None:
        self._look = look
        self._lock = threading.Lock()
        self._stamp = ""
        self._looked_at = float("-inf")
        self._built: OrderedDict[Hashable, BuiltPage] = OrderedDict()
        self._recent: deque[BuiltPage] = deque()
        self._building: dict[Hashable, threading.Lock] = {}

    def stamp(self) -> str:
        """The latest stamp; without one, a text that is new at every look."""
        now = time.monotonic()
        if now - self._looked_at >= LOOK_EVERY:
            # Two callers may both read at the same time: neither waits for the other's statement.
            found = self._look()
            with self._lock:
                self._stamp, self._looked_at = found or f"at {now}", now
        return self._stamp

    @property
    def fresh_stamp(self) -> str | None:
        """The stamp, if it was read not long ago."""
        return self._stamp if time.monotonic() - self._looked_at < LOOK_EVERY else None

    def look_again(self) -> None:
        """Drop the stamp after an act: the viewer wants to see its effect at once."""
        self._looked_at = float("-inf")

    def find(self, key: Hashable) -> BuiltPage | None:
        """The page, if it was built at the latest stamp."""
        with self._lock:
            built = self._built.get(key)
        if built is None or time.monotonic() - built.at >= TRUSTED:
            return None
        return built if built.stamp == self.stamp() else None

    def shared(self, key: Hashable, build: Callable[[], BuiltPage]) -> BuiltPage:
        """The page with its content. If several callers need it, one builds it and the others wait a moment."""
        with self._lock:
            turn = self._building.setdefault(key, threading.Lock())
        mine = turn.acquire(timeout=LOOK_EVERY)
        try:
            found = self.find(key)
            return found if found is not None and found.content is not None else self.keep(key, build())
        finally:
            if mine:
                turn.release()
                with self._lock:
                    self._building.pop(key, None)

    def keep(self, key: Hashable, built: BuiltPage) -> BuiltPage:
        """Remember a page; only the latest pages keep their content."""
        with self._lock:
            self._built[key] = built
            self._built.move_to_end(key)
            self._recent.append(built)
            while len(self._built) > MOST_PAGES:
                self._built.popitem(last=False)
            while len(self._recent) > MOST_CONTENTS:
                self._recent.popleft().content = None
        return built
