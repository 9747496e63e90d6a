"""Limits how many children of a supervisor settle a backlog at the same time: as many as there are processors.

A settle has its price, in the worker and in the server, almost whatever is in it. Processes that share a processor get
to it with few outcomes each; while they wait for a place, outcomes gather, and the next settle is a large one.

Nothing but speed depends on this. A process that gets no place in time goes on without, so neither a frozen process nor
a slow statement holds up the others. If a process ends, the operating system frees its place.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time

TRY_AGAIN = 0.005
"""Seconds between two looks for a free place."""
PATIENCE = 0.25
"""Seconds after which a turn begins without a place."""


class TurnGate:
    """The places. Children inherit the file; each place is one byte of it, and its holder has that locked."""

    def __init__(self, places: int) -> None:
        self.places = places
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it is open as long as the process lives

    def enter(self, seconds: float = PATIENCE) -> int | None:
        """Take a place; None if none is free within so many seconds."""
        deadline = time.monotonic() + seconds
        while True:
            for place in range(self.places):
                if self._take(place):
                    return place
            if time.monotonic() >= deadline:
                return None
            time.sleep(TRY_AGAIN)

    def leave(self, place: int) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, place, os.SEEK_SET)

    def _take(self, place: int) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place, os.SEEK_SET)
        except OSError:
            return False
        return True
