"""Reads the options of a step, and refuses options that do not belong to a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from penstock.errors import DefinitionError, PenstockError
from penstock.pipelines.define.blueprint import Blueprint, Callee
from penstock.pipelines.define.handles import Handle
from penstock.pipelines.model.definition import StepOptions, Strategy
from penstock.pipelines.model.expressions import JsonValue
from penstock.task_options import TaskOptions
from penstock.values import parse
from penstock.values.retry import Retry

R = TypeVar("R")
USUAL = TaskOptions()
MOST_INPUTS = 40
"""The most inputs of a `first()` with a count: the winners are stored in one short text."""
_ELSEWHERE = {
    "connection": "pass it where the run is triggered: pipeline.options(connection=...).trigger(...)",
    "at": "a step's time is relative to the step before it: use delay=",
    "labels": "label the run: pipeline.options(labels=[...]).trigger(...)",
    "name": "a task's name is given by @app.task(name=...); a step is named by key=",
}
_OF_HANDLERS = {
    "retries": "it is not tried again as a whole: its steps are, each as its task says",
    "max_crashes": "its steps have budgets of their own",
    "executor": "its steps run where their tasks say",
}
"""Options that a child run does not take, because no handler of its own is called. A `timeout` is its deadline."""
_SAYING_NOTHING: dict[str, tuple[object, ...]] = {"retries": (None, 0)}
_OF_ENQUEUES = ("at", "key", "connection")
"""Options that a decorator may set for every enqueue, and a step cannot follow."""
_KNOWN = (
    "key",
    "after",
    "queue",
    "priority",
    "delay",
    "timeout",
    "retries",
    "max_crashes",
    "executor",
    "on_failure",
    "optional",
    "max_fanout",
)
_OF_CALLBACKS = ("queue", "priority", "delay", "timeout", "retries", "max_crashes", "executor", "name")


@dataclass(frozen=True, slots=True)
class StepSettings:
    """The options of one step: key, `after` and `fallback` are the builder's, the others go into the definition."""

    key: str | None
    after: tuple[object, ...]
    options: StepOptions
    fallback: Callee | None = None


def step_settings(step: str, callee: Callee) -> StepSettings:
    """Check and sort the options given for a step that is this task or pipeline."""
    found = read_settings(step, callee.overrides)
    for name in _OF_HANDLERS if isinstance(callee, Blueprint) else ():
        if callee.overrides.get(name) not in _SAYING_NOTHING.get(name, (None,)):
            raise DefinitionError(
                f"step {step!r}: option {name!r} does not belong to a child run; {_OF_HANDLERS[name]}"
            )
    options = replace(found.options, delay=_delay(step, callee), job=_queued(step, callee))
    return replace(found, options=options)


def read_settings(step: str, given: Mapping[str, object]) -> StepSettings:
    """Check and sort the options given for `step`."""
    for name in given:
        if name in _ELSEWHERE:
            raise DefinitionError(
                f"step {step!r}: option {name!r} does not belong to a step; {_ELSEWHERE[name]}"
            )
        if name not in _KNOWN:
            raise DefinitionError(f"step {step!r}: {parse.no_option(name, _KNOWN)}")
    where = f"step {step!r}"
    options = StepOptions(
        delay=option(where, "delay", given.get("delay"), parse.seconds),
        on_failure=_strategy(step, given),
        max_fanout=option(where, "max_fanout", given.get("max_fanout"), from_zero),
        job=_job_options(where, given),
    )
    fallback = given.get("on_failure")
    return StepSettings(
        key=option(where, "key", given.get("key"), _string),
        after=_after(step, given.get("after", ())),
        options=options,
        fallback=fallback if fallback is not None and isinstance(fallback, Callee) else None,
    )


def _declared(where: str, callee: Callee) -> TaskOptions:
    """The options of the task's decorator, if a step can follow them."""
    declared = getattr(callee, "defaults", None)
    if not isinstance(declared, TaskOptions):
        return USUAL
    for name in _OF_ENQUEUES:
        if getattr(declared, name) is not None:
            raise DefinitionError(
                f"{where}: @app.task({name}=...) of {callee.name} holds for what is enqueued by itself, and means "
                f"nothing here. Take it from the decorator, and give it where it is enqueued: "
                f".options({name}=...).enqueue(...)"
            )
    return declared


def _queued(step: str, callee: Callee) -> dict[str, JsonValue]:
    """How its jobs are queued: as `.options()` says, else as the task itself says here and now."""
    job = _job_options(f"step {step!r}", callee.overrides)
    task = getattr(callee, "settings", None)
    if isinstance(task, TaskOptions):
        own: dict[str, JsonValue] = {
            "queue": task.queue,
            "priority": task.priority,
            "max_crashes": task.max_crashes,
        }
        job |= {name: value for name, value in own.items() if value != getattr(USUAL, name)}
        if (
            "timeout" in callee.overrides
            and task.timeout is None
            and _declared(step, callee).timeout is not None
        ):
            job["timeout"] = None
    return job


def callback_options(where: str, callee: Callee) -> dict[str, JsonValue]:
    """How a callback task is enqueued. It is no step: it has no key and comes after nothing."""
    for name, value in callee.overrides.items():
        if name not in _OF_CALLBACKS and value is not None:
            raise DefinitionError(
                f"{where}: option {name!r} does not belong to a task that is enqueued by the run itself; it takes "
                f"{', '.join(_OF_CALLBACKS)}"
            )
    delay = _delay(where, callee)
    return _queued(where, callee) | ({"delay": delay} if delay else {})


def quorum_of(count: object, inputs: int) -> int:
    """Read how many of its inputs a `first()` waits for."""
    if count is None:
        return 1
    if isinstance(count, bool) or not isinstance(count, int) or not 2 <= count <= min(inputs, MOST_INPUTS):
        raise DefinitionError(
            f"first(count={count!r}): of {inputs} steps, it can wait for 2 to {min(inputs, MOST_INPUTS)}. "
            "Without count= it waits for one"
        )
    if inputs > MOST_INPUTS:
        raise DefinitionError(
            f"first(count={count}): it has {inputs} steps; with a count, at most {MOST_INPUTS}"
        )
    return count


def strategy(where: str, value: object) -> Strategy:
    """Read an `on_failure` value: halt, continue or ignore."""

    def read(given: object) -> Strategy:
        try:
            return Strategy(parse.one_of(given, ("halt", "continue", "ignore")))
        except ValueError as error:
            raise ValueError(f"{error}; or a task that takes over") from None

    return parse.checked("on_failure", value, read, where, DefinitionError)


def option(where: str, name: str, value: object, read: Callable[[object], R]) -> R | None:
    """An option as its reader has it; None if it is not given."""
    return None if value is None else parse.checked(name, value, read, where, DefinitionError)


def from_zero(value: object) -> int:
    """Read a count that may be 0."""
    return parse.whole(value, 0)


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("give a text")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("give True or False")
    return value


def _delay(step: str, callee: Callee) -> float | None:
    """As `.options()` says, else as the task itself does."""
    declared = _declared(step, callee)
    said = option(f"step {step!r}", "delay", callee.overrides.get("delay"), parse.seconds)
    return declared.delay or None if said is None else said


def _strategy(step: str, given: Mapping[str, object]) -> Strategy | None:
    on_failure = given.get("on_failure")
    optional = parse.checked(
        "optional", given.get("optional", False), _flag, f"step {step!r}", DefinitionError
    )
    if on_failure is None:
        return Strategy.OPTIONAL if optional else None
    if isinstance(on_failure, Callee):
        if optional:
            raise DefinitionError(
                f"step {step!r}: on_failure={on_failure.name} takes its place when it fails, so it is not to be "
                "optional as well: .options(optional=True) belongs to that task"
            )
        return Strategy.OPTIONAL
    chosen = strategy(f"step {step!r}", on_failure)
    if optional and chosen is not Strategy.IGNORE:
        raise DefinitionError(
            f"step {step!r}: optional=True means that its failure is ignored; "
            f"on_failure={on_failure!r} says otherwise. Leave one of them out"
        )
    return Strategy.OPTIONAL if optional else chosen


def _after(step: str, value: object) -> tuple[object, ...]:
    if isinstance(value, str | Handle):
        return (value,)
    if not isinstance(value, Sequence):
        raise DefinitionError(f"step {step!r}: after= takes a list of steps, such as after=[a, b]")
    return tuple(value)


_JOB_READERS: Mapping[str, Callable[[object], JsonValue]] = {
    "queue": parse.read_text,
    "executor": parse.read_text,
    "priority": lambda value: parse.whole(value, -parse.MOST),
    "timeout": parse.seconds,
}


def _job_options(where: str, given: Mapping[str, object]) -> dict[str, JsonValue]:
    job: dict[str, JsonValue] = {}
    for name, read in _JOB_READERS.items():
        if given.get(name) is not None:
            job[name] = option(where, name, given[name], read)
    if "max_crashes" in given:
        job["max_crashes"] = option(where, "max_crashes", given["max_crashes"], from_zero)
    if "retries" in given:
        job["retries"] = _retries(where, given["retries"])
    return job


def _retries(where: str, value: object) -> JsonValue:
    try:
        policy = Retry.of(value)
    except PenstockError as error:
        raise DefinitionError(f"{where}: {error}") from error
    return dict(policy.to_dict())  # type: ignore[arg-type]
