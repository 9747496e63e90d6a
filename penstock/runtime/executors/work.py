"""A piece of work in an executor's hands: one claim, from hand-over to its event."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from penstock.context import CurrentJob
from penstock.errors import ConfigurationError, UnknownTask
from penstock.handler_environment import HandlerEnvironment, HandlerFlags
from penstock.middleware import Middleware
from penstock.queue.jobs import Attempt, Claim, headers_of
from penstock.task_options import EXECUTORS
from penstock.values import outcome as outcomes
from penstock.values.failure import Failure
from penstock.values.outcome import Event, Outcome, Returned
from penstock.values.retry import Retry
from penstock.values.status import JobStatus, OutcomeKind, Reason
from penstock.values.typed_json.json_text import loads

SUCCEEDED = OutcomeKind.SUCCEEDED
_ENDING = threading.Lock()
Arguments = tuple[list[Any], dict[str, Any]]
Key = tuple[str, int]
"""A claim of a job, not the job: after a lost one this process may well get the same job again beside it."""


class Interruption(StrEnum):
    """Why a handler is stopped from outside."""

    LOST = "lost"
    CANCELLED = "cancelled"
    RELEASED = "released"


@dataclass(frozen=True, slots=True)
class Died:
    """The process of the handler ended under it."""

    message: str


@dataclass(slots=True)
class Work:
    """A claim with its task and everything that may happen to it on the way."""

    claim: Claim
    task: Any
    timeout: float | None
    policy: Retry
    executor: str
    signals: HandlerFlags
    key: Key
    began: float = 0.0
    started: bool = False
    interrupted: Interruption | None = None
    handle: Any = None
    """The object by which the executor stops the handler (of the event loop: its task)."""
    told: bool = False
    """Its outcome was passed on to be settled, or its claim is known to be lost."""
    vacated: bool = False
    """Its place is free again, whatever is still to be said about it."""
    middleware: tuple[Middleware, ...] = ()
    _over: bool = False

    @classmethod
    def of(cls, claim: Claim, task: Any) -> Work:
        if task is None:
            raise UnknownTask(claim.task)
        settings = task.settings
        key = (claim.job_id, claim.generation)
        work = cls(claim, task, settings.timeout, settings.retries, task.executor, HandlerFlags(), key)
        work.middleware = task.middleware
        if claim.options is not None:
            _override(work, loads(claim.options))
        return work

    def begin(self, around: HandlerEnvironment) -> CurrentJob:
        """From here on the handler's time counts."""
        self.began = time.monotonic()
        self.started = True
        task = self.task
        return CurrentJob(self.claim, task.codec, around, self.signals, self.began, task.host)

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

    def arguments(self) -> Arguments:
        if self.claim.fault is not None:
            raise self.claim.fault
        if self.claim.call is not None:
            return self.task.codec.decode_call(*self.claim.call)  # type: ignore[no-any-return]
        return self.task.codec.decode_arguments(self.claim.payload)  # type: ignore[no-any-return]

    def known_headers(self) -> Mapping[str, str] | None:
        """The headers that were stored with the job or its run. None: those of its run are yet to be read."""
        own = headers_of(self.claim.options)
        if own or self.claim.run_id is None or not self.task.host.enqueue_middlewares:
            return own
        return self.task.host.engine.run_headers.known(self.claim.run_id)  # type: ignore[no-any-return]

    def read_headers(self) -> Mapping[str, str]:
        """Those of the run, from the database."""
        return self.task.host.engine.run_headers.read(self.claim.run_id)  # type: ignore[no-any-return]

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

    def attempt(self, event: Event | Died, random: Callable[[], float]) -> Attempt:
        """The attempt to be settled. There is one for every event, or the claim would be held for ever."""
        try:
            if type(event) is Returned:
                outcome = Outcome(SUCCEEDED, event.output, None, None, event.reason)
            else:
                outcome = self._decided(event, random)
        except Exception as error:
            failure = Failure.of(error)
            outcome = Outcome(OutcomeKind.ERRORED, failure=failure, reason=Reason.NOT_RETRYABLE)
        if not self.started:
            return Attempt(self.claim, outcome, began=False)
        return Attempt(self.claim, outcome, int((time.monotonic() - self.began) * 1_000_000))

    def _decided(self, event: Event | Died, random: Callable[[], float]) -> Outcome:
        if isinstance(event, Died):
            return self._crashed(event)
        return outcomes.decide(event, self.policy, self.claim.retry_count, random())

    def _crashed(self, event: Died) -> Outcome:
        status, delay, reason = outcomes.decide_crash(self.claim.crash_count + 1, self.claim.max_crashes)
        failure = Failure.note("Crashed", event.message)
        final = status is JobStatus.FAILED
        return Outcome(OutcomeKind.CRASHED, failure=failure, delay=None if final else delay, reason=reason)


def unfit(claim: Claim, task: Any, error: Exception, random: Callable[[], float]) -> Attempt:
    """The attempt for a claim that cannot be made into a work: it fails with that error, by the policy of its task.

    The same holds if the task is unknown here: a worker that knows it may claim the next retry.
    """
    policy = Retry() if task is None else task.settings.retries
    reason = Reason.UNKNOWN_TASK if isinstance(error, UnknownTask) else None
    event = outcomes.Raised(Failure.of(error), reason)
    return Attempt(claim, outcomes.decide(event, policy, claim.retry_count, random()))


def _restart() -> None:
    # In a forked child the lock may be held, by a thread that is the parent's.
    global _ENDING  # noqa: PLW0603 - one for all works of a process
    _ENDING = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restart)


def _override(work: Work, stored: Any) -> None:
    """Apply the `.options()` of the enqueue, which override those of the decorator."""
    work.timeout = stored.get("timeout", work.timeout)
    work.executor = stored.get("executor", work.executor)
    if work.executor not in EXECUTORS:
        raise ConfigurationError(f"{work.claim.task}: there is no executor {work.executor!r} in this process")
    if "retries" in stored:
        work.policy = Retry.from_dict(stored["retries"])
