"""Waiting for the end of a job or a run."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TypeVar

from penstock.app_services import AppServices
from penstock.async_bridge import closed
from penstock.database.listeners import hears
from penstock.errors import DatabaseUnavailable, PenstockError
from penstock.queue.wakeups import ENDED
from penstock.values import parse
from penstock.values.parse import checked
from penstock.values.status import JobStatus, RunStatus

if TYPE_CHECKING:
    pass


class HasStatus(Protocol):
    """A job or a run, as far as waiting looks at it."""

    @property
    def status(self) -> JobStatus | RunStatus: ...


T = TypeVar("T")
L = TypeVar("L", bound=HasStatus)

FIRST_LOOK_IF_TOLD = 0.02
"""The first delay between two looks where a wake-up tells of ends: polling need not be as frequent there."""


class ResultWaiter:
    """Waiting for something to end: woken where that is possible, polling with growing delays in any case."""

    def __init__(
        self, host: AppServices, timeout: float | None, subject: str = ENDED, delay: float = 0.002
    ) -> None:
        self.host = host
        self.subject = subject
        seconds = checked("timeout", timeout, parse.waiting_time)
        self.seconds = seconds or 0.0
        self.deadline = None if seconds is None else time.monotonic() + seconds
        self.status = ""
        self.away: DatabaseUnavailable | None = None
        self.delay = max(delay, FIRST_LOOK_IF_TOLD) if hears(host.database) else delay
        self.heard = threading.Event()
        self.waker: Callable[[], object] | None = None
        self.since = host.bridge.closings
        self.stop: Callable[[], None] = lambda: None

    def __enter__(self) -> ResultWaiter:
        self._listen()
        self.stop = self.host.wakeups.listen(self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _refuse_on_own_loop(self) -> None:
        """Refuse to block the event loop on which this app's worker runs: that worker could never end the job."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if loop in self.host.worker_loops:
            raise PenstockError(
                "result() would stop the event loop on which this app's worker runs, and wait for ever for what that "
                "worker is to do: use `await ....result_async()`"
            )

    async def __aenter__(self) -> ResultWaiter:
        await self.host.bridge.run(self._listen)
        self.stop = self.host.wakeups.listen(self._hear)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()

    def look(self, read: Callable[[], L]) -> L | None:
        """Read the job or run if it has ended. None if it has not, or if the database is away for now."""
        found = self.peek(read)
        return found if found is not None and found.status.terminal else None

    def peek(self, read: Callable[[], L]) -> L | None:
        """Read the job or run, ended or not. None if the database is away for now."""
        found = self._attempt(read)
        if found is not None:
            self.status = found.status
        return found

    async def peek_async(self, read: Callable[[], L]) -> L | None:
        return await self.host.bridge.run(self.peek, read)

    async def look_async(self, read: Callable[[], L]) -> L | None:
        return await self.host.bridge.run(self.look, read)

    def _listen(self) -> None:
        """Listen for ends. A caller that would wait for ever gets the error of an unreachable database at once."""
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
        self._refuse_on_own_loop()
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
        """Raise if the app was closed: another read would open it again."""
        if self.host.bridge.closings != self.since:
            raise closed("while a caller waited for a result")

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
            with suppress(
                RuntimeError
            ):  # the loop is closed: the thread that sends the wake-up must not fail because of it
                waker()
