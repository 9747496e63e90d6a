"""Middleware: code around handlers and around enqueues, written as generators that yield once.

    @app.middleware
    def timing(call: HandlerCall) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield                                      # the handler runs here
        finally:
            log.info("%s took %.3f s", call.task, time.monotonic() - began)

What the handler raises is raised at the `yield`. A middleware may let it pass, raise another error, or keep it and set
`call.result`. What a middleware raises is the error of the attempt. The first that was declared is the outermost.

A sync middleware and an async one both go around every kind of handler. Around a handler on the event loop, both run
on the loop. Around a handler in a thread or in a process of its own, an async middleware gets a loop of its own for
what it awaits; that loop does not run while the handler does.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import DefinitionError
from penstock.telemetry.fault_points import SimulatedCrash

if TYPE_CHECKING:
    from penstock.context import CurrentJob

T = TypeVar("T")
_UNSET = object()


class HandlerCall:
    """One call of a handler, as a middleware sees it: before the `yield` what it is about, after it what came of it."""

    __slots__ = (
        "_is_overdue",
        "_result",
        "arguments",
        "attempt",
        "error",
        "headers",
        "id",
        "item",
        "job",
        "queue",
        "run_id",
        "signal_headers",
        "task",
    )

    def __init__(
        self,
        id: str,
        task: str,
        attempt: int,
        arguments: dict[str, Any],
        *,
        queue: str | None = None,
        run_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        signal_headers: Sequence[Mapping[str, str]] = (),
        job: CurrentJob | None = None,
        item: Any = None,
        is_overdue: Callable[[], bool] | None = None,
    ) -> None:
        self.id = id
        """The id of the job; of a reconciler's row, its key."""
        self.task = task
        """The name of the task, or of the reconciler."""
        self.attempt = attempt
        """The number of this attempt, beginning with 1."""
        self.arguments = arguments
        """The arguments that the handler gets, by the names of its parameters; empty if they cannot be read, and
        then that is the error. A middleware may change them."""
        self.queue = queue
        """Its queue; a row has none."""
        self.run_id = run_id
        """The run that a step belongs to."""
        self.headers: Mapping[str, str] = headers or {}
        """Texts that were stored with the job, or with its run, when it was enqueued."""
        self.signal_headers = signal_headers
        """Of a step right after waits: the texts that were stored with the signals that ended them."""
        self.job = job
        """`penstock.current()`; None for a row."""
        self.item = item
        """The reconciler's item; None for a job."""
        self.error: BaseException | None = None
        """The exception that the handler raised, or a middleware further inside."""
        self._result: Any = _UNSET
        self._is_overdue = is_overdue

    @property
    def timed_out(self) -> bool:
        """True once the timeout of the attempt is over: the handler is cancelled, or its thread goes on for nothing."""
        return self._is_overdue is not None and self._is_overdue()

    @property
    def result(self) -> Any:
        """The value that the handler returned, and that the attempt ends with. A middleware may set another."""
        return None if self._result is _UNSET else self._result

    @result.setter
    def result(self, value: Any) -> None:
        self._result = value

    @property
    def is_decided(self) -> bool:
        """True if the handler has returned, or a middleware has set the result."""
        return self._result is not _UNSET

    def __repr__(self) -> str:
        return f"<call of {self.task} for {self.id}, attempt {self.attempt}>"


class Publication:
    """Jobs, runs, a schedule or a signal that is about to be written, as an enqueue middleware sees it."""

    __slots__ = (
        "count",
        "headers",
        "ids",
        "in_transaction",
        "kind",
        "name",
        "queue",
        "run_headers",
        "run_id",
    )

    def __init__(
        self, kind: str, name: str, count: int, *, queue: str | None = None, in_transaction: bool = False
    ) -> None:
        self.kind = kind
        """`"job"`, `"run"`, `"schedule"`, `"backfill"` or `"signal"`."""
        self.name = name
        """The name of the task, the pipeline, the schedule (also of a backfill) or the signal."""
        self.count = count
        self.queue = queue
        """Their queue; runs have none, each step has its own."""
        self.in_transaction = in_transaction
        """True if they are written on the caller's connection, and are there once that commits."""
        self.headers: dict[str, str] = {}
        """Texts to be stored with all of them; a middleware adds its own before the `yield`. Those of a signal are
        for the steps right after the wait (`call.signal_headers`)."""
        self.ids: Sequence[str] = ()
        """After the `yield`: the ids under which they exist."""
        self.run_id: str | None = None
        """The run that a signal is given to."""
        self.run_headers: Mapping[str, str] = {}
        """The headers of that run; of a run that a backfill starts, those of the backfill."""

    def __repr__(self) -> str:
        return f"<{self.count} of {self.kind} {self.name}>"


Middleware = Callable[[HandlerCall], Iterator[None] | AsyncIterator[None]]
EnqueueMiddleware = Callable[[Publication], Iterator[None]]
Body = Callable[[], Awaitable[None]]
Wait = Callable[[Coroutine[Any, Any, T]], Awaitable[T]]


def checked_middleware(given: object) -> Middleware:
    """The middleware, if it is one: a generator function, sync or async, that takes the call."""
    called = given if inspect.isroutine(given) else getattr(given, "__call__", None)  # noqa: B004 - its code is asked
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        return given  # type: ignore[return-value]
    raise DefinitionError(
        f"{name_of(given)} is no middleware: write a generator function of one argument, the call, with one `yield` "
        "where the handler runs"
    )


def checked_enqueue_middleware(given: object) -> EnqueueMiddleware:
    """The same around enqueues: a generator function that is not async, for it serves callers of both kinds."""
    called = given if inspect.isroutine(given) else getattr(given, "__call__", None)  # noqa: B004 - its code is asked
    if inspect.isgeneratorfunction(called):
        return given  # type: ignore[return-value]
    raise DefinitionError(
        f"{name_of(given)} is no enqueue middleware: write a generator function (`def`) of one argument, the "
        "publication, with one `yield` where the rows are written"
    )


def read_middleware(given: object) -> tuple[Middleware, ...]:
    """The value of the option `middleware=`: a list."""
    if not isinstance(given, list | tuple):
        raise TypeError("give a list, such as [timing]")
    return tuple([checked_middleware(each) for each in given])


def name_of(middleware: object) -> str:
    return str(getattr(middleware, "__qualname__", None) or repr(middleware))


# Around handlers.


async def call_within(
    around: Sequence[Middleware], call: HandlerCall, body: Callable[[], Awaitable[Any]]
) -> Any:
    """Call the body inside the middlewares, on this event loop; the result."""

    async def wait(step: Coroutine[Any, Any, T]) -> T:
        return await step

    await _within(around, call, body, wait)
    return call.result


def call_within_sync(around: Sequence[Middleware], call: HandlerCall, body: Callable[[], Any]) -> Any:
    """Call the body inside the middlewares, in this thread and in a context of its own; the result."""
    if not any(inspect.isasyncgenfunction(_code_of(each)) for each in around):
        return copy_context().run(_called_here, around, call, body, _never)
    with asyncio.Runner() as runner:

        async def wait(step: Coroutine[Any, Any, T]) -> T:
            context = copy_context()
            try:
                return runner.run(step, context=context)
            finally:
                _take_over(context)

        return copy_context().run(_called_here, around, call, body, wait)


def _called_here(
    around: Sequence[Middleware], call: HandlerCall, body: Callable[[], Any], wait: Wait[Any]
) -> Any:
    """Run the middlewares in this thread.

    None of them waits for an event loop, so one step of the coroutine runs it to its end.
    """

    async def at_once() -> Any:
        return body()

    try:
        _within(around, call, at_once, wait).send(None)
    except StopIteration:
        return call.result
    raise AssertionError("a call in a thread has waited for a loop")


async def _never(_step: Coroutine[Any, Any, T]) -> T:
    raise AssertionError("no middleware here is async")


def _take_over(context: Any) -> None:
    """Copy context variables that an async middleware set on its loop into this context, where the handler runs."""
    ours = copy_context()
    for variable, value in context.items():
        if ours.get(variable, _UNSET) is not value:
            variable.set(value)


async def _within(
    around: Sequence[Middleware], call: HandlerCall, body: Callable[[], Awaitable[Any]], wait: Wait[Any]
) -> None:
    if not around:
        call.result = await body()
        return
    made = around[0](call)
    if not await _entered(made, wait):
        if not call.is_decided:
            raise DefinitionError(
                f"middleware {name_of(around[0])} ended without a `yield`. To leave out the handler, set call.result"
            )
        return
    try:
        await _within(around[1:], call, body, wait)
    except SimulatedCrash:
        raise
    except BaseException as error:
        call.error = error
        await _left(around[0], made, error, wait)
        call.error = None
    else:
        await _left(around[0], made, None, wait)


async def _entered(made: Any, wait: Wait[Any]) -> bool:
    """False: it ended before its `yield`."""
    try:
        if hasattr(made, "__anext__"):
            await wait(_step(made.__anext__()))
        else:
            next(made)
    except (StopIteration, StopAsyncIteration):
        return False
    return True


async def _left(middleware: Middleware, made: Any, error: BaseException | None, wait: Wait[Any]) -> None:
    """Run the middleware from its `yield` to its end, and raise what it raises."""
    frames = None if error is None else error.__traceback__
    is_async = hasattr(made, "__anext__")
    try:
        if is_async:
            await wait(_step(made.__anext__() if error is None else made.athrow(error)))
        elif error is None:
            next(made)
        else:
            made.throw(error)
    except (StopIteration, StopAsyncIteration) as end:
        if end is not error:
            return
    except BaseException as raised:
        # An async generator cannot let a StopAsyncIteration pass: Python raises a RuntimeError in its place.
        renamed = isinstance(error, StopAsyncIteration) and raised.__cause__ is error
        if raised is not error and not renamed:
            raise
    else:
        await wait(_step(made.aclose())) if is_async else made.close()
        raise DefinitionError(f"middleware {name_of(middleware)} has a second `yield`; it must have one")
    assert error is not None
    error.__traceback__ = frames  # without the way through the middleware, which says nothing about the error
    raise error


async def _step(waitable: Awaitable[T]) -> T:
    """Wrap an awaitable in a coroutine, as `asyncio.Runner` needs it."""
    return await waitable


def _code_of(middleware: Any) -> Any:
    return middleware if inspect.isroutine(middleware) else middleware.__call__


# Around enqueues.


@contextmanager
def publishing(around: Sequence[EnqueueMiddleware], publication: Publication) -> Iterator[Publication]:
    """Run the enqueue middlewares around the block that writes: up to their `yield` before it, the rest after it."""
    failed: BaseException | None = None
    with ExitStack() as stack:
        for each in around:
            stack.enter_context(contextmanager(each)(publication))
        try:
            yield publication
        except BaseException as error:
            failed = error
            raise
    if failed is not None:
        raise failed  # the write has failed: raise that, even if a middleware swallows it


@contextmanager
def publishing_each(
    around: Sequence[EnqueueMiddleware], publications: Sequence[Publication]
) -> Iterator[None]:
    """Write several publications inside the block. Each has a context of its own, so that no span is inside another."""
    with ExitStack() as stack:
        for publication in publications:
            context, one = copy_context(), publishing(around, publication)
            context.run(one.__enter__)
            stack.push(lambda *error, run=context.run, leave=one.__exit__: run(leave, *error))
        yield
