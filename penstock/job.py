"""A job as its producer sees it: where it stands, its result, its attempts, and the means to steer it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from penstock.doors import closed
from penstock.errors import JobFailed, PenstockError, ResultTimeout
from penstock.queue import control, read
from penstock.queue.read import Standing
from penstock.queue.wakeups import ENDED
from penstock.values import checks, tags
from penstock.values.checks import checked
from penstock.values.jsontext import loads
from penstock.values.status import JobStatus, OutcomeKind

if TYPE_CHECKING:
    from penstock.database.engine import Database
    from penstock.doors import Doors
    from penstock.queue.jobs import Follow
    from penstock.queue.wakeups import Wakeups
    from penstock.settings import Settings

R = TypeVar("R")


class JobHost(Protocol):
    """What a job needs of its app."""

    @property
    def settings(self) -> Settings: ...

    @property
    def database(self) -> Database: ...

    @property
    def doors(self) -> Doors: ...

    @property
    def wakeups(self) -> Wakeups: ...

    @property
    def follow(self) -> Follow: ...

    def listen_for_results(self) -> None: ...

    def find_task(self, name: str) -> Any: ...

    def prepare(self) -> None: ...


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One finished attempt of a job."""

    number: int
    process: str | None
    started_at: datetime
    finished_at: datetime
    outcome: OutcomeKind
    error: str | None
    traceback: str | None


class Job(Generic[R]):
    """A handle: it holds an id and asks the database."""

    def __init__(self, host: JobHost, id: str, task: Any = None) -> None:
        self._host = host
        self._task = task
        self.id = id

    @property
    def status(self) -> JobStatus:
        return self._standing().status

    async def status_async(self) -> JobStatus:
        return await self._host.doors.run(lambda: self.status)

    def result(self, timeout: float | None = None) -> R:
        """Wait for the job's value. Raises `JobFailed` if there is none to come, `ResultTimeout` if it takes longer."""
        patience = Patience(self._host, timeout)
        with patience:
            while not (standing := self._standing()).status.terminal:
                if not patience.wait():
                    raise ResultTimeout(f"job {self.id}", patience.seconds, standing.status)
        return self._value(standing)

    async def result_async(self, timeout: float | None = None) -> R:
        """`result` for async callers; no thread is held while waiting."""
        patience = Patience(self._host, timeout)
        async with patience:
            while not (standing := await self._host.doors.run(self._standing)).status.terminal:
                if not await patience.wait_async():
                    raise ResultTimeout(f"job {self.id}", patience.seconds, standing.status)
        return self._value(standing)

    def attempts(self) -> list[AttemptRecord]:
        """Every finished attempt, in order."""
        rows = self._database.read(lambda tx: tx.rows(read.ATTEMPTS, id=self.id))
        return [_attempt(row) for row in rows]

    async def attempts_async(self) -> list[AttemptRecord]:
        return await self._host.doors.run(self.attempts)

    def cancel(self) -> bool:
        """Cancel the job: at once if it waits, by telling its holder if it runs. False: it was over already."""
        return bool(self._database.in_transaction(control.cancelling(self._host.follow), [self.id]))

    async def cancel_async(self) -> bool:
        return await self._host.doors.run(self.cancel)

    def retry(self) -> bool:
        """Run a failed or cancelled job again, with fresh budgets. False: it is neither."""
        again = bool(self._database.in_transaction(control.retrying(), [self.id]))
        if again:
            self._host.wakeups.tell("ready")
        return again

    async def retry_async(self) -> bool:
        return await self._host.doors.run(self.retry)

    def discard(self) -> bool:
        """Take a failed job off the list of dead letters for good. False: it is not on it."""
        return bool(self._database.in_transaction(control.discarding(), [self.id]))

    async def discard_async(self) -> bool:
        return await self._host.doors.run(self.discard)

    def progress(self) -> tuple[float, str] | None:
        """What the handler last said about how far it is."""
        row = self._database.read(lambda tx: tx.row(read.PROGRESS, id=self.id))
        return None if row is None else (row[0], row[1])

    async def progress_async(self) -> tuple[float, str] | None:
        return await self._host.doors.run(self.progress)

    @property
    def _database(self) -> Database:
        """A handle made from an id may be the first to use the database."""
        self._host.prepare()
        return self._host.database

    def _standing(self) -> Standing:
        standing = self._database.read(read.standing, self.id)
        if standing is None:
            raise PenstockError(
                f"there is no job {self.id}; it may have been pruned, or its enqueue never committed"
            )
        return standing

    def _value(self, standing: Standing) -> R:
        if standing.status is not JobStatus.SUCCEEDED:
            raise JobFailed(self.id, standing.reason or standing.status, standing.error)
        text = standing.output or "null"
        if self._task is None:
            row = self._database.read(lambda tx: tx.row(read.DESCRIPTION, id=self.id))
            self._task = self._host.find_task(row[0]) if row else None
        if self._task is None:
            return tags.read(loads(text))  # type: ignore[return-value]
        return self._task.codec.decode_result(text)  # type: ignore[no-any-return]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<job {self.id}>"


FIRST_LOOK_IF_TOLD = 0.02
"""Whoever is told of ends need not look for them as often."""


class Patience:
    """Waiting for something to end: woken where that is possible, polling with growing delays in any case."""

    def __init__(
        self, host: JobHost, timeout: float | None, subject: str = ENDED, delay: float = 0.002
    ) -> None:
        self.host = host
        self.subject = subject
        seconds = checked("timeout", timeout, checks.patience)
        self.seconds = seconds or 0.0
        self.deadline = None if seconds is None else time.monotonic() + seconds
        self.delay = max(delay, FIRST_LOOK_IF_TOLD) if host.settings.listens else delay
        self.heard = threading.Event()
        self.waker: Callable[[], object] | None = None
        self.since = host.doors.closings
        self.stop: Callable[[], None] = lambda: None

    def __enter__(self) -> Patience:
        self.host.listen_for_results()
        self.stop = self.host.wakeups.listen(self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Patience:
        await self.host.doors.run(self.host.listen_for_results)
        self.stop = self.host.wakeups.listen(self._hear)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()

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
        return None if left <= 0 else min(pause, left)

    def _hear(self, subject: str) -> None:
        if not subject.startswith(self.subject) and subject != ENDED:
            return
        self.heard.set()
        waker = self.waker
        if waker is not None:
            with suppress(RuntimeError):  # the loop is closed: that is no matter of whoever tells us
                waker()


def instant(micros: int) -> datetime:
    """Microseconds of the database's clock as a datetime in UTC."""
    return datetime.fromtimestamp(micros / 1_000_000, UTC)


def _attempt(row: Sequence[Any]) -> AttemptRecord:
    number, process, started, finished, outcome, error_type, error, traceback = row
    text = f"{error_type}: {error}" if error_type and error else error_type or error
    return AttemptRecord(
        number, process, instant(started), instant(finished), OutcomeKind(outcome), text, traceback
    )
