"""Pipelines as their users have them: a blueprint that belongs to an app and can be triggered."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack, cast, overload

from typing_extensions import ParamSpec, TypeVar

from penstock.app_services import AppServices
from penstock.context import refuse_to_act
from penstock.errors import ConfigurationError, DefinitionError
from penstock.middleware import Publication, publishing
from penstock.pipelines.advance.state import RunHeader
from penstock.pipelines.define.blueprint import Blueprint
from penstock.pipelines.define.fluent import FlowBlueprint
from penstock.pipelines.define.graph import GraphBlueprint
from penstock.pipelines.define.pipeline_options import PipelineSettings, stored_name
from penstock.pipelines.define.validation import check_widths, refuse_circles
from penstock.pipelines.lifecycle.start import NewRun
from penstock.pipelines.model.definition import Definition
from penstock.pipelines.model.wiring import wiring_of
from penstock.pipelines.run import Run
from penstock.task import Calls, listed, split
from penstock.task_options import read_options
from penstock.values.fork_safety import cached_property
from penstock.values.ids import id_to_make
from penstock.values.parse import nearest
from penstock.values.plain import counted
from penstock.values.typed_json.json_text import decode as natural_value
from penstock.values.typed_json.json_text import dumps, limited, loads
from penstock.values.typed_json.parameters import KEYWORDS, REST
from penstock.values.typed_json.signature import Signature

if TYPE_CHECKING:
    from penstock.pipelines.define.blueprint import TaskOrPipeline
    from penstock.pipelines.define.fluent import Flow
    from penstock.pipelines.define.graph import MISSING
    from penstock.schedules.schedule import Schedule
    from penstock.step_calls import OneArgument, StepValue, Stream, Waited
    from penstock.task import Task
    from penstock.values.option_types import PipelineOptionKeywords, ScheduleKeywords

A = TypeVar("A")
V = TypeVar("V")
Q = ParamSpec("Q")
P = ParamSpec("P", default=...)
R = TypeVar("R", covariant=True, default=Any)
TRIGGER_OPTIONS = ("key", "delay", "at", "connection", "labels")


class Pipeline(Blueprint, Generic[P, R]):
    """A pipeline in either spelling: its definition, and its runs."""

    host: AppServices
    settings: PipelineSettings

    @property
    def description(self) -> str:
        """The purpose of the pipeline in a few words: as given, or the first paragraph of its docstring."""
        own = self.__dict__.get("__doc__") or ""
        given = self.settings.description
        return given if given is not None else " ".join(own.strip().partition("\n\n")[0].split())

    @property
    @abstractmethod
    def codec(self) -> Signature:
        """The arguments of a run, as typed JSON."""

    if TYPE_CHECKING:

        def __call__(self, /, *args: Any, **kwargs: Any) -> StepValue[R]: ...

        def map(self, /, *args: Any, **kwargs: Any) -> StepValue[R]: ...

        def options(self, **overrides: Unpack[PipelineOptionKeywords]) -> Self: ...  # type: ignore[override]

    def build(self) -> Definition:
        """The definition; also refuses what the app does not allow."""
        definition = super().build()  # type: ignore[safe-super]
        most = self.host.settings.max_fanout
        if definition.max_fanout is None and most is not None:
            try:
                check_widths(wiring_of(definition.text), most)
            except DefinitionError as error:
                raise DefinitionError(f"pipeline {self.name!r}: {error}") from None
        return definition

    def trigger(self, /, *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """Start a run; durable from the moment this returns."""
        new, connection = self._new_run(args, kwargs)
        (id,) = self._written([new], connection)
        return self._handle(new, id)

    async def trigger_async(self, /, *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """`trigger` for async callers."""
        new, connection = self._new_run(args, kwargs)
        (id,) = await self._written_async([new], connection)
        return self._handle(new, id)

    def _written(self, news: Sequence[NewRun], connection: object | None) -> Sequence[str]:
        if not self.host.enqueue_middlewares:
            return self.host.engine.trigger_many(news, connection)
        with self._publishing(news, connection) as publication:
            headed = [new._replace(headers=publication.headers) for new in news]
            publication.ids = self.host.engine.trigger_many(headed, connection)
        return publication.ids

    async def _written_async(self, news: Sequence[NewRun], connection: object | None) -> Sequence[str]:
        if not self.host.enqueue_middlewares:
            return await self.host.engine.trigger_many_async(news, connection)
        with self._publishing(news, connection) as publication:
            headed = [new._replace(headers=publication.headers) for new in news]
            publication.ids = await self.host.engine.trigger_many_async(headed, connection)
        return publication.ids

    def _publishing(
        self, news: Sequence[NewRun], connection: object | None
    ) -> AbstractContextManager[Publication]:
        publication = Publication("run", self.name, len(news), in_transaction=connection is not None)
        return publishing(self.host.enqueue_middlewares, publication)

    def _handle(self, new: NewRun, id: str) -> Run[R]:
        """The handle of the new run, or of the run that had its key before."""
        made = RunHeader(new.definition.name, new.definition.hash, new.args)
        return Run(self.host, id, made if id == new.id else None)

    def trigger_many(self, calls: Calls, keys: Sequence[str | None] | None = None) -> list[Run[R]]:
        """Start a run for each call: a tuple of arguments, or a mapping of keyword arguments. All or none.

        `keys`: one for each; a run that has its key already is returned instead of a new one.
        """
        news, connection = self._new_runs(calls, keys)
        ids = self._written(news, connection) if news else []
        return [Run(self.host, id) for id in ids]

    async def trigger_many_async(
        self, calls: Calls, keys: Sequence[str | None] | None = None
    ) -> list[Run[R]]:
        """`trigger_many` for async callers."""
        news, connection = self._new_runs(calls, keys)
        ids = await self._written_async(news, connection) if news else []
        return [Run(self.host, id) for id in ids]

    def schedule(self, cron: str | None = None, /, **given: Unpack[ScheduleKeywords]) -> Schedule:
        """Declare that it is triggered again and again: `enrich.schedule("@hourly", args=(30,))`.

        Workers bring it into the database when they start. The schedule, to look at and to steer.
        """
        return self.host.declare_schedule(self, cron, dict(given))

    def drafted(self, call: tuple[Sequence[Any], Mapping[str, Any]] | None) -> NewRun:
        """The run that this call would start; without a call, a run without arguments. Nothing is written."""
        return self._drafted("" if call is None else self.encode(*call))[0]

    @cached_property
    def ending(self) -> Definition:
        """The definition; refuses pipelines that start each other without end."""
        refuse_circles(self.definition, self.host.find_pipeline)
        return self.definition

    @property
    def runnable(self) -> Definition:
        """The definition; refuses reminders with a token if the app has no secret."""
        definition = self.ending
        if definition.signs and self.host.settings.secret is None:
            raise ConfigurationError(
                f"a reminder of pipeline {self.name!r} takes a token, and there is no secret to sign it with: set "
                "Penstock(..., secret=...) or PENSTOCK_SECRET, or let the reminder do without `token`"
            )
        return definition

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """The arguments of a run as stored: every parameter by name, defaults included."""
        return self._stored(cast("dict[str, object]", loads(self.codec.encode_arguments(args, kwargs))))

    def _stored(self, given: Mapping[str, object]) -> str:
        raw = {**given, **{name: value for name, value in self.defaults().items() if name not in given}}
        return limited(dumps(raw), self.host.settings.payload_limit, f"the argument list of {self.name}")

    def decode(self, text: str) -> dict[str, Any]:
        """The arguments of a run, each as its parameter's annotation says."""
        raw = cast("dict[str, object]", loads(text))
        named = {name: raw[name] for name in self.codec.parameters if name in raw}
        natural = cast("dict[str, Any]", natural_value(text))
        return natural | {name: self.codec.decode_value_for(name, value) for name, value in named.items()}

    def defaults(self) -> dict[str, object]:
        """The defaults of its parameters, as raw values; `*args` and `**kwargs` are empty."""
        parameters = self.signature.parameters.values()
        given = {each.name: each.default for each in parameters if each.default is not each.empty}
        raw = {name: loads(self.codec.encode_value_for(name, value)) for name, value in given.items()}
        empty: dict[str, object] = {REST: [], KEYWORDS: {}}
        return raw | {name: empty[name] for each in parameters if (name := stored_name(each)) in empty}

    def encode_raw(self, args: Sequence[object], kwargs: Mapping[str, object]) -> str:
        """The same from raw values, such as outputs of other steps."""
        return self._stored(self.codec.restated(args, kwargs))

    def _new_run(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[NewRun, object | None]:
        refuse_to_act(self.name, "trigger")
        return self._drafted(self.encode(args, kwargs))

    def _drafted(self, args: str) -> tuple[NewRun, object | None]:
        for name in self.overrides:
            if name not in TRIGGER_OPTIONS:
                raise ConfigurationError(
                    f"{self.name}.trigger(): there is no option {name!r}; options of steps are given where the "
                    f"step is{nearest(name, TRIGGER_OPTIONS)}"
                )
        given = read_options(self.name, self.overrides)
        new = NewRun(
            id_to_make(),
            self.runnable,
            args,
            cast("str | None", given.get("key")),
            cast(float, given.get("delay") or 0.0),
            due_at=cast("int | None", given.get("at")),
            labels=cast("tuple[str, ...]", given.get("labels", ())),
        )
        return new, given.get("connection")

    def _new_runs(
        self, calls: Calls, keys: Sequence[str | None] | None
    ) -> tuple[list[NewRun], object | None]:
        if "key" in self.overrides:
            raise ConfigurationError(
                f"{self.name}: one key cannot name many runs: trigger_many(calls, keys=[...])"
            )
        given = [split(self.name, "trigger_many", call) for call in listed(self.name, "trigger_many", calls)]
        if keys is not None and not isinstance(keys, list | tuple):
            raise ConfigurationError(
                f"{self.name}.trigger_many(keys={keys!r}): give a list, a key for each call"
            )
        names = [None] * len(given) if keys is None else list(keys)
        if len(names) != len(given):
            raise ConfigurationError(
                f"{self.name}.trigger_many(): {counted(len(given), 'call')}, but {counted(len(names), 'key')}"
            )
        news, connection = [], None
        for (args, kwargs), key in zip(given, names, strict=True):
            chosen = self if key is None else self.options(key=key)
            new, connection = chosen._new_run(args, kwargs)
            news.append(new)
        return news, connection

    def __repr__(self) -> str:
        return f"<pipeline {self.name}>"


class GraphPipeline(Pipeline[P, R], GraphBlueprint):
    """A pipeline described by a function."""

    def __init__(
        self, host: AppServices, function: Callable[..., Any], name: str, settings: PipelineSettings
    ) -> None:
        super().__init__(function, name, settings)
        self.host = host
        self.__doc__ = inspect.getdoc(function)

    @cached_property
    def codec(self) -> Signature:
        return Signature(self.function, self.name, returns=False)


class FlowPipeline(Pipeline[P, R], FlowBlueprint):
    """A pipeline described by verbs; each verb returns a new flow, and the app knows the latest."""

    def __init__(self, host: AppServices, name: str, settings: PipelineSettings) -> None:
        super().__init__(name, settings)
        self.host = host

    @property
    def codec(self) -> Signature:
        return cast(Signature, cast(Any, self.first_step).codec)

    def _copy(self) -> Self:
        same = super()._copy()
        self.host.declare_pipeline(same)
        return same

    if TYPE_CHECKING:  # The verbs by the types of the values that they pass on; `define.fluent` has them.

        @overload  # type: ignore[override]
        def start(self, task: Task[Q, Waited[V]]) -> FlowPipeline[Q, V]: ...

        @overload
        def start(self, task: Task[Q, Stream[V]]) -> FlowPipeline[Q, list[V]]: ...

        @overload
        def start(self, task: Task[Q, V]) -> FlowPipeline[Q, V]: ...

        @overload
        def start(self, task: Pipeline[Q, V]) -> FlowPipeline[Q, V]: ...

        def start(self, task: Any) -> Any: ...

        @overload  # type: ignore[override]
        def chain(self, task: OneArgument[R, Waited[V]]) -> FlowPipeline[P, V]: ...

        @overload
        def chain(self, task: OneArgument[R, Stream[V]]) -> FlowPipeline[P, list[V]]: ...

        @overload
        def chain(self, task: OneArgument[R, V]) -> FlowPipeline[P, V]: ...

        @overload
        def chain(self, task: Pipeline[..., V]) -> FlowPipeline[P, V]: ...

        def chain(self, task: Any) -> Any: ...

        @overload  # type: ignore[override]
        def expand(
            self: FlowPipeline[P, Mapping[Any, Any]], task: Task[..., Waited[V]]
        ) -> FlowPipeline[P, V]: ...

        @overload
        def expand(self: FlowPipeline[P, Mapping[Any, Any]], task: Task[..., V]) -> FlowPipeline[P, V]: ...

        @overload
        def expand(
            self: FlowPipeline[P, Iterable[A]], task: OneArgument[A, Waited[V]]
        ) -> FlowPipeline[P, V]: ...

        @overload
        def expand(
            self: FlowPipeline[P, Iterable[A]], task: OneArgument[A, Stream[V]]
        ) -> FlowPipeline[P, list[V]]: ...

        @overload
        def expand(self: FlowPipeline[P, Iterable[A]], task: OneArgument[A, V]) -> FlowPipeline[P, V]: ...

        @overload
        def expand(self, task: Pipeline[..., V]) -> FlowPipeline[P, V]: ...

        @overload
        def expand(self, task: Flow) -> FlowPipeline[P, Any]: ...

        def expand(self, task: Any) -> Any: ...

        @overload  # type: ignore[override]
        def collapse(self, task: OneArgument[list[R], Waited[V]]) -> FlowPipeline[P, V]: ...

        @overload
        def collapse(self, task: OneArgument[list[R], Stream[V]]) -> FlowPipeline[P, list[V]]: ...

        @overload
        def collapse(self, task: OneArgument[list[R], V]) -> FlowPipeline[P, V]: ...

        @overload
        def collapse(self, task: OneArgument[Iterator[R], Waited[V]]) -> FlowPipeline[P, V]: ...

        @overload
        def collapse(self, task: OneArgument[Iterator[R], V]) -> FlowPipeline[P, V]: ...

        @overload
        def collapse(self, task: Pipeline[..., V]) -> FlowPipeline[P, V]: ...

        def collapse(self, task: Any) -> Any: ...

        @overload  # type: ignore[override]
        def combine(self, task: Task[..., Waited[V]]) -> FlowPipeline[P, V]: ...

        @overload
        def combine(self, task: Task[..., Stream[V]]) -> FlowPipeline[P, list[V]]: ...

        @overload
        def combine(self, task: Task[..., V] | Pipeline[..., V]) -> FlowPipeline[P, V]: ...

        def combine(self, task: Any) -> Any: ...

        @overload  # type: ignore[override]
        def converge(self, task: Task[..., Waited[V]]) -> FlowPipeline[P, V]: ...

        @overload
        def converge(self, task: Task[..., Stream[V]]) -> FlowPipeline[P, list[V]]: ...

        @overload
        def converge(self, task: Task[..., V] | Pipeline[..., V]) -> FlowPipeline[P, V]: ...

        def converge(self, task: Any) -> Any: ...

        def divide(self, *branches: TaskOrPipeline | Flow) -> FlowPipeline[P, Any]: ...

        def divert(
            self, arms: Mapping[Any, TaskOrPipeline | Flow | None], otherwise: object = MISSING
        ) -> FlowPipeline[P, Any]: ...

        def wait_for(
            self,
            signal: str,
            *,
            timeout: float | None = None,
            default: object = MISSING,
            remind: TaskOrPipeline | None = None,
            remind_every: float | None = None,
            key: str | None = None,
        ) -> FlowPipeline[P, Any]: ...
