"""The running handler's view of its job, and its acts on it: `penstock.current()`."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, Protocol, TypeVar, cast, overload

from penstock.async_bridge import in_thread
from penstock.errors import DefinitionError, PenstockError
from penstock.handler_environment import HandlerEnvironment, HandlerFlags
from penstock.job_transaction import TransactionScope
from penstock.queue import job_records
from penstock.run_context import RunContext
from penstock.values import parse
from penstock.values.actor import at_work
from penstock.values.failure import clean
from penstock.values.outcome import StopRun
from penstock.values.typed_json.json_text import encode, limited, loads
from penstock.values.typed_json.once_value import OnceValue

if TYPE_CHECKING:
    from penstock.queue.jobs import Claim
    from penstock.values.typed_json.signature import Signature

P = ParamSpec("P")
R = TypeVar("R")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LONGEST_PROGRESS = 1_000
LONGEST_MARKER = 200


class StepBuilder(Protocol):
    """Receives the calls of tasks while a pipeline is being described: each call becomes a step."""

    def call(self, task: Any, args: Any, kwargs: Any) -> Any: ...

    def map(self, task: Any, args: Any, kwargs: Any) -> Any: ...


building: ContextVar[StepBuilder | None] = ContextVar("penstock_building", default=None)
running = cast("ContextVar[CurrentJob | None]", at_work)


def refuse_to_act(name: str, verb: str) -> None:
    """Refuse to act while a pipeline is being described: its function runs for every look at the definition."""
    if building.get() is not None:
        raise DefinitionError(
            f"{name}.{verb}(...) inside a pipeline, which only describes its steps: call {name}(...) for a step"
        )


class CurrentJob:
    """The job that is running here, under its claim."""

    __slots__ = ("_around", "_began", "_claim", "_codec", "_host", "_scope", "_signals")

    def __init__(
        self,
        claim: Claim,
        codec: Signature,
        around: HandlerEnvironment,
        signals: HandlerFlags,
        began: float,
        host: Any = None,
    ) -> None:
        self._claim = claim
        self._around = around
        self._codec = codec
        self._signals = signals
        self._began = began
        self._host = host
        self._scope: TransactionScope | None = None

    @property
    def id(self) -> str:
        return self._claim.job_id

    @property
    def task(self) -> str:
        return self._claim.task

    @property
    def run_id(self) -> str | None:
        return self._claim.run_id

    @property
    def run(self) -> Any:
        """The run that this step belongs to: an `app.run(...)`."""
        if self.run_id is None:
            raise PenstockError("this job is not a step of a run")
        return self._host.run(self.run_id)

    @property
    def context(self) -> RunContext:
        """Values that all steps of the run share."""
        if self.run_id is None:
            raise PenstockError("this job is not a step of a run, so there is no context")
        return RunContext(self._around.database, self.run_id, in_thread, self.idempotency_key)

    @property
    def scheduled_for(self) -> datetime | None:
        """The nominal time of the tick of a schedule that this is for, in UTC; None if it is for none."""
        nominal: Any = self._claim.scheduled_for
        if nominal is None and self._claim.options is not None:
            options: Any = loads(self._claim.options)
            nominal = options.get("scheduled_for")
        return None if nominal is None else EPOCH + timedelta(microseconds=nominal)

    @property
    def attempt(self) -> int:
        """The number of this attempt, beginning with 1; every claim of the job counts."""
        return self._claim.generation

    @property
    def retry_count(self) -> int:
        return self._claim.retry_count

    @property
    def crash_count(self) -> int:
        return self._claim.crash_count

    @property
    def recovered(self) -> bool:
        """True if an earlier process that held this job died."""
        return self._claim.crash_count > 0

    @property
    def idempotency_key(self) -> str:
        """A key that stays the same over retries, crashes and revives: pass it to the services that the handler
        calls."""
        return self._claim.origin_id or self._claim.job_id

    @property
    def fence(self) -> int:
        """A number that grows with every claim of this job: pass it to stores that refuse writes with a smaller
        number."""
        return self._claim.generation

    @property
    def lease_lost(self) -> bool:
        """True if this process was declared dead: the outcome of this attempt will not count."""
        return self._signals.lost

    @property
    def cancel_requested(self) -> bool:
        return self._signals.cancelled

    @property
    def timed_out(self) -> bool:
        """True if the handler's thread goes on after its timeout: what it returns does not count."""
        return self._signals.overdue

    @property
    def completed(self) -> bool:
        """True if the job's end was committed together with the handler's own writes: nothing is left to settle."""
        return self._scope is not None and self._scope.committed

    @property
    def result(self) -> object:
        """The value that was given to `complete()`."""
        return self._scope.result if self._scope is not None else None

    @property
    def payload_limit(self) -> int:
        return self._around.payload_limit

    @property
    def result_limit(self) -> int:
        return self._around.limit_for(self._claim)

    def progress(self, fraction: float, message: str = "") -> None:
        """Report progress from 0 to 1. The worker writes it a little later, so the handler does not wait."""
        said = clean(str(message), LONGEST_PROGRESS)
        self._around.report(self.id, min(1.0, max(0.0, _number(fraction))), said)

    def once(self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function unless that was done before under this name; then return what it returned then.

        The value is durable before this returns. A crash between the call and the marker repeats the call:
        pass `idempotency_key` on to whatever it calls. With an async function, await what is returned. The value
        has the type that the function's return annotation says.
        """
        _check_marker(name)
        if inspect.iscoroutinefunction(inspect.unwrap(function)):
            return cast(R, self.once_async(name, function, *args, **kwargs))
        once_value = OnceValue(name, function)
        found = self._around.database.read(job_records.find, self.idempotency_key, name)
        if found is not None:
            return cast(R, once_value.read(found))
        return cast(R, self._remember(once_value, function(*args, **kwargs)))

    @overload
    async def once_async(
        self, name: str, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...

    @overload
    async def once_async(
        self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...

    async def once_async(
        self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Any:
        """`once()` for async handlers. A function that is not async is called in a thread."""
        _check_marker(name)
        once_value = OnceValue(name, function)
        database = self._around.database
        found = await in_thread(lambda: database.read(job_records.find, self.idempotency_key, name))
        if found is not None:
            return once_value.read(found)
        if not inspect.iscoroutinefunction(inspect.unwrap(function)):
            # The thread calls the function and stores its value: once the function has begun there, nothing can stop
            # it.
            value = await _to_the_end(lambda: self._remembered(once_value, function(*args, **kwargs)))
            if not inspect.isawaitable(value):
                return value
        else:
            value = function(*args, **kwargs)
        value = await value
        return await _to_the_end(lambda: self._remember(once_value, value))

    def _remembered(self, once_value: OnceValue, value: Any) -> Any:
        """The stored value; an awaitable is returned as it is, for the caller to await first."""
        return value if inspect.isawaitable(value) else self._remember(once_value, value)

    def _remember(self, once_value: OnceValue, value: Any) -> Any:
        text = limited(once_value.write(value), self.payload_limit, f"what {once_value.name!r} returned")
        kept = self._around.database.in_transaction(
            job_records.remember, self.idempotency_key, once_value.name, text
        )
        return once_value.read(kept)

    def transaction(self) -> TransactionScope:
        """A transaction on the same database: its writes and the job's completion commit together or not at all."""
        if self.completed:
            raise PenstockError(
                f"job {self.id} ended with its first transaction() block: put all writes that belong together into one"
            )
        if self._scope is not None and self._scope.open:
            raise PenstockError(
                f"job {self.id} is inside a transaction() block: use its connection, with begin_nested() for a part "
                "that may be undone by itself"
            )
        self._scope = TransactionScope(self._claim, self._around, self._codec, self._began)
        return self._scope

    def complete(self, value: object = None) -> None:
        """The job's result, inside `transaction()`; the handler is done when the block ends."""
        if self._scope is None or not self._scope.open:
            raise PenstockError("job.complete(...) belongs into a `with job.transaction():` block")
        self._scope.complete(value)

    def __repr__(self) -> str:
        return f"<job {self.id} of {self.task}, attempt {self.attempt}>"


def current() -> CurrentJob:
    """The job that this code runs for."""
    job = running.get()
    if job is None:
        raise PenstockError("no job is running here: penstock.current() works inside a task's handler only")
    return job


def stop_run(value: object = None) -> NoReturn:
    """Inside a step: end the whole run, early and successfully, with this value. What has not started is skipped."""
    job = current()
    if job.run_id is None:
        raise PenstockError("stop_run() ends the run that a step belongs to; this job is not a step of a run")
    raise StopRun(encode(value, limit=job.payload_limit, name="the value given to stop_run()"))


def _number(fraction: object) -> float:
    try:
        number = float(fraction)  # type: ignore[arg-type]  # whatever can be made one
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if math.isnan(number):
        raise PenstockError(f"progress({fraction!r}): give how far it is as a number from 0 to 1")
    return number


def _check_marker(name: object) -> None:
    try:
        parse.text(name, LONGEST_MARKER)
    except ValueError as error:
        raise PenstockError(f"once({name!r}, ...), its name: {error}") from None


async def _to_the_end(work: Callable[[], Any]) -> Any:
    """Do the work in a thread, and wait for it even if the caller is cancelled: the value must be stored before the
    job runs again."""
    doing = asyncio.ensure_future(in_thread(work))
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.wait([doing])
        raise
