"""Options of a whole pipeline: its failure strategy, its limits, and its callbacks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.errors import DefinitionError
from penstock.pipelines.define.blueprint import Blueprint, Callee
from penstock.pipelines.define.builder import Builder
from penstock.pipelines.define.step_options import callback_options, from_zero, option, strategy
from penstock.pipelines.define.validation import check, check_callback
from penstock.pipelines.model.definition import Callback, Definition, Running, Strategy, payload
from penstock.pipelines.model.doors import needs_doors
from penstock.pipelines.model.expressions import Expr
from penstock.pipelines.plan.plan import events_of
from penstock.values import parse
from penstock.values.status import RunStatus
from penstock.values.typed_json.parameters import KEYWORDS, REST

EVENTS = ("on_complete", "on_success", "on_failure", "on_halt")
_ID = "00000000-0000-7000-8000-000000000000"
REASONS: tuple[list[str], ...] = ([], ["step_failed"])
CALLBACK_ARGUMENTS: Mapping[str, Sequence[Mapping[str, object]]] = {
    event: [
        {"run_id": _ID, "id": _ID, "pipeline": "approval", "status": status.value, "reasons": reasons}
        for status in RunStatus
        for reasons in REASONS
        if event in events_of(status)
    ]
    for event in EVENTS
}
"""The arguments that a callback may take, by name: examples of each."""


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """Settings that `@app.pipeline(...)` and the verbs of a flow make. `callbacks` are tasks by event."""

    on_failure: Strategy = Strategy.HALT
    max_fanout: int | None = None
    deadline: float | None = None
    callbacks: tuple[tuple[str, tuple[Callback, ...]], ...] = ()
    max_steps: int | None = None
    halt_running: Running = Running.FINISH
    max_running: int | None = None
    description: str | None = None
    """For people who look at its runs. Not part of the definition: another text makes no new definition."""

    def calling(self, pipeline: str, event: str, tasks: Sequence[object]) -> PipelineSettings:
        """The same settings with more tasks for an event."""
        known = dict(self.callbacks)
        found = [*known.get(event, ()), *[_callback(pipeline, event, task) for task in tasks]]
        known[event] = tuple({callback.task: callback for callback in found}.values())
        return replace(self, callbacks=tuple(sorted(known.items())))

    def failing(self, pipeline: str, given: object) -> PipelineSettings:
        """`on_failure` takes the strategy, as a word, and tasks that hear of a failure."""
        settings = self
        for item in given if isinstance(given, (list, tuple)) else [given]:
            if isinstance(item, str):
                settings = replace(settings, on_failure=strategy(f"pipeline {pipeline!r}", item))
            else:
                settings = settings.calling(pipeline, "on_failure", [item])
        return settings


def _description(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("give a text")
    return value.strip()


READERS: Mapping[str, Callable[[object], Any]] = {
    "max_fanout": from_zero,
    "max_steps": lambda value: parse.whole(value, 1),
    "max_running": lambda value: parse.whole(value, 1),
    "deadline": parse.seconds,
    "halt_running": lambda value: Running(parse.one_of(value, Running)),
    "description": _description,
}
"""By option, how its value is read."""


def pipeline_settings(pipeline: str, given: Mapping[str, object]) -> PipelineSettings:
    """Check and sort the arguments of `@app.pipeline`."""
    settings, where = PipelineSettings(), f"pipeline {pipeline!r}"
    for name, value in given.items():
        if value is None:
            continue
        match name:
            case "on_failure":
                settings = settings.failing(pipeline, value)
            case "on_complete" | "on_success" | "on_halt":
                tasks = value if isinstance(value, (list, tuple)) else [value]
                settings = settings.calling(pipeline, name, tasks)
            case _ if name in READERS:
                changes: dict[str, Any] = {name: option(where, name, value, READERS[name])}
                settings = replace(settings, **changes)
            case _:
                raise DefinitionError(f"{where}: {parse.no_option(name, [*EVENTS, *READERS])}")
    return settings


def finish(
    builder: Builder, signature: inspect.Signature, result: Expr, settings: PipelineSettings
) -> Definition:
    """The definition that was built, validated completely."""
    nodes, value = builder.nodes(result)
    definition = Definition(
        name=builder.pipeline,
        params=tuple([stored_name(parameter) for parameter in signature.parameters.values()]),
        nodes=nodes,
        result=value,
        on_failure=settings.on_failure,
        max_fanout=settings.max_fanout,
        deadline=settings.deadline,
        callbacks=settings.callbacks,
        max_steps=settings.max_steps,
        halt_running=settings.halt_running,
        max_running=settings.max_running,
    )
    check(definition)
    _check_callbacks(builder, settings)
    return replace(definition, doors=True) if needs_doors(definition) else definition


def stored_name(parameter: inspect.Parameter) -> str:
    """The name under which a run keeps what it was given for a parameter."""
    if parameter.kind is parameter.VAR_POSITIONAL:
        return REST
    return KEYWORDS if parameter.kind is parameter.VAR_KEYWORD else parameter.name


def plain_parameters(pipeline: str, signature: inspect.Signature) -> list[inspect.Parameter]:
    """The parameters of a run; they must have names, because steps refer to them."""
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise DefinitionError(
                f"pipeline {pipeline!r}: the parameters of a run need names, but it takes {parameter}. "
                "Take one list or one dict instead"
            )
    return list(signature.parameters.values())


def _check_callbacks(builder: Builder, settings: PipelineSettings) -> None:
    """Check callbacks now, not where they are given: the annotations of a task may name later definitions."""
    tasks: Mapping[str, Callee] = getattr(builder.host, "tasks", {})
    for event, callbacks in settings.callbacks:
        for callback in callbacks:
            task = tasks.get(callback.task)
            if task is not None:
                where = f"pipeline {builder.pipeline!r}: its {event}"
                payloads = [payload(callback, told) for told in CALLBACK_ARGUMENTS[event]]
                check_callback(where, task, callback, CALLBACK_ARGUMENTS[event][0], payloads)


def _callback(pipeline: str, event: str, task: object) -> Callback:
    if isinstance(task, Blueprint) or not isinstance(task, Callee):
        raise DefinitionError(f"pipeline {pipeline!r}: {event} takes tasks, not {task!r}")
    return Callback.of(task.name, task.signature, callback_options(f"{pipeline}.{event}", task))
