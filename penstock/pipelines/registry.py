"""The part of an app that declares pipelines and finds them by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

from penstock.app_services import AppServices
from penstock.errors import DefinitionError
from penstock.pipelines import pipeline as pipes
from penstock.pipelines import run, run_control
from penstock.pipelines.advance import read
from penstock.pipelines.define import pipeline_options
from penstock.pipelines.define.other_apps import check_reach
from penstock.pipelines.engine import Engine
from penstock.pipelines.lifecycle import reminders
from penstock.pipelines.pipeline import FlowPipeline, GraphPipeline, Pipeline
from penstock.pipelines.run import Run
from penstock.pipelines.run_control import Following
from penstock.task import Task
from penstock.values import parse
from penstock.values.function_identity import both_written, qualified_name, same
from penstock.values.ids import checked_id
from penstock.values.parse import NAME_LENGTH, checked
from penstock.values.typed_json.json_text import encode

if TYPE_CHECKING:
    from penstock.step_calls import StepValue
    from penstock.values.option_types import FlowKeywords, PipelineKeywords

P = ParamSpec("P")
V = TypeVar("V")
S = TypeVar("S", bound=str | float | None)
"""The type of a step's value for a type checker, if the step is called with parameters of the run only."""


class Pipelines:
    """An app's pipelines."""

    tasks: dict[str, Any]

    @property
    def _host(self) -> AppServices:
        """The whole app, of which this is a part."""
        return cast("AppServices", self)

    def _open_pipelines(self) -> None:
        self.pipelines: dict[str, Pipeline] = {}
        self.engine = Engine(self._host)

    @overload
    def pipeline(self, function: Callable[P, StepValue[V]], /) -> GraphPipeline[P, V]: ...

    @overload
    def pipeline(self, function: Callable[P, S], /) -> GraphPipeline[P, S]: ...

    @overload
    def pipeline(self, function: Callable[P, Any], /) -> GraphPipeline[P, Any]: ...

    @overload
    def pipeline(self, /, **given: Unpack[PipelineKeywords]) -> PipelineDecorator: ...

    def pipeline(self, function: Callable[..., Any] | None = None, /, **given: Any) -> Any:
        """Declare a pipeline by a function that describes it: `@app.pipeline`, `@app.pipeline(max_fanout=100)`."""

        def declare(function: Callable[..., Any]) -> GraphPipeline:
            options = dict(given)
            check_reach(self, list(options.values()))
            own = options.pop("name", None)
            name = qualified_name(function) if own is None else own
            check_name(name)
            made = pipes.GraphPipeline(
                self._host, function, name, pipeline_options.pipeline_settings(name, options)
            )
            self.declare_pipeline(made)
            return made

        return declare if function is None else declare(function)

    def flow(self, name: str, /, **given: Unpack[FlowKeywords]) -> FlowPipeline:
        """Declare a pipeline verb by verb: `app.flow("enrich").start(a).chain(b)`."""
        check_name(name)
        check_reach(self, list(given.values()))
        made = pipes.FlowPipeline(self._host, name, pipeline_options.pipeline_settings(name, given))
        self.declare_pipeline(made)
        return made

    def declare_pipeline(self, pipeline: Pipeline) -> None:
        """Register a pipeline by its name, by which child runs find it. Each verb of a flow registers it again."""
        known = self.pipelines.get(pipeline.name)
        if pipeline.name in self.tasks:
            raise DefinitionError(f"{pipeline.name!r} is the name of a task: give the pipeline another name=")
        if known is not None and not _may_replace(pipeline, known):
            raise DefinitionError(
                f"there are two pipelines named {pipeline.name!r}; give one of them another name="
            )
        self.pipelines[pipeline.name] = pipeline

    def as_pipeline(self, target: Any) -> Pipeline:
        """A pipeline; a task by itself is one of a single step."""
        if isinstance(target, pipes.Pipeline):
            check_reach(self, target)
            return target
        if isinstance(target, Task):
            name = f"then.{target.name}"
            known = self.pipelines.get(name)
            first = known.first_step if isinstance(known, pipes.FlowPipeline) else None
            if known is not None and first is not None and first.overrides == target.overrides:
                return known
            return self.flow(name).start(target)
        raise DefinitionError(f"{target!r} is neither a pipeline nor a task")

    def run(self, id: str) -> Run:
        """The run with this id."""
        return run.Run(self._host, checked_id(id))

    async def run_async(self, id: str) -> Run:
        return self.run(id)

    def runs(
        self,
        pipeline: Any = None,
        status: str | None = None,
        key: str | None = None,
        limit: int = 100,
        label: str | None = None,
    ) -> list[Run]:
        """Runs, the newest first."""
        host, name = self._host, getattr(pipeline, "name", pipeline)
        parse.words(pipeline=name, key=key, label=label)
        checked("limit", limit, lambda given: parse.whole(given, 0))
        host.prepare()
        found = host.database.read(read.ids_of_runs, name, status, key, limit, label)
        return [run.Run(host, id) for id in found]

    async def runs_async(
        self,
        pipeline: Any = None,
        status: str | None = None,
        key: str | None = None,
        limit: int = 100,
        label: str | None = None,
    ) -> list[Run]:
        return await self._host.bridge.run(self.runs, pipeline, status, key, limit, label)

    def after(self, runs: Iterable[Run]) -> Following:
        """Chain runs after several runs: `app.after([one, other]).then(report)` starts when all have succeeded."""
        several = list(runs)
        if not several:
            raise DefinitionError("app.after(...): give the runs that are to be followed")
        return run_control.Following(self._host, several)

    def resume(self, token: str, value: object = None) -> Run:
        """Give the signal that a token allows (see `run.token`), in the name of the actor (see `app.acting`); its run.

        Raises `TokenForged`, `TokenExpired`, `TokenSpent` or `RunOver`, and then nothing is changed.
        """
        host = self._host
        text = encode(value, limit=host.settings.payload_limit, name="the value given to resume()")
        use = reminders.Use(self.engine.engine_state, token, text)
        host.prepare()
        resumed = run.Run(host, use.ticket.run)
        with run.signalling(host, resumed.id, use.ticket.signal) as publication:
            use.headers = publication.headers
            host.database.in_transaction(use)
            resumed.delivered(use.ticket.signal, use.ticket.path)
        return resumed

    async def resume_async(self, token: str, value: object = None) -> Run:
        return await self._host.bridge.run(self.resume, token, value)

    def next_chore(self) -> float | None:
        """Seconds until the next chore of a run is due, as far as is known."""
        return self.engine.chores.next_due

    def find_pipeline(self, name: str) -> Pipeline | None:
        return self.pipelines.get(name)


def check_name(name: object) -> None:
    """Refuse a name that cannot be stored."""
    try:
        if not parse.text(name, NAME_LENGTH).strip():
            raise ValueError("give it a text")
    except ValueError as error:
        raise DefinitionError(f"{name!r} is no name for a pipeline: {error}") from None


def _may_replace(new: Pipeline, known: Pipeline) -> bool:
    """True if the new pipeline replaces the known one: a flow with one more verb, or a function that was defined
    again."""
    if isinstance(new, pipes.GraphPipeline) and isinstance(known, pipes.GraphPipeline):
        return same(known.function, new.function) and not both_written(known.function, new.function)
    return isinstance(new, pipes.FlowPipeline) and isinstance(known, pipes.FlowPipeline)


class PipelineDecorator(Protocol):
    """`@app.pipeline(...)`, for type checkers: the result of a run has the type of the value that is returned."""

    @overload
    def __call__(self, function: Callable[P, StepValue[V]], /) -> GraphPipeline[P, V]: ...

    @overload
    def __call__(self, function: Callable[P, S], /) -> GraphPipeline[P, S]: ...

    @overload
    def __call__(self, function: Callable[P, Any], /) -> GraphPipeline[P, Any]: ...
