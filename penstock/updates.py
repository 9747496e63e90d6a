"""Updates of a job or a run as they happen: a stream that ends with it, for progress bars and server-sent events.

The stream polls, and a wake-up at the end shortens the wait. Two changes between two polls are seen as one. An outage
of the database is waited out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from penstock.app_services import AppServices
from penstock.errors import ResultTimeout
from penstock.queue.wakeups import ENDED
from penstock.result_wait import HasStatus, ResultWaiter
from penstock.values.status import JobStatus, Reason, RunStatus

FIRST_LOOK = 0.02


@dataclass(frozen=True, slots=True)
class JobUpdate:
    """How a job stands: its status, which attempt it is, and what the handler has reported."""

    status: JobStatus
    attempt: int
    progress: float | None = None
    """From 0 to 1; None: nothing was reported."""
    message: str | None = None
    reason: Reason | None = None
    """Why it did not end well."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "status": self.status.value,
            "attempt": self.attempt,
            "progress": self.progress,
            "message": self.message,
            "reason": self.reason.value if self.reason is not None else None,
        }


@dataclass(frozen=True, slots=True)
class RunUpdate:
    """How a run stands: its status, and how many steps of each node stand where."""

    status: RunStatus
    steps: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By the key of the node: how many steps have which status. Nodes that were not reached are not in it."""
    reasons: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """How many steps there are so far."""
        return sum(count for counts in self.steps.values() for count in counts.values())

    @property
    def done(self) -> int:
        """How many of them are over."""
        return sum(
            count
            for counts in self.steps.values()
            for status, count in counts.items()
            if JobStatus.stored(status).terminal
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "status": self.status.value,
            "steps": {key: dict(counts) for key, counts in self.steps.items()},
            "done": self.done,
            "total": self.total,
            "reasons": list(self.reasons),
        }


U = TypeVar("U", bound=HasStatus)


class UpdateStream(Generic[U]):
    """The updates of one job or run, for `async for` and `for`. The first is how it stands now, the last its end."""

    def __init__(
        self,
        host: AppServices,
        read: Callable[[], U],
        subject: str,
        timeout: float | None = None,
        wakeup: str = ENDED,
    ) -> None:
        self._host = host
        self._read = read
        self._subject = subject
        self._timeout = timeout
        self._wakeup = wakeup

    def __iter__(self) -> Iterator[U]:
        waiter, last = self._waiter(), None
        with waiter:
            while last is None or not last.status.terminal:
                found = waiter.peek(self._read)
                if found is not None and found != last:
                    waiter.delay = FIRST_LOOK
                    last = found
                    yield found
                elif not waiter.wait():
                    raise ResultTimeout(self._subject, waiter.seconds, waiter.status)

    def __aiter__(self) -> AsyncIterator[U]:
        return self._updates()

    async def _updates(self) -> AsyncIterator[U]:
        waiter, last = self._waiter(), None
        async with waiter:
            while last is None or not last.status.terminal:
                found = await waiter.peek_async(self._read)
                if found is not None and found != last:
                    waiter.delay = FIRST_LOOK
                    last = found
                    yield found
                elif not await waiter.wait_async():
                    raise ResultTimeout(self._subject, waiter.seconds, waiter.status)

    def _waiter(self) -> ResultWaiter:
        return ResultWaiter(self._host, self._timeout, self._wakeup, FIRST_LOOK)
