"""Large pages for the memory that schedules walk through.

What a schedule touches lies scattered over everything that was ever imported: finding its pages took a twentieth of
the time. Linux puts what is there by now on pages of two megabytes when asked. Elsewhere nothing is asked.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

LARGE = 2 * 1024 * 1024
HUGEPAGE, COLLAPSE = 14, 25
"""What Linux calls MADV_HUGEPAGE and MADV_COLLAPSE."""
MAPS = Path("/proc/self/maps")


def use_large_pages() -> None:
    """Ask for them. Where they cannot be had everything stays as it is: whether that is so changes no schedule."""
    if sys.platform != "linux" or not MAPS.exists():
        return
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for begin, end in _allocated():
        first = -(-begin // LARGE) * LARGE
        length = end // LARGE * LARGE - first
        if length > 0:
            madvise(first, length, HUGEPAGE)
            madvise(first, length, COLLAPSE)


def _allocated() -> Iterator[tuple[int, int]]:
    """Where the interpreter and SQLite keep what they have allocated: from, to."""
    for line in MAPS.read_text().splitlines():
        addresses, rights, _, _, _, *file = line.split()
        if rights.startswith("rw-p") and file in ([], ["[heap]"]):
            begin, end = addresses.split("-")
            yield int(begin, 16), int(end, 16)
