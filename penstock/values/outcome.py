"""Decides the outcome of an attempt: from what happened to the one value that settle writes. Pure.

An executor turns a finished handler into an `Event`; `decide` turns the event into an `Outcome` by the task's
retry policy and the counts so far. Invariant 11: an error or a timeout spends a retry; a snooze, a release,
an outage of the database and a cancellation spend nothing; crashes have a budget of their own (`decide_crash`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from penstock.errors import AdvancementFailed, PayloadTooLarge, PenstockError
from penstock.values import parse
from penstock.values.failure import Failure
from penstock.values.parse import checked
from penstock.values.retry import Retry, crash_delay
from penstock.values.status import JobStatus, OutcomeKind, Reason


@dataclass(frozen=True, slots=True, init=False)
class Snooze:
    """Returned by a handler: run this job again after `seconds`, 0.1 at least. No budget is spent."""

    seconds: float

    def __init__(self, seconds: float | timedelta) -> None:
        given = checked(
            "seconds", seconds, lambda value: parse.seconds(value, most=parse.LARGEST), "Snooze(...)"
        )
        object.__setattr__(self, "seconds", given)


@dataclass(frozen=True, slots=True, init=False)
class Cancel:
    """Returned by a handler: end this job as cancelled, without a result. It is not an error."""

    reason: str

    def __init__(self, reason: object = "") -> None:
        # An exception is as good a reason as its text; the text is what can be stored.
        object.__setattr__(self, "reason", "" if reason is None else str(reason))


class StopRun(BaseException):
    """Raised by `stop_run()`: not an error, so nothing that handles errors may swallow it.

    `output` is the run's value as JSON text; it need not be of the type that the step returns.
    """

    def __init__(self, output: str) -> None:
        super().__init__("stop_run() was called")
        self.output = output


class Returned(NamedTuple):
    """The handler returned a value; `output` is its JSON text. `stops_run`: with it, the whole run is to end."""

    output: str
    stops_run: bool = False

    @property
    def reason(self) -> Reason | None:
        """The reason that is stored with the step's success."""
        return Reason.RUN_STOPPED if self.stops_run else None


@dataclass(frozen=True, slots=True)
class Raised:
    """Something raised: the handler, or reading its arguments, or writing its result.

    `reason` is what the job will fail with when no retry is left, if that says more than "retries exhausted".
    """

    failure: Failure
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The attempt took longer than the task's `timeout`."""

    seconds: float
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class Released:
    """The claim is given back unfinished: a graceful stop, or work that was never started."""


REJECTED_DELAY = 1.0
"""Seconds that a job waits after its handler could not reach the database."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The worker could not serve the handler, through no fault of the job: the job is given back.

    The database was away, or the system had no thread or process for it.
    """

    failure: Failure
    seconds: float = REJECTED_DELAY


@dataclass(frozen=True, slots=True)
class Stopped:
    """The handler was told to stop because the job or its run was cancelled."""

    reason: str = ""


Event = Returned | Raised | TimedOut | Snooze | Cancel | Released | Rejected | Stopped

SHORTEST_SNOOZE = 0.1
"""Seconds: a job that snoozes for no time at all would otherwise keep a worker and its database busy all the time."""


class Outcome(NamedTuple):
    """How an attempt ended and what becomes of the job. `delay` is None when this is the job's end."""

    kind: OutcomeKind
    output: str | None = None
    failure: Failure | None = None
    delay: float | None = None
    reason: Reason | None = None

    @property
    def final(self) -> bool:
        return self.delay is None

    @property
    def status(self) -> JobStatus:
        """The status the job has once this outcome is settled."""
        if self.delay is not None:
            return JobStatus.SCHEDULED if self.delay > 0 else JobStatus.AVAILABLE
        return _FINAL_STATUS[self.kind]

    @property
    def spends_retry(self) -> bool:
        return self.delay is not None and self.kind in (OutcomeKind.ERRORED, OutcomeKind.TIMED_OUT)


_FINAL_STATUS = {
    OutcomeKind.SUCCEEDED: JobStatus.SUCCEEDED,
    OutcomeKind.ERRORED: JobStatus.FAILED,
    OutcomeKind.TIMED_OUT: JobStatus.FAILED,
    OutcomeKind.CRASHED: JobStatus.FAILED,
    OutcomeKind.CANCELLED: JobStatus.CANCELLED,
}


class CrashDecision(NamedTuple):
    """The decision about a job whose process died."""

    status: JobStatus
    delay: float
    reason: Reason | None


def interpret(value: object, encode: Callable[[object], str]) -> Event:
    """The event that a handler's return value asks for; `encode` is `Signature.encode_result`, with its limit."""
    try:
        if isinstance(value, (Snooze, Cancel, StopRun)):
            return _asked(value)
        return Returned(encode(value))
    except PayloadTooLarge as error:
        return Raised(Failure.of(error), Reason.PAYLOAD_TOO_LARGE)
    except BaseException as error:
        # User code (serializers, properties) may raise here too: that is the step's error, not a crash.
        return Raised(Failure.of(error), Reason.RESULT_NOT_SERIALIZABLE)


def _asked(value: Snooze | Cancel | StopRun) -> Event:
    """Copy a request as a plain `Snooze` or `Cancel`: a subclass may override methods, and may not be picklable."""
    if isinstance(value, Snooze):
        return Snooze(float(value.seconds))
    if isinstance(value, Cancel):
        return Cancel(str.__str__(value.reason))
    return Returned(str.__str__(value.output), stops_run=True)


def raised(error: BaseException, *, reading_arguments: bool = False) -> Raised:
    """The event for an exception from a handler, or from reading its stored arguments. Never raises itself."""
    try:
        return _raised(error, reading_arguments)
    except BaseException as broken:  # even `isinstance` may run code of the error's class
        return Raised(Failure.of(broken))


def _raised(error: BaseException, reading_arguments: bool) -> Raised:
    if isinstance(error, AdvancementFailed):
        return Raised(Failure.of(error.__cause__ or error), Reason.ADVANCEMENT_FAILED)
    invalid = reading_arguments and isinstance(error, PenstockError)
    return Raised(Failure.of(error), Reason.ARGUMENTS_INVALID if invalid else None)


def decide(event: Event, policy: Retry, retry_count: int, random: float = 0.0) -> Outcome:
    """The outcome of an attempt, `retry_count` retries spent before it; `random` in [0, 1) is for jitter."""
    match event:
        case Returned(output):
            return Outcome(OutcomeKind.SUCCEEDED, output=output, reason=event.reason)
        case Snooze(seconds):
            return Outcome(OutcomeKind.SNOOZED, delay=max(float(seconds), SHORTEST_SNOOZE))
        case Cancel(reason) | Stopped(reason):
            failure = Failure.note("Cancelled", reason) if reason else None
            return Outcome(OutcomeKind.CANCELLED, failure=failure, reason=Reason.CANCELLED)
        case Released():
            return Outcome(OutcomeKind.RELEASED, delay=0.0)
        case Rejected(failure, seconds):
            return Outcome(OutcomeKind.RELEASED, failure=failure, delay=seconds)
        case TimedOut(seconds, traceback):
            failure = Failure.note("TimedOut", f"no result after {seconds:g} s (timeout)", traceback)
            if not policy.permits(TimeoutError()):
                return Outcome(OutcomeKind.TIMED_OUT, failure=failure, reason=Reason.TIMED_OUT)
            return _errored(OutcomeKind.TIMED_OUT, failure, Reason.TIMED_OUT, policy, retry_count, random)
        case Raised(failure, reason):
            if not policy.permits(failure.lineage):
                final = reason or Reason.NOT_RETRYABLE
                return Outcome(OutcomeKind.ERRORED, failure=failure, reason=final)
            final = reason or Reason.RETRIES_EXHAUSTED
            return _errored(OutcomeKind.ERRORED, failure, final, policy, retry_count, random)


def decide_crash(crash_count: int, max_crashes: int | None) -> CrashDecision:
    """Decide about a job after its `crash_count`-th crash (the one just noticed included).

    `max_crashes` crashes are survived; the next one fails the job. None: no cap.
    """
    if max_crashes is not None and crash_count > max_crashes:
        return CrashDecision(JobStatus.FAILED, 0.0, Reason.CRASHES_EXHAUSTED)
    delay = crash_delay(crash_count)
    return CrashDecision(JobStatus.SCHEDULED if delay > 0 else JobStatus.AVAILABLE, delay, None)


def _errored(
    kind: OutcomeKind, failure: Failure, final: Reason, policy: Retry, retry_count: int, random: float
) -> Outcome:
    if retry_count >= policy.max:
        return Outcome(kind, failure=failure, reason=final)
    return Outcome(kind, failure=failure, delay=policy.delay_for(retry_count + 1, random))
