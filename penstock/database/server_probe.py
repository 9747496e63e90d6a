"""Server probe: asks on a second connection whether a silent server still works on our statement, or is gone.

The machine of a frozen server acknowledges all that is sent to it, and a proxy may not pass an answer on: the silence
alone does not tell which. So a caller that has waited for a while asks on a second connection, by the same URL, which
sessions are at work. If no server answers there, or another server does, or our session has nothing to do, then no
answer will come, and waiting for it would last longer than the failover that is over meanwhile.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable
from typing import Literal

from penstock.database import error_advice
from penstock.values.fork_safety import register_reset_after_fork

SILENCE = 5.0
"""Seconds without an answer after which a second connection asks; and between two such questions."""

Sessions = frozenset[Hashable] | Literal["unknown"]
CLIENT_ERRORS = range(2000, 3000)
"""Error codes that PyMySQL itself raises; all others come from a server."""


class Probe:
    """Asks for all threads that wait for the same server, one at a time: threads that waited meanwhile share the
    answer."""

    def __init__(self, ask: Callable[[], Sessions]) -> None:
        """`ask`: opens a new connection, with a timeout, and returns the sessions that are at work, or raises."""
        self._ask = ask
        self._found: Sessions | None = None
        self._answered = -math.inf
        self.reset_after_fork()
        register_reset_after_fork(self)

    def reset_after_fork(self) -> None:
        """In a forked child the lock may be held, in a thread that is the parent's."""
        self._lock = threading.Lock()

    def is_at_work(self, session: Hashable) -> bool:
        """True if it is worth waiting on. `session`: its number on the server, and where; None: it is unknown."""
        since = time.monotonic()
        with self._lock:
            if self._answered < since:
                self._found = self._look()
                self._answered = time.monotonic()
            found = self._found
        if found is None:
            return False
        return found == "unknown" or session is None or session in found

    def _look(self) -> Sessions | None:
        try:
            return self._ask()
        except Exception as error:
            return "unknown" if _is_said_by_a_server(error) else None


def _is_said_by_a_server(error: Exception) -> bool:
    """A server that refuses us, for it has too many connections or is about to stop, is there."""
    cause = error_advice.cause_of(error)
    code = cause.args[0] if cause.args else None
    if isinstance(code, int):
        return code not in CLIENT_ERRORS and not isinstance(cause, OSError)
    return getattr(cause, "sqlstate", None) is not None or "FATAL" in str(cause)
