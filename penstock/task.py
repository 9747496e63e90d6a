"""Tasks: functions that can be enqueued. A plain call stays a plain call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack, overload

from penstock.app_services import AppServices
from penstock.context import refuse_to_act
from penstock.errors import ArgumentError, ConfigurationError, DefinitionError
from penstock.job import Job
from penstock.middleware import Middleware, Publication, publishing
from penstock.queue.jobs import JobBatch, LazyPayloads, NewJob, with_headers
from penstock.step_calls import StepCalls, Stream, Waited
from penstock.task_options import (
    FOR_ALL_JOBS,
    TaskOptions,
    kept_options,
    overridden,
    read_options,
    refuse_step_options,
)
from penstock.values.fork_safety import cached_property
from penstock.values.function_identity import both_written, bound_apart, qualified_name, same
from penstock.values.ids import id_to_make, new_ids
from penstock.values.limits import TaskLimits
from penstock.values.parse import NAME_LENGTH
from penstock.values.typed_json.annotations import is_async
from penstock.values.typed_json.json_text import dumps
from penstock.values.typed_json.signature import Signature

if TYPE_CHECKING:
    from penstock.schedules.schedule import Schedule
    from penstock.values.option_types import ScheduleKeywords, TaskOptionKeywords

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
V = TypeVar("V")
Calls = Iterable[Sequence[Any] | Mapping[str, Any]]


class Task(StepCalls[P, R]):
    """A function under a stable name, with the options its jobs run by."""

    def __init__(
        self,
        host: AppServices,
        function: Callable[P, R],
        options: TaskOptions,
        overrides: Mapping[str, object] | None = None,
    ) -> None:
        if not callable(function):
            raise DefinitionError(f"@app.task decorates functions; {function!r} is none")
        super().__init__(function)
        self.host = host
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

    def options(self, **overrides: Unpack[TaskOptionKeywords]) -> Task[P, R]:
        """The same task with other options, for this enqueue or this step."""
        for option in FOR_ALL_JOBS:
            if option in overrides:
                raise ConfigurationError(
                    f"{self.name}: {option}= belongs to @app.task(...): it holds for all its jobs"
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
    def enqueue(self: Task[P, Waited[V]], /, *args: P.args, **kwargs: P.kwargs) -> Job[V]: ...

    @overload
    def enqueue(self: Task[P, Stream[V]], /, *args: P.args, **kwargs: P.kwargs) -> Job[list[V]]: ...

    @overload
    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]: ...

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[Any]:
        """Write a job for this call; durable from the moment this returns."""
        job = self._job(id_to_make(), self._encoded(args, kwargs))
        (id,) = self._written([job])
        return Job(self.host, id, self)

    @overload
    async def enqueue_async(self: Task[P, Waited[V]], /, *args: P.args, **kwargs: P.kwargs) -> Job[V]: ...

    @overload
    async def enqueue_async(
        self: Task[P, Stream[V]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Job[list[V]]: ...

    @overload
    async def enqueue_async(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]: ...

    async def enqueue_async(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[Any]:
        """`enqueue` for async callers."""
        job = self._job(id_to_make(), self._encoded(args, kwargs))
        (id,) = await self._written_async([job])
        return Job(self.host, id, self)

    @overload
    def enqueue_many(self: Task[P, Waited[V]], calls: Calls) -> list[Job[V]]: ...

    @overload
    def enqueue_many(self: Task[P, Stream[V]], calls: Calls) -> list[Job[list[V]]]: ...

    @overload
    def enqueue_many(self, calls: Calls) -> list[Job[R]]: ...

    def enqueue_many(self, calls: Calls) -> list[Job[Any]]:
        """Write a job for each call: a tuple of arguments, or a mapping of keyword arguments. All or none."""
        ids = self._written(self._jobs(calls))
        return [Job(self.host, id, self) for id in ids]

    @overload
    async def enqueue_many_async(self: Task[P, Waited[V]], calls: Calls) -> list[Job[V]]: ...

    @overload
    async def enqueue_many_async(self: Task[P, Stream[V]], calls: Calls) -> list[Job[list[V]]]: ...

    @overload
    async def enqueue_many_async(self, calls: Calls) -> list[Job[R]]: ...

    async def enqueue_many_async(self, calls: Calls) -> list[Job[Any]]:
        """`enqueue_many` for async callers."""
        ids = await self._written_async(self._jobs(calls))
        return [Job(self.host, id, self) for id in ids]

    def _written(self, jobs: Sequence[NewJob]) -> Sequence[str]:
        connection = self.settings.connection
        if not self.host.enqueue_middlewares:
            return self.host.submit(jobs, connection)
        with self._publishing(jobs) as publication:
            publication.ids = self.host.submit(with_headers(jobs, publication.headers), connection)
        return publication.ids

    async def _written_async(self, jobs: Sequence[NewJob]) -> Sequence[str]:
        connection = self.settings.connection
        if not self.host.enqueue_middlewares:
            return await self.host.submit_async(jobs, connection)
        with self._publishing(jobs) as publication:
            headed = with_headers(jobs, publication.headers)
            publication.ids = await self.host.submit_async(headed, connection)
        return publication.ids

    def _publishing(self, jobs: Sequence[NewJob]) -> AbstractContextManager[Publication]:
        settings = self.settings
        within = settings.connection is not None
        publication = Publication("job", self.name, len(jobs), queue=settings.queue, in_transaction=within)
        return publishing(self.host.enqueue_middlewares, publication)

    def schedule(self, cron: str | None = None, /, **given: Unpack[ScheduleKeywords]) -> Schedule:
        """Declare that it is enqueued again and again: `report.schedule("0 3 * * *", tz="Europe/Berlin")`.

        Workers bring it into the database when they start. The schedule, to look at and to steer.
        """
        return self.host.declare_schedule(self, cron, dict(given))

    def drafted(self, call: tuple[Sequence[Any], Mapping[str, Any]] | None) -> NewJob:
        """The job that this call would enqueue; without a call, a job of this task without arguments.

        Nothing is written.
        """
        return self._job("", "" if call is None else self._encoded(*call))

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

    @property
    def middleware(self) -> tuple[Middleware, ...]:
        """The middleware around its handler: the app's, and inside that its own."""
        return self.host.middlewares + self.defaults.middleware

    @cached_property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self.function)

    @cached_property
    def executor(self) -> str:
        """Where it runs: as told, else by the kind of function."""
        return self.settings.executor or ("async" if is_async(self.function) else "thread")

    @cached_property
    def stored_options(self) -> str | None:
        """The values of `.options()` that a worker's own copy of the decorator does not have, as JSON."""
        kept: dict[str, object] = {}
        if "timeout" in self.overrides and (self.settings.timeout or self.defaults.timeout):
            kept["timeout"] = self.settings.timeout
        if self.overrides.get("executor") is not None:
            kept["executor"] = self.settings.executor
        if "retries" in self.overrides:
            kept["retries"] = self.settings.retries.to_dict()
        kept |= kept_options(self.settings)
        return dumps(kept) if kept else None

    def may_replace(self, known: Task[Any, Any]) -> bool:
        """True if this is the known task declared again, as when a module is loaded twice."""
        old, new = known.function, self.function
        made_apart = not self.defaults.name and bound_apart(old, new)
        return same(old, new) and not made_apart and not both_written(old, new)

    def _jobs(self, calls: Calls) -> JobBatch:
        if self.settings.key is not None:
            raise ArgumentError(
                self.name, "one key cannot name many jobs: enqueue them one by one, each with its key"
            )
        wanted = listed(self.name, "enqueue_many", calls)
        encoded = (self._encoded(*split(self.name, "enqueue_many", call)) for call in wanted)
        payloads = LazyPayloads(encoded, len(wanted))
        if self.settings.connection is not None or not self.host.database.dialect.pipelines_statements:
            # All calls are checked before the first job is written: a wrong call must leave nothing in the caller's
            # transaction.
            _ = payloads[:]
        return JobBatch(self._job("", ""), new_ids(len(wanted)), payloads)

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
            labels=settings.labels,
            unique=settings.unique_rule(self.name),
            aliases=self.defaults.aliases if settings.key is not None else (),
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
    """The list of calls; each call is checked later."""
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
