"""Waiting for the end of a job or a run."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TypeVar

from penstock.doors import closed
from penstock.errors import DatabaseUnavailable
from penstock.queue.wakeups import ENDED
from penstock.values import checks
from penstock.values.checks import checked
from penstock.values.status import JobStatus, RunStatus

if TYPE_CHECKING:
    from penstock.database.engine import Database
    from penstock.doors import Doors
    from penstock.queue.wakeups import Wakeups
    from penstock.settings import Settings


class Waited(Protocol):
    """What waiting needs of the app."""

    @property
    def settings(self) -> Settings: ...

    @property
    def database(self) -> Database: ...

    @property
    def doors(self) -> Doors: ...

    @property
    def wakeups(self) -> Wakeups: ...

    def listen_for_results(self) -> None: ...


class Look(Protocol):
    """What is seen of a job or a run."""

    @property
    def status(self) -> JobStatus | RunStatus: ...


T = TypeVar("T")
L = TypeVar("L", bound=Look)

FIRST_LOOK_IF_TOLD = 0.02
"""Whoever is told of ends need not look for them as often."""


class Patience:
    """Waiting for something to end: woken where that is possible, polling with growing delays in any case."""

    def __init__(
        self, host: Waited, timeout: float | None, subject: str = ENDED, delay: float = 0.002
    ) -> None:
        self.host = host
        self.subject = subject
        seconds = checked("timeout", timeout, checks.patience)
        self.seconds = seconds or 0.0
        self.deadline = None if seconds is None else time.monotonic() + seconds
        self.status = ""
        self.away: DatabaseUnavailable | None = None
        self.delay = max(delay, FIRST_LOOK_IF_TOLD) if host.settings.listens else delay
        self.heard = threading.Event()
        self.waker: Callable[[], object] | None = None
        self.since = host.doors.closings
        self.stop: Callable[[], None] = lambda: None

    def __enter__(self) -> Patience:
        self._listen()
        self.stop = self.host.wakeups.listen(self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Patience:
        await self.host.doors.run(self._listen)
        self.stop = self.host.wakeups.listen(self._hear)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()

    def look(self, read: Callable[[], L]) -> L | None:
        """What has ended. None: it has not, or the database is away, which may be over sooner than our time."""
        found = self._attempt(read)
        if found is None:
            return None
        self.status = found.status
        return found if found.status.terminal else None

    async def look_async(self, read: Callable[[], L]) -> L | None:
        return await self.host.doors.run(self.look, read)

    def _listen(self) -> None:
        """Whoever would wait for ever hears at once of a database that never was there."""
        if self.deadline is None:
            self.host.listen_for_results()
        else:
            self._attempt(self.host.listen_for_results)

    def _attempt(self, read: Callable[[], T]) -> T | None:
        try:
            found = read()
        except DatabaseUnavailable as error:
            if not self.host.database.may_return(error):
                raise
            self.away = error
            return None
        self.away = None
        return found

    def wait(self) -> bool:
        """Wait a little. False: the time is up. Raises `AppClosed` if the app is closed meanwhile."""
        pause = self._pause()
        if pause is None:
            return False
        self.heard.wait(pause)
        self.heard.clear()
        self._check_open()
        return True

    async def wait_async(self) -> bool:
        pause = self._pause()
        if pause is None:
            return False
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        self.waker = lambda: loop.call_soon_threadsafe(event.set)
        if self.heard.is_set():
            event.set()
        with suppress(TimeoutError):
            await asyncio.wait_for(event.wait(), pause)
        self.waker = None
        self.heard.clear()
        self._check_open()
        return True

    def _check_open(self) -> None:
        """To ask again would open what somebody has closed."""
        if self.host.doors.closings != self.since:
            raise closed("while somebody waited for a result")

    def _pause(self) -> float | None:
        pause = self.delay
        self.delay = min(self.delay * 1.5, self.host.settings.result_poll_interval)
        if self.deadline is None:
            return pause
        left = self.deadline - time.monotonic()
        if left <= 0 and self.away is not None:
            raise self.away
        return None if left <= 0 else min(pause, left)

    def _hear(self, subject: str) -> None:
        if not subject.startswith(self.subject) and subject != ENDED:
            return
        self.heard.set()
        waker = self.waker
        if waker is not None:
            with suppress(RuntimeError):  # the loop is closed: that is no matter of whoever tells us
                waker()
