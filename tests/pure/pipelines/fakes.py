"""Stand-ins: a task without an app, and both spellings in one line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from penstock.context import building
from penstock.pipelines.define.fluent import FlowBlueprint
from penstock.pipelines.define.graph import GraphBlueprint
from penstock.pipelines.define.pipeline_options import pipeline_settings
from penstock.pipelines.model.definition import Definition


class FakeTask:
    """What the definition needs of a task."""

    def __init__(self, function: Callable[..., Any], overrides: Mapping[str, object] | None = None) -> None:
        self.function = function
        self.name = f"tests.{function.__name__}"
        self.overrides = dict(overrides or {})
        self.signature = inspect.signature(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        builder = building.get()
        return builder.call(self, args, kwargs) if builder else self.function(*args, **kwargs)

    def map(self, *args: Any, **kwargs: Any) -> Any:
        builder = building.get()
        assert builder is not None
        return builder.map(self, args, kwargs)

    def options(self, **overrides: object) -> FakeTask:
        return FakeTask(self.function, {**self.overrides, **overrides})


def task(name: str, parameters: str = "x") -> FakeTask:
    """A task by its name and parameter list; it only stands in a definition."""
    scope: dict[str, Any] = {}
    exec(f"def {name}({parameters}): return None", scope)
    return FakeTask(scope[name])


def pipeline(function: Callable[..., Any] | None = None, **given: object) -> Any:
    """`@app.pipeline` without an app."""
    if function is None:
        return lambda wrapped: pipeline(wrapped, **given)
    return GraphBlueprint(function, function.__name__, pipeline_settings(function.__name__, given))


def graph(function: Callable[..., Any], **given: object) -> Definition:
    """The definition of a function in the graph spelling."""
    definition: Definition = pipeline(function, **given).definition
    return definition


def app_flow(name: str, **given: object) -> FlowBlueprint:
    """`app.flow` without an app."""
    return FlowBlueprint(name, pipeline_settings(name, given))
