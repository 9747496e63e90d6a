"""Calling the handler of a job: arguments in, event out. The same stages for every executor."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from penstock.context import CurrentJob, running
from penstock.handler_environment import HandlerEnvironment
from penstock.middleware import HandlerCall, call_within, call_within_sync
from penstock.runtime.executors import event_for
from penstock.telemetry import fault_points
from penstock.telemetry.fault_points import SimulatedCrash
from penstock.values.failure import Failure
from penstock.values.outcome import Event, Rejected, Released, StopRun, TimedOut, interpret, raised

if TYPE_CHECKING:
    from penstock.runtime.executors.job_work import Arguments, JobWork

log = logging.getLogger("penstock")


async def call_async(work: JobWork, around: HandlerEnvironment) -> Event | None:
    """Run a handler on this event loop, under its timeout."""
    job = work.begin_job(around)
    running.set(job)
    limit = None if work.timeout is None else asyncio.timeout(work.timeout)
    us = os.getpid()
    value: Any
    try:
        if work.middleware:
            value = _within(work, job)
        else:
            args, kwargs = read_arguments(work)
            value = work.task.function(*args, **kwargs)
        if limit is not None:
            async with limit:
                value = await _awaited(value)
        elif type(value) is CoroutineType:
            value = await value
            value = _drawn(value)
        else:
            value = await _awaited(value)
    except SimulatedCrash:
        raise
    except StopRun as stop:
        value = stop
    except UnreadArguments as unread:
        return unread.event
    except BaseException as error:
        return _broken_off(work, around, job, limit, error)
    finally:
        end_copy(us, work.name)
    if limit is not None and limit.expired():
        return TimedOut(work.timeout or 0.0)
    return _concluded(work, job, value)


def _broken_off(
    work: JobWork,
    around: HandlerEnvironment,
    job: CurrentJob,
    limit: asyncio.Timeout | None,
    error: BaseException,
) -> Event | None:
    """The event of a handler that was stopped; an exception that it raises meanwhile is no error of its own."""
    # By its type: what an error says of its class is its own code, and may raise.
    if work.interrupted is not None:
        return event_for(work.interrupted)
    if limit is not None and limit.expired():
        return TimedOut(work.timeout or 0.0)
    if issubclass(type(error), asyncio.CancelledError) and around.ending():
        return Released()
    return _failed(around, job, error)


def _failed(around: HandlerEnvironment, job: CurrentJob, error: BaseException) -> Event:
    """An error of the handler's; or its own database was away, which is not the job's fault. Invariant 11."""
    if around.hear is not None:
        around.hear(error)
    try:
        _tell_if_late(job, error)
        is_away = around.database.is_unavailable(error)
    except BaseException:  # of the error's own: whatever it is, this attempt has an end
        is_away = False
    return Rejected(Failure.of(error)) if is_away else raised(error)


def _tell_if_late(job: CurrentJob, error: BaseException) -> None:
    """Log an error that came after the end of the job: no attempt records it."""
    if job.completed and issubclass(type(error), Exception):
        log.warning(
            "%s: job %s was done when its transaction() block ended; what it raised after that changes nothing",
            job.task,
            job.id,
            exc_info=error,
        )


async def _awaited(value: Any) -> Any:
    """A handler may also be a plain function that returns something to wait for, or a generator of values."""
    if inspect.isasyncgen(value):
        return [each async for each in value]
    return _drawn(await value if inspect.isawaitable(value) else value)


def _drawn(value: Any) -> Any:
    """The values of a generator: drawn here, where what its code raises is the handler's own."""
    return list(value) if isinstance(value, Iterator) else value


def call_sync(work: JobWork, around: HandlerEnvironment) -> Event | None:
    """Run a handler in this thread. An async one gets an event loop of its own."""
    job = work.begin_job(around)
    token = running.set(job)
    us = os.getpid()
    try:
        value = _within_sync(work, job) if work.middleware else _called_plainly(work)
    except SimulatedCrash:
        raise
    except StopRun as stop:
        value = stop
    except UnreadArguments as unread:
        return unread.event
    except BaseException as error:
        return _failed(around, job, error)
    finally:
        end_copy(us, work.name)
        running.reset(token)
    return _concluded(work, job, value)


def end_copy(us: int, name: str) -> None:
    """A handler may fork. A child that returns from it, as its parent does, is a copy of us, with our claims."""
    if os.getpid() == us:
        return
    try:
        log.error(
            "%s forked, and the child came back from it: it ends here. End such a child with os._exit()",
            name,
        )
    finally:
        os._exit(1)


class UnreadArguments(Exception):
    """Raised in the handler's place if its stored arguments cannot be read; the cause is the error."""

    def __init__(self, task: str, error: BaseException) -> None:
        super().__init__(f"the arguments of {task} cannot be read")
        self.event = raised(error, reading_arguments=True)


def read_arguments(work: JobWork) -> Arguments:
    if fault_points.watched:
        fault_points.reach("execute.before")
    try:
        return work.arguments()
    except BaseException as error:  # validators are the user's code too
        raise UnreadArguments(work.task.name, error) from error


# Inside the middleware.


async def _within(work: JobWork, job: CurrentJob) -> Any:
    headers = work.known_headers()
    if headers is None:
        headers = await asyncio.to_thread(work.read_headers)
    prepared = PreparedCall(work, job, headers)

    async def body() -> Any:
        return await _awaited(prepared.begin())

    return await call_within(work.middleware, prepared.call, body)


def _within_sync(work: JobWork, job: CurrentJob) -> Any:
    headers = work.known_headers()
    prepared = PreparedCall(work, job, work.read_headers() if headers is None else headers)
    return call_within_sync(work.middleware, prepared.call, lambda: _ended(prepared.begin()))


class PreparedCall:
    """A call of a handler with its arguments, or with what is wrong with them."""

    def __init__(self, work: JobWork, job: CurrentJob, headers: Mapping[str, str]) -> None:
        claim = work.claim
        self.function = work.task.function
        self.bound = inspect.BoundArguments(work.task.signature, OrderedDict())
        self.unread: UnreadArguments | None = None
        try:
            args, kwargs = read_arguments(work)
            self.bound = work.task.signature.bind(*args, **kwargs)
        except UnreadArguments as error:
            self.unread = error
        self.call = HandlerCall(
            claim.job_id,
            claim.task,
            claim.generation,
            self.bound.arguments,
            queue=claim.queue,
            run_id=claim.run_id,
            headers=headers,
            signal_headers=[json.loads(text) for text in claim.signal_headers],
            job=job,
            is_overdue=work.is_overdue,
        )

    def begin(self) -> Any:
        if self.unread is not None:
            raise self.unread
        return self.function(*self.bound.args, **self.bound.kwargs)


def _called_plainly(work: JobWork) -> Any:
    return _called(work.task.function, *read_arguments(work))


def _called(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    return _ended(function(*args, **kwargs))


def _ended(value: Any) -> Any:
    if inspect.iscoroutine(value) or inspect.isasyncgen(value):
        return asyncio.run(_awaited(value))
    return _drawn(value)


def _concluded(work: JobWork, job: CurrentJob, value: object) -> Event:
    if fault_points.watched:
        fault_points.reach("execute.after")
    result = job.result if job.completed else value
    return interpret(result, partial(work.task.codec.encode_result, limit=job.result_limit))
