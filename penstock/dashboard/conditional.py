"""Answers a page that is asked for again and again without building it, as long as nothing was committed.

The database has a cheap stamp that changes with every commit (`Dialect.commit_stamp`). A page that was built at this
very stamp, not long ago, is as it was. Where there is no stamp, pages are built and compared by their content.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import NamedTuple

LOOK_EVERY = 0.5
"""Seconds between two looks at the stamp, shared by all viewers of the process."""
TRUSTED = 10.0
"""Seconds after which a page is built in any case: it shows ages and lags, which grow without a commit."""
MOST_PAGES = 1000


class BuiltPage(NamedTuple):
    """A page that was sent: its tag, and the stamp and the time at which it was built."""

    tag: str
    stamp: str
    at: float


class Pulse:
    """The stamp of the database, and what pages were like at which stamp."""

    def __init__(self, look: Callable[[], str | None]) -> None:
        self._look = look
        self._lock = threading.Lock()
        self._stamp = ""
        self._looked_at = float("-inf")
        self._built: OrderedDict[Hashable, BuiltPage] = OrderedDict()

    def stamp(self) -> str:
        """The latest stamp; without one, a text that is new at every look."""
        now = time.monotonic()
        if now - self._looked_at >= LOOK_EVERY:
            # Two callers at once may both look: neither waits for the other's statement.
            found = self._look()
            with self._lock:
                self._stamp, self._looked_at = found or f"at {now}", now
        return self._stamp

    def look_again(self) -> None:
        """After an act: its viewer wants to see it at once."""
        self._looked_at = float("-inf")

    def is_unchanged(self, key: Hashable, tag: str) -> bool:
        """True if the caller has this page as it is now, so far as the stamp can tell."""
        with self._lock:
            built = self._built.get(key)
        if built is None or built.tag != tag:
            return False
        return time.monotonic() - built.at < TRUSTED and built.stamp == self.stamp()

    def remember(self, key: Hashable, tag: str, stamp: str) -> None:
        """Keep what was built. The stamp is one from before the page was read."""
        with self._lock:
            self._built[key] = BuiltPage(tag, stamp, time.monotonic())
            self._built.move_to_end(key)
            while len(self._built) > MOST_PAGES:
                self._built.popitem(last=False)
