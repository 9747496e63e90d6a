"""Limits how many processes of a machine settle a backlog at the same time: as many as there are processors.

A settle has its price, in the worker and in the server, almost whatever is in it. Processes that share a processor get
to it with few outcomes each; while they wait for a place, outcomes gather, and the next settle is a large one.

Nothing but speed depends on this. A process that gets no place in time goes on without, so neither a frozen process nor
a slow statement holds up the others. If a process ends, the operating system frees its place.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

TRY_AGAIN = 0.005
"""Seconds between two looks for a free place."""
PATIENCE = 0.25
"""Seconds after which a turn begins without a place."""


class TurnGate:
    """The places. Each is one byte of a file that the processes share, and its holder has that byte locked."""

    def __init__(self, handle: int, places: int) -> None:
        self.places = places
        self._handle = handle

    @classmethod
    def at(cls, path: Path) -> TurnGate:
        """The gate of all processes that name this file, with a place for each processor. `OSError`: there is none."""
        return cls(_opened(path), processors())

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
        """Free the place. Never raises: if a handler has closed the file, the place is free already."""
        with suppress(OSError):
            fcntl.lockf(self._handle, fcntl.LOCK_UN, 1, place, os.SEEK_SET)

    def _take(self, place: int) -> bool:
        try:
            fcntl.lockf(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place, os.SEEK_SET)
        except OSError:
            return False
        return True


@cache
def _opened(path: Path) -> int:
    """The file, open for as long as this process lives: if it were closed, all places of the process were free."""
    handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    if os.fstat(handle).st_uid != os.geteuid():
        os.close(handle)
        raise PermissionError(f"{path} is not ours")
    return handle


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
