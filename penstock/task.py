"""Tasks: functions that can be enqueued. A plain call stays a plain call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload

from penstock.context import building, refuse_to_act
from penstock.errors import ArgumentError, ConfigurationError, DefinitionError
from penstock.job import Job, JobHost
from penstock.options import TaskOptions, overridden, read_options, refuse_step_options
from penstock.queue.jobs import NewJob, Payloads, Series
from penstock.values.annotations import is_async
from penstock.values.cached import cached_property
from penstock.values.ids import new_id, new_ids
from penstock.values.jsontext import dumps
from penstock.values.later import Later
from penstock.values.lengths import NAME_LENGTH
from penstock.values.limits import TaskLimits
from penstock.values.names import qualified_name
from penstock.values.sameness import bound_apart, same
from penstock.values.signature import Signature

P = ParamSpec("P")
R = TypeVar("R")
V = TypeVar("V")
Calls = Iterable[Sequence[Any] | Mapping[str, Any]]


class Host(JobHost, Protocol):
    """What a task needs of its app."""

    def submit(self, jobs: Sequence[NewJob], connection: object | None) -> list[str]: ...

    async def submit_async(self, jobs: Sequence[NewJob], connection: object | None) -> list[str]: ...

    def also_runs(self, task: Task[Any, Any]) -> None: ...


class Task(Generic[P, R]):
    """A function under a stable name, with the options its jobs run by."""

    def __init__(
        self,
        host: Host,
        function: Callable[P, R],
        options: TaskOptions,
        overrides: Mapping[str, object] | None = None,
    ) -> None:
        if not callable(function):
            raise DefinitionError(f"@app.task decorates functions; {function!r} is none")
        self.host = host
        self.function = function
        self.defaults = options
        self.overrides: Mapping[str, object] = overrides or {}
        if not options.name and not hasattr(function, "__qualname__"):
            raise DefinitionError(f"{function!r} has no name of its own: give it one, @app.task(name=...)")
        self.name = options.name or qualified_name(function)
        if len(self.name) > NAME_LENGTH:
            raise DefinitionError(
                f"the name {self.name!r} is too long: give one of at most {NAME_LENGTH} characters"
            )
        update_wrapper(self, function)

    # A call with values is the function's own; one with values to come, in a pipeline, is a step.

    @overload
    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    def __call__(self: Task[P, Coroutine[Any, Any, V]], /, *args: Any, **kwargs: Any) -> Later[V]: ...

    @overload
    def __call__(self, /, *args: Any, **kwargs: Any) -> Later[R]: ...

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        builder = building.get()
        if builder is not None:
            return builder.call(self, args, kwargs)
        return self.function(*args, **kwargs)

    @overload
    def map(self: Task[P, Coroutine[Any, Any, V]], /, *args: Any, **kwargs: Any) -> Later[V]: ...

    @overload
    def map(self, /, *args: Any, **kwargs: Any) -> Later[R]: ...

    def map(self, /, *args: Any, **kwargs: Any) -> Any:
        """In a pipeline: this step once for each element."""
        builder = building.get()
        if builder is None:
            raise DefinitionError(
                f"{self.name}.map(...) describes a step: call it inside an @app.pipeline function"
            )
        return builder.map(self, args, kwargs)

    def options(self, **overrides: object) -> Task[P, R]:
        """The same task with other options, for this enqueue or this step."""
        if "limits" in overrides:
            raise ConfigurationError(
                f"{self.name}: limits= belongs to @app.task(...): it holds for all its jobs"
            )
        merged = overridden(self.overrides, overrides)
        name = read_options(self.name, merged).get("name")
        defaults = self.defaults if name is None else self.defaults.merged({"name": name})
        other = Task(self.host, self.function, defaults, merged)
        if other.name == self.name:
            # Reading the signature again would cost more than the enqueue.
            other.__dict__["codec"] = self.codec
        else:
            self.host.also_runs(Task(self.host, self.function, defaults))
        return other

    @overload
    def enqueue(self: Task[P, Coroutine[Any, Any, V]], /, *args: P.args, **kwargs: P.kwargs) -> Job[V]: ...

    @overload
    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]: ...

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[Any]:
        """Write a job for this call; durable from the moment this returns."""
        job = self._job(new_id(), self._encoded(args, kwargs))
        (id,) = self.host.submit([job], self.settings.connection)
        return Job(self.host, id, self)

    @overload
    async def enqueue_async(
        self: Task[P, Coroutine[Any, Any, V]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Job[V]: ...

    @overload
    async def enqueue_async(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]: ...

    async def enqueue_async(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[Any]:
        """`enqueue` for async callers."""
        job = self._job(new_id(), self._encoded(args, kwargs))
        (id,) = await self.host.submit_async([job], self.settings.connection)
        return Job(self.host, id, self)

    @overload
    def enqueue_many(self: Task[P, Coroutine[Any, Any, V]], calls: Calls) -> list[Job[V]]: ...

    @overload
    def enqueue_many(self, calls: Calls) -> list[Job[R]]: ...

    def enqueue_many(self, calls: Calls) -> list[Job[Any]]:
        """Write a job for each call: a tuple of arguments, or a mapping of keyword arguments. All or none."""
        ids = self.host.submit(self._jobs(calls), self.settings.connection)
        return [Job(self.host, id, self) for id in ids]

    @overload
    async def enqueue_many_async(self: Task[P, Coroutine[Any, Any, V]], calls: Calls) -> list[Job[V]]: ...

    @overload
    async def enqueue_many_async(self, calls: Calls) -> list[Job[R]]: ...

    async def enqueue_many_async(self, calls: Calls) -> list[Job[Any]]:
        """`enqueue_many` for async callers."""
        ids = await self.host.submit_async(self._jobs(calls), self.settings.connection)
        return [Job(self.host, id, self) for id in ids]

    @cached_property
    def settings(self) -> TaskOptions:
        """The options in force: the decorator's, and what `.options()` has changed."""
        return self.defaults.merged(read_options(self.name, self.overrides))

    @cached_property
    def codec(self) -> Signature:
        return Signature.of(self.function, self.name)

    @cached_property
    def limits(self) -> TaskLimits | None:
        """How many of its jobs may run at a time or start in a while; None: as many as there are."""
        found = self.defaults.limits
        return TaskLimits(self.name, self.function, self.codec, found) if found else None

    @cached_property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self.function)

    @cached_property
    def executor(self) -> str:
        """Where it runs: as told, else by the kind of function."""
        return self.settings.executor or ("async" if is_async(self.function) else "thread")

    @cached_property
    def stored_options(self) -> str | None:
        """What a worker must know of `.options()` that its own copy of the decorator does not say."""
        kept: dict[str, object] = {}
        if "timeout" in self.overrides and (self.settings.timeout or self.defaults.timeout):
            kept["timeout"] = self.settings.timeout
        if self.overrides.get("executor") is not None:
            kept["executor"] = self.settings.executor
        if "retries" in self.overrides:
            kept["retries"] = self.settings.retries.to_dict()
        return dumps(kept) if kept else None

    def may_replace(self, known: Task[Any, Any]) -> bool:
        """It is the other one declared again, as when a module is loaded twice."""
        made_apart = not self.defaults.name and bound_apart(known.function, self.function)
        return same(known.function, self.function) and not made_apart

    def _jobs(self, calls: Calls) -> Series:
        if self.settings.key is not None:
            raise ArgumentError(
                self.name, "one key cannot name many jobs: enqueue them one by one, each with its key"
            )
        wanted = listed(self.name, "enqueue_many", calls)
        encoded = (self._encoded(*split(self.name, "enqueue_many", call)) for call in wanted)
        payloads = Payloads(encoded, len(wanted))
        if self.settings.connection is not None or not self.host.database.dialect.sends_ahead:
            # All of them before the first is written: what is wrong must leave nothing in the caller's transaction.
            _ = payloads[:]
        return Series(self._job("", ""), new_ids(len(wanted)), payloads)

    def _encoded(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        return self.codec.encode_arguments(args, kwargs, limit=self.host.settings.payload_limit)

    def _job(self, id: str, payload: str) -> NewJob:
        refuse_to_act(self.name, "enqueue")
        if self.overrides:
            refuse_step_options(self.name, "to a job of its own", self.overrides)
        settings = self.settings
        return NewJob(
            id,
            self.name,
            settings.queue,
            settings.priority,
            payload,
            self.stored_options,
            settings.max_crashes,
            settings.delay,
            settings.at,
            settings.key,
        )

    def __get__(self, instance: object, owner: type | None = None) -> Task[P, R]:
        if instance is not None and not isinstance(self.function, staticmethod):
            raise DefinitionError(f"{self.name} is a method; a task must be a plain function, without self")
        return self

    def __reduce__(self) -> str:
        """Pickled by name, as the function would be: for callers who hand it to a process of their own."""
        return self.function.__qualname__

    def __repr__(self) -> str:
        return f"<task {self.name}>"


def listed(name: str, verb: str, calls: Calls) -> list[Sequence[Any] | Mapping[str, Any]]:
    """Many calls, each of which is still to be looked at."""
    if not isinstance(calls, Iterable):
        raise ArgumentError(name, f"{verb} takes a list, such as [(1,), (2,)]; got {calls!r}")
    return list(calls)


def split(
    name: str, verb: str, call: Sequence[Any] | Mapping[str, Any]
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """One of many calls, as positional and keyword arguments."""
    if isinstance(call, tuple | list):
        return call, {}
    if isinstance(call, Mapping):
        return (), call
    raise ArgumentError(
        name, f"{verb} takes a tuple or a mapping for each call, such as [(1,), (2,)]; got {call!r}"
    )
