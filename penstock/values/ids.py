"""Identities made by the client: time-ordered UUIDs (version 7) and claim tokens.

Ids from one process ascend strictly, also within a millisecond, across threads, and when the wall clock steps
back. They carry 73 random bits that are drawn anew for every millisecond and after every fork, so two
processes never meet. The clock in an id is only an ordering hint: nothing compares it with a time.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from uuid import UUID

from penstock.errors import PenstockError

FIRST_ID = "00000000-0000-0000-0000-000000000000"
LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
"""Smaller and larger than every id: where a walk along a key begins."""

_COUNTER_BITS = 48
_COUNTER_END = 1 << _COUNTER_BITS


class _Sequence:
    """The last id given out: a prefix that is fixed for one millisecond and a counter below it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._millisecond = 0
        self._prefix = ""
        self._next = _COUNTER_END

    def take(self, count: int) -> tuple[str, int]:
        """A prefix, and the first of `count` successive counters under it."""
        with self._lock:
            now = time.time_ns() // 1_000_000
            if now > self._millisecond:
                self._begin(now)
            elif self._next + count > _COUNTER_END:
                self._begin(self._millisecond + 1)
            first = self._next
            self._next = first + count
            return self._prefix, first

    def _begin(self, millisecond: int) -> None:
        noise = int.from_bytes(os.urandom(10))
        version = 0x7000 | (noise & 0xFFF)
        variant = 0x8000 | (noise >> 12 & 0x3FFF)
        self._millisecond = millisecond
        self._prefix = f"{millisecond >> 16:08x}-{millisecond & 0xFFFF:04x}-{version:04x}-{variant:04x}-"
        # The counter starts in the lower half, so that no batch can run out of it.
        self._next = noise >> 26 & (_COUNTER_END // 2 - 1)


_sequence = _Sequence()


def new_id() -> str:
    """A new UUIDv7 in canonical form, greater than every id this process has made before."""
    prefix, counter = _sequence.take(1)
    return f"{prefix}{counter:012x}"


_chosen: ContextVar[list[str] | None] = ContextVar("penstock_chosen_id", default=None)


@contextmanager
def choosing(id: str | None) -> Iterator[None]:
    """Give this id to the first job or run that the block makes: a request that comes twice makes the same one."""
    token = _chosen.set(None if id is None else [id])
    try:
        yield
    finally:
        _chosen.reset(token)


def id_to_make() -> str:
    """The id of a job or run that a caller makes: the one that was chosen for it, if any, else a new one."""
    left = _chosen.get()
    return left.pop() if left else new_id()


def new_ids(count: int) -> list[str]:
    """`count` new ids in ascending order, at a fraction of the price of as many calls of `new_id`."""
    prefix, first = _sequence.take(count)
    return [f"{prefix}{counter:012x}" for counter in range(first, first + count)]


def checked_id(id: object) -> str:
    """An id that a person typed, in canonical form."""
    try:
        return str(UUID(str(id)))
    except ValueError:
        raise PenstockError(
            f"{id!r} is not an id: give the whole of it, as .id or `penstock jobs --json` has it"
        ) from None


SHORT_HEAD, SHORT_TAIL = 13, 4
"""An id in short: its beginning, which is a millisecond, and its end, which counts within it."""
BETWEEN = ".."


def short_id(id: str, tail: int = SHORT_TAIL) -> str:
    """An id for people to read and type: `019a953f-2c41..0b7f`."""
    return f"{id[:SHORT_HEAD]}{BETWEEN}{id[-tail:]}"


def shortened(ids: Collection[str]) -> dict[str, str]:
    """Each of these ids in short, with an end that is long enough to tell them apart."""
    for tail in (SHORT_TAIL, 6, 8, 12):
        short = {id: short_id(id, tail) for id in ids}
        if len(set(short.values())) == len(short):
            return short
    return {id: id for id in ids}


def read_id(found: object) -> str:
    """An id as a connection has read it, in canonical form.

    What a caller's own converters have made of one must never be taken for the id of another job.
    """
    try:
        return str(UUID(found.decode() if isinstance(found, bytes) else str(found)))
    except ValueError:
        raise PenstockError(
            f"the connection gives {found!r} where an id is kept: a converter that was registered for it changes what "
            "is read. Pass a connection without that"
        ) from None


def new_token() -> int:
    """A claim's token: a random positive integer below 2**63, which no other claim has or ever will."""
    return secrets.randbits(63) or 1


def _restart() -> None:
    # The child must not continue the parent's counter, nor inherit a lock that a thread of the parent held.
    global _sequence  # noqa: PLW0603 - one sequence per process is the point
    _sequence = _Sequence()


os.register_at_fork(after_in_child=_restart)
