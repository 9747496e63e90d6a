"""Child slots of a supervisor: which child runs in which slot, and when an empty slot gets a new child.

A child that dies is replaced at once. Only where children die before they are ready, again and again, does
the next one wait, and longer each time; children that die soon after wait a little, so that a place is
never a busy loop.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from penstock.values.ids import new_id

SETTLED_AFTER = 5.0
"""Seconds: a child that lived this long has started well."""
FORGIVEN = 2
FIRST_DELAY = 0.25
LONGEST_DELAY = 30.0
LONGEST_DELAY_WHEN_READY = 1.0
MOVES, READY = b".", b"!"
"""The bytes that a child writes into its pipe: it is alive; it is ready."""


@dataclass(slots=True)
class ChildProcess:
    """A forked process. `told`: it was asked to stop, so that its end is no surprise."""

    pid: int
    child_key: str
    since: float
    readiness: int
    told: bool = False
    code: int | None = None
    ready: bool = False
    """True once the child has got to work."""
    killed: bool = False
    """True once it was sent SIGKILL; it may take a moment until it is seen to be dead."""
    heard: float = field(default_factory=time.monotonic)
    """When it was last heard of, by our own clock; at first, when it was forked."""

    def send(self, number: signal.Signals) -> None:
        if self.code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def has_ended(self) -> bool:
        """Ask the operating system. It answers for our own child only once, so the answer is kept."""
        if self.code is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                self.code = -signal.SIGKILL  # other code in this process has already waited for the child
            else:
                self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code is not None

    def listen(self) -> None:
        """Take in what it has said by its pulse: that it is ready, and that it moves."""
        with suppress(OSError):
            if said := os.read(self.readiness, 4096):
                self.ready |= READY in said
                self.heard = time.monotonic()

    def was_ready(self) -> bool:
        """After its end: True if it ever became ready."""
        self.listen()
        with suppress(OSError):
            os.close(self.readiness)
        return self.ready


@dataclass(slots=True)
class ChildSlot:
    """A slot in which one child runs after another."""

    slot: int
    child: ChildProcess | None = None
    deaths: int = 0
    """How many children in a row died early."""
    empty_since: float | None = None
    due: float = 0.0

    def lost(self, child: ChildProcess) -> float:
        """The child is dead; how long the place has to stay empty."""
        now = time.monotonic()
        ready = child.was_ready()
        young = now - child.since < SETTLED_AFTER
        self.deaths = self.deaths + 1 if young and not child.told else 0
        self.child, self.empty_since = None, now
        delay = delay_after(self.deaths, ready)
        self.due = now + delay
        return delay


def delay_after(deaths: int, ready: bool) -> float:
    """How long to wait after so many early deaths in a row."""
    if deaths <= FORGIVEN:
        return 0.0
    longest = LONGEST_DELAY_WHEN_READY if ready else LONGEST_DELAY
    return float(min(FIRST_DELAY * 2 ** min(deaths - FORGIVEN - 1, 16), longest))


def fork_child(live: Callable[[str, Callable[[bytes], None]], int], not_theirs: list[int]) -> ChildProcess:
    """Fork. In the child, `live(child_key, say)` is all that ever happens, and its result is the exit code."""
    child_key = new_id()
    readiness, announce = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            for handle in (readiness, *not_theirs):
                os.close(handle)
            signal.set_wakeup_fd(-1)
            os.set_blocking(announce, False)
            code = live(child_key, partial(_say, announce))
        finally:
            _flush()
            os._exit(code)
    os.close(announce)
    os.set_blocking(readiness, False)
    return ChildProcess(pid, child_key, time.monotonic(), readiness)


def _say(announce: int, word: bytes) -> None:
    with suppress(BlockingIOError):  # the pipe is full: the supervisor has not read it yet
        os.write(announce, word)


class ChildPulse:
    """In the child: says again and again that we move, and since when we are ready, as long as a parent hears it.

    From the fork on, for a child can freeze in the write by which it registers. Without the database: if it is this
    process that keeps others from writing there, no heartbeat could tell.
    """

    def __init__(self, say: Callable[[bytes], None], every: float) -> None:
        self._say = say
        self._every = every
        self._word = MOVES
        threading.Thread(target=self._go_on, name="penstock-pulse", daemon=True).start()

    def ready(self) -> None:
        """Say that this process has got to work."""
        self._word = READY
        self._say(READY)

    def _go_on(self) -> None:
        with suppress(OSError):
            while True:
                self._say(self._word)
                time.sleep(self._every)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
