"""Reads what `.options()` was given for a step, and refuses what makes no sense there."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.errors import DefinitionError, PenstockError
from penstock.pipelines.define.blueprint import Blueprint, Callee
from penstock.pipelines.define.handles import Handle
from penstock.pipelines.model.definition import StepOptions, Strategy
from penstock.pipelines.model.expressions import JsonValue
from penstock.task_options import TaskOptions
from penstock.values import parse
from penstock.values.retry import Retry

USUAL = TaskOptions()
MOST_INPUTS = 40
"""Of a `first()` with a count: which ones came is kept in one short text."""
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
            near = difflib.get_close_matches(name, _KNOWN, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(_KNOWN)}"
            raise DefinitionError(f"step {step!r}: unknown option {name!r}; {hint}")
    key = given.get("key")
    if key is not None and not isinstance(key, str):
        raise DefinitionError(f"step {step!r}: key={key!r} must be a string")
    delay = seconds(f"step {step!r}", "delay", given.get("delay"))
    widest = given.get("max_fanout")
    options = StepOptions(
        delay=delay,
        on_failure=_strategy(step, given),
        max_fanout=None if widest is None else whole(f"step {step!r}", "max_fanout", widest, least=0),
        job=_job_options(step, given),
    )
    fallback = given.get("on_failure")
    return StepSettings(
        key=key,
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
    job = _job_options(step, callee.overrides)
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
    """How a task is enqueued that hears of something. It is no step: it has no key and comes after nothing."""
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
    if isinstance(value, str) and value in ("halt", "continue", "ignore"):
        return Strategy(value)
    raise DefinitionError(
        f"{where}: on_failure={value!r} must be 'halt', 'continue' or 'ignore', or a task that takes over"
    )


def whole(where: str, name: str, value: object, least: int | None) -> int:
    """Read a whole number."""
    try:
        return parse.whole(value, -parse.MOST if least is None else least)
    except ValueError as error:
        raise DefinitionError(f"{where}: {name}={value!r} must be a whole number: {error}") from None


def seconds(where: str, name: str, value: object) -> float | None:
    """Read a duration: a number of seconds, or a timedelta."""
    if value is None:
        return None
    try:
        return parse.seconds(value)
    except ValueError:
        raise DefinitionError(
            f"{where}: {name}={value!r} must be a number of seconds, 0 or more, and at most a hundred years"
        ) from None


def _delay(step: str, callee: Callee) -> float | None:
    """As `.options()` says, else as the task itself does."""
    declared = _declared(step, callee)
    said = seconds(f"step {step!r}", "delay", callee.overrides.get("delay"))
    return declared.delay or None if said is None else said


def _strategy(step: str, given: Mapping[str, object]) -> Strategy | None:
    optional, on_failure = given.get("optional", False), given.get("on_failure")
    if not isinstance(optional, bool):
        raise DefinitionError(f"step {step!r}: optional={optional!r} must be True or False")
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


def _job_options(step: str, given: Mapping[str, object]) -> dict[str, JsonValue]:
    job: dict[str, JsonValue] = {}
    for name in ("queue", "executor"):
        if (text := given.get(name)) is not None:
            if not isinstance(text, str) or not text:
                raise DefinitionError(f"step {step!r}: {name}={text!r} must be a name")
            job[name] = text
    if (priority := given.get("priority")) is not None:
        job["priority"] = whole(f"step {step!r}", "priority", priority, least=None)
    if (timeout := seconds(f"step {step!r}", "timeout", given.get("timeout"))) is not None:
        job["timeout"] = timeout
    if "max_crashes" in given:
        crashes = given["max_crashes"]
        job["max_crashes"] = (
            None if crashes is None else whole(f"step {step!r}", "max_crashes", crashes, least=0)
        )
    if "retries" in given:
        job["retries"] = _retries(step, given["retries"])
    return job


def _retries(step: str, value: object) -> JsonValue:
    try:
        policy = Retry.of(value)
    except PenstockError as error:
        raise DefinitionError(f"step {step!r}: {error}") from error
    return dict(policy.to_dict())  # type: ignore[arg-type]
