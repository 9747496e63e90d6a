"""`Service`, the base of every loop in a thread. A subclass implements one turn; tests call it directly.

A loop survives any error: it reports the first one, backs off, and reports when it works again.
"""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import StrEnum
from typing import Any, TypeVar

from penstock.database.error_advice import is_momentary
from penstock.telemetry.events import Stream, TroubleBegan, TroubleEnded


class Turn(StrEnum):
    """The result of one turn of a service. The service sleeps only after an idle turn. Invariant 9."""

    WORKED = "worked"
    CONTENDED = "contended"
    IDLE = "idle"


class Service(ABC):
    """A loop in a thread of its own."""

    name = "service"
    longest_backoff = 5.0

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.stopping = threading.Event()
        self.thread: threading.Thread | None = None
        self._troubled_since: float | None = None
        self._backoff = 0.05
        self._has_failed_once = False
        """True if the last turn failed for a momentary reason, which was not reported."""

    @abstractmethod
    def turn(self) -> Turn:
        """Do one turn. The service survives any exception."""

    def pause(self) -> None:
        """Wait before the next turn."""
        self.stopping.wait(0.1)

    def start(self) -> None:
        self.thread = threading.Thread(target=self.run, name=f"penstock-{self.name}", daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.stopping.set()

    def join(self, timeout: float | None = None) -> None:
        if self.thread is not None and self.thread is not threading.current_thread():
            self.thread.join(timeout)

    @property
    def alive(self) -> bool:
        return self.thread is not None and self.thread.is_alive()

    def run(self) -> None:
        while not self.stopping.is_set():
            if self.guarded_turn() is Turn.IDLE and not self.stopping.is_set():
                self.guarded_pause()

    def guarded_turn(self) -> Turn:
        """A turn that does not raise: an error is reported once, and the service backs off."""
        try:
            turn = self.turn()
        except Exception as error:
            self._trouble(error)
            return Turn.CONTENDED
        self._has_failed_once, self._backoff = False, 0.05
        if self._troubled_since is not None and not self.leaving:
            self.stream.emit(TroubleEnded(self.name, time.monotonic() - self._troubled_since))
            self._troubled_since = None
        return turn

    @property
    def leaving(self) -> bool:
        """True if the service is stopping: it does not do all of its work, so a good turn does not end the trouble."""
        return self.stopping.is_set()

    def guarded_pause(self) -> None:
        """A pause that does not raise."""
        try:
            self.pause()
        except Exception as error:
            self._trouble(error)

    def _trouble(self, error: Exception) -> None:
        if self._troubled_since is None and is_momentary(error) and not self._has_failed_once:
            self._has_failed_once = True  # it is tried again at once; if that succeeds, nothing is reported
        elif self._troubled_since is None:
            self._troubled_since = time.monotonic()
            self.stream.emit(TroubleBegan(self.name, f"{type(error).__name__}: {error}"))
        self.stopping.wait(self._backoff * random.uniform(0.5, 1.0))
        self._backoff = min(self._backoff * 2, self.longest_backoff)


# Calls from any thread to the thread of the event loop.

T = TypeVar("T")


def call_on_loop(loop: AbstractEventLoop, action: Callable[..., object], *args: Any) -> bool:
    """Have the event loop call this. False: the loop is closed."""
    try:
        loop.call_soon_threadsafe(action, *args)
    except RuntimeError:
        if not loop.is_closed():
            raise
        return False
    return True


def drain_deque(items: deque[T]) -> Iterator[T]:
    """Take all items. Each comes out once, even if several threads take at the same time."""
    while items:
        with suppress(IndexError):
            yield items.popleft()
