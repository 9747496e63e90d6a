"""Work: one claim of a job or a row, from the dispatcher to its outcome."""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Hashable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Protocol

from penstock.handler_environment import HandlerEnvironment, HandlerFlags

_ENDING = threading.Lock()
Key = Hashable
"""Names a claim, not what is claimed: after a lost one this process may well get the same job again beside it."""


class Interruption(StrEnum):
    """Why a handler is stopped from outside."""

    LOST = "lost"
    CANCELLED = "cancelled"
    RELEASED = "released"


@dataclass(frozen=True, slots=True)
class Died:
    """The event of a handler whose process ended."""

    message: str


class WorkOwner(Protocol):
    """The dispatcher of a work, to which executors report: many dispatchers share one set of executors.

    Told once for each work: its event, or None where the claim is lost and nothing may be written.
    """

    def done(self, work: Work, event: Any) -> None:
        """The handler has ended, and its place is free. On the event loop's thread."""

    def done_elsewhere(self, work: Work, event: Any) -> None:
        """The work is to be settled; its place is free when `vacate` is called. From any thread."""

    def vacate(self, work: Work) -> None:
        """Nothing works on it any more. From any thread."""


@dataclass(slots=True, eq=False)
class Work(ABC):
    """A claim with everything that may happen to it on the way. The subclass knows what its handler is."""

    key: Key
    timeout: float | None
    executor: str
    signals: HandlerFlags
    owner: WorkOwner = field(init=False)
    began: float = field(default=0.0, init=False)
    started: bool = field(default=False, init=False)
    interrupted: Interruption | None = field(default=None, init=False)
    handle: Any = field(default=None, init=False)
    """The object by which the executor stops the handler (of the event loop: its task)."""
    told: bool = field(default=False, init=False)
    """Its outcome was passed on to be settled, or its claim is known to be lost."""
    vacated: bool = field(default=False, init=False)
    """Its place is free again, whatever is still to be said about it."""
    _over: bool = field(default=False, init=False)

    only_seen: ClassVar[Interruption]
    """The interruption that a handler in a thread sees, and answers as it likes: its own end counts."""

    @property
    @abstractmethod
    def id(self) -> str:
        """The id of the job, or the key of the row, as events and the log name it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the task or of the reconciler."""

    @abstractmethod
    def run_here(self, around: HandlerEnvironment) -> Any:
        """Run the handler in this thread, of whatever process; its event."""

    @abstractmethod
    def run_on_loop(self, around: HandlerEnvironment) -> Coroutine[Any, Any, Any]:
        """Run the handler on this event loop, under its timeout; its event."""

    @abstractmethod
    def outcome(self, event: Any) -> Any:
        """The outcome to be settled. There is one for every event, or the claim would be held for ever."""

    @abstractmethod
    def order(self, around: HandlerEnvironment) -> Order:
        """The order by which a process of its own runs the handler."""

    def begin(self) -> None:
        """From here on the handler's time counts."""
        self.began = time.monotonic()
        self.started = True

    def begin_once(self) -> bool:
        """False when it was over before it began, or is about to be: what is given back must not run after all."""
        with _ENDING:
            if not self._over and self.interrupted is None:
                self.began = time.monotonic()
                self.started = True
            return self.started

    def time_left(self) -> float | None:
        """Seconds until its timeout, which counts from when it began. None: there is no limit, or it is over."""
        if self.timeout is None or self._over:
            return None
        return self.timeout - (time.monotonic() - self.began) if self.started else self.timeout

    def is_overdue(self) -> bool:
        """True if it has begun, its timeout is over, and nothing else has stopped it."""
        if self.timeout is None or not self.started or self.interrupted is not None:
            return False
        return time.monotonic() - self.began >= self.timeout

    def end_once(self) -> bool:
        """True for the first call only: a thread that ends after its timeout must not report an outcome."""
        with _ENDING:
            over, self._over = self._over, True
            return not over

    def end_unbegun(self) -> bool:
        """The same, but only for what has not begun: it never will."""
        with _ENDING:
            if self.started or self._over:
                return False
            self._over = True
            return True


class Order(Protocol):
    """Work as it is sent to a process of its own, where it is run."""

    def run(self, child: Any) -> Any:
        """Run the handler in this process, once the child has told that it begins; its event."""


def _restart() -> None:
    # In a forked child the lock may be held, by a thread that is the parent's.
    global _ENDING  # noqa: PLW0603 - one for all works of a process
    _ENDING = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restart)
