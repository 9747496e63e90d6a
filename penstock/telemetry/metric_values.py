"""Numbers behind metrics: in this process alone, or in memory that a supervisor shares with one of its children.

Each number has a key. Numbers of several processes are added up key by key. The memory of a child outlives it: a child
that is killed has lost nothing that it had counted.
"""

from __future__ import annotations

import mmap
import struct
from collections import defaultdict
from collections.abc import Mapping
from typing import Protocol

USED = struct.Struct("Q")
ENTRY = struct.Struct("dQ")
"""The value, and the length of the key that follows it."""
ROOM = 1 << 20
"""Bytes for one child: some ten thousand numbers. The operating system gives what is used."""


class MetricNumbers(Protocol):
    """Numbers by key. One thread at a time adds to them."""

    def add(self, key: str, by: float) -> None: ...

    def put(self, key: str, value: float) -> None: ...

    def read(self) -> Mapping[str, float]: ...


class LocalNumbers:
    """Numbers of this process."""

    def __init__(self) -> None:
        self._values: dict[str, float] = defaultdict(float)

    def add(self, key: str, by: float) -> None:
        self._values[key] += by

    def put(self, key: str, value: float) -> None:
        self._values[key] = value

    def read(self) -> Mapping[str, float]:
        return dict(self._values)


class SharedNumbers:
    """Numbers in memory that survives a fork and both sides. One process writes, others read at any time.

    An entry is written whole before the length says that it is there, and a value is eight aligned bytes: a reader,
    also after the writer was killed, finds every entry complete.
    """

    def __init__(self, room: int = ROOM) -> None:
        self._memory = mmap.mmap(-1, room)
        self._places: dict[str, int] = {}
        self._values: dict[str, float] = {}
        self.is_full = False
        """True if there was no room for another key: it is not counted."""

    def add(self, key: str, by: float) -> None:
        self.put(key, self._values.get(key, 0.0) + by)

    def put(self, key: str, value: float) -> None:
        place = self._places.get(key)
        if place is None:
            place = self._append(key)
            if place is None:
                self.is_full = True
                return
        self._values[key] = value
        struct.pack_into("d", self._memory, place, value)

    def _append(self, key: str) -> int | None:
        text = key.encode()
        text += b" " * (-len(text) % 8)
        start = self._length()
        end = start + ENTRY.size + len(text)
        if end > len(self._memory):
            return None
        ENTRY.pack_into(self._memory, start, 0.0, len(text))
        self._memory[start + ENTRY.size : end] = text
        USED.pack_into(self._memory, 0, end)
        self._places[key] = start
        return start

    def _length(self) -> int:
        return int(USED.unpack_from(self._memory)[0]) or USED.size

    def read(self) -> Mapping[str, float]:
        found: dict[str, float] = {}
        place, end = USED.size, self._length()
        while place < end:
            value, length = ENTRY.unpack_from(self._memory, place)
            place += ENTRY.size
            found[self._memory[place : place + length].decode().rstrip(" ")] = value
            place += length
        return found

    def clear(self) -> None:
        """Remove all numbers, for the next process that writes here."""
        USED.pack_into(self._memory, 0, 0)
        self._places, self._values, self.is_full = {}, {}, False


def add_up(*each: Mapping[str, float]) -> dict[str, float]:
    """The sums, key by key."""
    total: dict[str, float] = defaultdict(float)
    for numbers in each:
        for key, value in numbers.items():
            total[key] += value
    return dict(total)
