"""The graph spelling: a function, called once with stand-ins for its arguments, describes the steps."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any, Final, TypeVar, overload

from penstock.context import building
from penstock.errors import DefinitionError, PenstockError
from penstock.pipelines.define.blueprint import Blueprint, Callee, Fragment, TaskOrPipeline
from penstock.pipelines.define.builder import Builder, BuildPosition
from penstock.pipelines.define.handles import (
    Handle,
    constant_text,
    expression_of,
    handles_in,
    label_of,
    scope_of,
)
from penstock.pipelines.define.pipeline_options import PipelineSettings, finish, plain_parameters
from penstock.pipelines.define.step_options import option
from penstock.pipelines.define.validation import read_reminder
from penstock.pipelines.model.definition import Definition, Wait
from penstock.step_calls import StepValue
from penstock.values import parse
from penstock.values.fork_safety import cached_property

T = TypeVar("T")


class Missing:
    """Stands for "not given" where None means something."""


MISSING: Final = Missing()


class GraphBlueprint(Blueprint):
    """A pipeline described by a function."""

    def __init__(self, function: Callable[..., Any], name: str, settings: PipelineSettings) -> None:
        self.function = function
        self.name = name
        self.settings = settings
        self.overrides: Mapping[str, object] = {}

    @cached_property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self.function)

    def build(self) -> Definition:
        return define(self.function, self.name, self.settings, getattr(self, "host", None))


def define(
    function: Callable[..., Any], name: str, settings: PipelineSettings, host: object = None
) -> Definition:
    """Call the function with stand-ins, and make a definition of what it described."""
    signature = inspect.signature(function)
    parameters = plain_parameters(name, signature)
    builder = Builder(name, host)
    args = [builder.param(p.name) for p in parameters if p.kind is not p.KEYWORD_ONLY]
    kwargs = {p.name: builder.param(p.name) for p in parameters if p.kind is p.KEYWORD_ONLY}
    with describing(builder):
        result = function(*args, **kwargs)
    if inspect.iscoroutine(result):
        result.close()
        raise DefinitionError(f"pipeline {name!r} is an async def; it only describes steps: use def")
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise DefinitionError(
            f"pipeline {name!r} is a generator; it only describes steps: use return, not yield"
        )
    for handle in handles_in(result):
        if scope_of(handle):
            raise DefinitionError(
                f"pipeline {name!r} returns {label_of(handle)}, inside an expand that is never closed. "
                f"Return all its elements: {label_of(handle)}.collect()"
            )
    return finish(builder, signature, expression_of(name, result), settings)


@contextmanager
def describing(builder: Builder) -> Iterator[None]:
    """Have calls of tasks and pipelines inside the block become steps of this builder."""
    token = building.set(builder)
    try:
        yield
    except PenstockError:
        raise
    except Exception as error:
        raise DefinitionError(
            f"pipeline {builder.pipeline!r} cannot be described: {type(error).__name__}: {error}. Its function is "
            "called once, with stand-ins for its arguments; what needs their values belongs in a task"
        ) from error
    finally:
        building.reset(token)


def switch(value: object, arms: Mapping[Any, object], otherwise: object = MISSING) -> StepValue[Any]:
    """Exactly one arm runs, chosen by `str(value)`; the value of the arm that ran."""
    builder = _builder("switch")
    if not isinstance(value, Handle):
        raise DefinitionError(f"switch() decides on the value of a step or a parameter, not on {value!r}")
    labels, chosen = arm_labels(arms, otherwise)
    decision = builder.open_switch(value, labels)
    tails = []
    for number, arm in enumerate(chosen):
        with builder.within(BuildPosition((decision.id, number), decision.scope)):
            tails.append(_build_arm(builder, arm, value))
    return builder.merge(decision, tails)


@overload
def first(*steps: StepValue[T], count: None = None) -> StepValue[T]: ...


@overload
def first(*steps: StepValue[T], count: int) -> StepValue[list[T]]: ...


@overload
def first(*steps: object, count: int | None = None) -> StepValue[Any]: ...


def first(*steps: object, count: int | None = None) -> StepValue[Any]:
    """The value of whichever of the steps succeeds first.

    With `count`, a list of the values of so many of them, in the order of the definition, as soon as they have
    succeeded; it is skipped when that has become impossible and all have ended.
    """
    return _builder("first").first(steps, count)


def barrier(*steps: object) -> StepValue[None]:
    """A point behind all of the steps, for `.options(after=[...])`."""
    return _builder("barrier").barrier(steps)


def wait_for(
    signal: str,
    *,
    timeout: float | None = None,
    default: object = MISSING,
    remind: TaskOrPipeline | None = None,
    remind_every: float | None = None,
    after: Sequence[object] = (),
    key: str | None = None,
) -> StepValue[Any]:
    """A step that waits, without holding a worker, until `run.signal(signal, value)`; the value is its own.

    After `timeout` seconds it has the `default` as its value, or fails if there is none. Meanwhile the task `remind`
    is enqueued every `remind_every` seconds.
    """
    wait = wait_options(signal, timeout, default, remind, remind_every)
    return _builder("wait_for").wait_for(signal, wait, after, key)


def wait_options(
    signal: object, timeout: object, default: object, remind: object = None, remind_every: object = None
) -> Wait:
    """Check the arguments of a wait."""
    try:
        parse.text(signal, 120)
    except ValueError as error:
        raise DefinitionError(
            f"wait_for({signal!r}): the name of a signal is a text of at most 120 characters: {error}"
        ) from None
    limit = option(f"wait_for({signal!r})", "timeout", timeout, parse.seconds)
    if default is not MISSING and limit is None:
        raise DefinitionError(f"wait_for({signal!r}): a default needs a timeout after which it is taken")
    return Wait(
        limit,
        None if default is MISSING else constant_text(f"wait_for({signal!r})", default),
        read_reminder(f"wait_for({signal!r})", remind, remind_every),
    )


def arm_labels(arms: Mapping[Any, object], otherwise: object) -> tuple[list[str | None], list[object]]:
    """The labels of a switch and their arms, `otherwise` last under None."""
    if not isinstance(arms, Mapping):
        raise DefinitionError(f"a switch takes a dict of arms, {{value: task}}, not {arms!r}")
    if otherwise is MISSING:
        raise DefinitionError(
            "a switch needs otherwise=: what runs when no arm matches. otherwise=None passes the value on"
        )
    labels: list[str | None] = [_label(value) for value in arms]
    if len(set(labels)) < len(labels):
        raise DefinitionError(f"two arms of a switch have the same label: {', '.join(map(str, labels))}")
    return [*labels, None], [*arms.values(), otherwise]


def _label(value: object) -> str:
    """The text that a step's value is compared with; for a member of an Enum, its stored value."""
    return str(value.value if isinstance(value, Enum) else value)


def _build_arm(builder: Builder, arm: object, value: Handle) -> Handle:
    if arm is None:
        return value
    if isinstance(arm, Handle):
        raise DefinitionError(
            f"an arm of a switch is a task, a flow or a function, but {label_of(arm)} was called already: "
            f"write lambda: {label_of(arm)}(...)"
        )
    if isinstance(arm, Callee):
        return builder.call(arm, (value,), {})
    if isinstance(arm, Fragment):
        return arm.attach(builder, value)
    if not callable(arm):
        raise DefinitionError(
            f"an arm of a switch is a task, a flow, a function without parameters or None, not {arm!r}"
        )
    return _call_arm(builder, arm)


def _call_arm(builder: Builder, arm: Callable[..., object]) -> Handle:
    needed = [p for p in inspect.signature(arm).parameters.values() if p.default is p.empty]
    if [p for p in needed if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]:
        raise DefinitionError(
            f"an arm of a switch that is a function takes no parameters, but {arm!r} does. "
            "It can use the values around it; a task or a flow is given the value"
        )
    result = arm()
    if isinstance(result, Handle):
        return result
    assert builder.frame.arm is not None
    return builder.empty_arm(result, builder.leaves_of(builder.frame.arm) if result is None else ())


def _builder(verb: str) -> Builder:
    builder = building.get()
    if not isinstance(builder, Builder):
        raise DefinitionError(
            f"{verb}() describes a part of a pipeline: call it inside an @app.pipeline function"
        )
    return builder
