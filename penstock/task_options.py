"""Options of tasks: what `@app.task(...)` and `.options(...)` accept, checked by name and value."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol, cast

from penstock.errors import ConfigurationError
from penstock.middleware import Middleware, read_middleware
from penstock.queue.jobs import NewJob, Uniqueness, UniqueRule
from penstock.queue.rules.followers import CALLBACK_ARGUMENTS, ON_FAILURE, ON_SUCCESS
from penstock.queue.rules.second_look import EXPIRES_AT, EXPIRES_IN
from penstock.queue.rules.unique_keys import REPLACEABLE
from penstock.values import parse
from penstock.values.limits import Limit, read_limits
from penstock.values.parse import KEY_LENGTH, NAME_LENGTH, QueueLimit
from penstock.values.retry import Retry

EXECUTORS = ("async", "thread", "process")
RETURN, REPLACE = "return", "replace"
STEP_ONLY = ("after", "max_fanout", "on_failure", "optional")
FOR_ALL_JOBS = ("limits", "middleware", "aliases")
AS_DECLARED = ("name", "queue", "priority", "delay")
"""Options for which None means "not given", for callers that pass on optional arguments."""


class CallbackTask(Protocol):
    """A task that can be enqueued when a job ends."""

    name: str

    @property
    def signature(self) -> inspect.Signature: ...

    def drafted(self, call: tuple[Sequence[Any], Mapping[str, Any]] | None) -> NewJob: ...


class Expiry(NamedTuple):
    """When a job that has not started expires: an instant, or a duration after its enqueue; in microseconds."""

    at: int | None = None
    after: int | None = None

    def stored(self) -> dict[str, object]:
        return {EXPIRES_AT: self.at} if self.at is not None else {EXPIRES_IN: self.after}


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """How a task's jobs are enqueued and run."""

    name: str | None = None
    queue: str = "default"
    priority: int = 0
    delay: float = 0.0
    at: int | None = None
    key: str | None = None
    retries: Retry = dataclasses.field(default_factory=Retry)
    max_crashes: int | None = 10
    timeout: float | None = None
    executor: str | None = None
    connection: object | None = None
    limits: tuple[Limit, ...] = ()
    middleware: tuple[Middleware, ...] = ()
    aliases: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    unique: str | None = None
    unique_for: float | None = None
    on_conflict: str | None = None
    expires: Expiry | None = None
    on_success: tuple[CallbackTask, ...] = ()
    on_failure: tuple[CallbackTask, ...] = ()

    def merged(self, changes: Mapping[str, object]) -> TaskOptions:
        if "delay" in changes:
            changes = {"at": None} | dict(changes)
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]

    def unique_rule(self, task: str) -> UniqueRule | None:
        """For how long the key is unique; None: for ever."""
        if (self.unique, self.unique_for, self.on_conflict) == (None, None, None):
            return None
        if self.key is None:
            raise ConfigurationError(
                f"{task}: unique=, unique_for= and on_conflict= are about a key; give it, such as key='order:7'"
            )
        replaces = self.on_conflict == REPLACE
        if replaces and (self.unique is not None or self.unique_for is not None):
            raise ConfigurationError(
                f"{task}: on_conflict='replace' holds while the job has not started; leave unique= and unique_for= out"
            )
        if self.unique == Uniqueness.FOREVER and self.unique_for is not None:
            raise ConfigurationError(f"{task}: unique='forever' has no end; leave unique_for= out")
        window = None if self.unique_for is None else int(self.unique_for * 1_000_000)
        lasts = Uniqueness(self.unique) if self.unique not in (None, Uniqueness.FOREVER) else None
        return UniqueRule(lasts, window, replaces) if lasts or window is not None or replaces else None


KNOWN = frozenset(field.name for field in dataclasses.fields(TaskOptions))


def overridden(said: Mapping[str, object], now: Mapping[str, object]) -> dict[str, object]:
    """Merge the options set so far by `.options()` with the new ones. A delay replaces an `at`, and vice versa."""
    rivals = {"delay": "at", "at": "delay"}
    outdone = {rival for name, rival in rivals.items() if now.get(name) is not None}
    return {name: value for name, value in said.items() if name not in outdone} | dict(now)


def declared_options(task: str, given: Mapping[str, object]) -> TaskOptions:
    """The options of `@app.task(...)`."""
    refuse_step_options(task, "to @app.task(...)", given)
    return TaskOptions().merged(read_options(task, given))


def refuse_step_options(task: str, place: str, given: Mapping[str, object]) -> None:
    """Refuse options of steps outside of a pipeline: they would have no effect, and the caller would not notice."""
    for name in STEP_ONLY:
        if given.get(name) is not None and not (name == ON_FAILURE and _are_tasks(given[name])):
            raise ConfigurationError(
                f"{task}: {name}= belongs to a step of a pipeline, not {place}. Leave it out here; give it where "
                f"the step is described: task.options({name}=...)(...)"
            )


def read_options(task: str, given: Mapping[str, object]) -> dict[str, object]:
    """The options of a task or an enqueue; refuses unknown names and wrong values. Options of steps are left out."""
    read: dict[str, object] = {}
    for name, value in given.items():
        if value is None and name in AS_DECLARED:
            continue
        if name in STEP_ONLY and not (name == ON_FAILURE and (value is None or _are_tasks(value))):
            continue
        if name not in KNOWN:
            raise ConfigurationError(f"{task}: {parse.no_option(name, KNOWN | set(STEP_ONLY))}")
        read[name] = parse.checked(name, value, READERS.get(name, _as_it_is), task)
    if read.get("delay") and read.get("at") is not None:
        raise ConfigurationError(f"{task}: give delay= or at=, not both")
    return read


def _are_tasks(value: object) -> bool:
    several = value if isinstance(value, list | tuple) else [value]
    return bool(several) and all(hasattr(each, "drafted") and hasattr(each, "enqueue") for each in several)


def _callbacks(value: object) -> tuple[CallbackTask, ...]:
    if value is None:
        return ()
    if not _are_tasks(value):
        raise ValueError("give a task, or a list of tasks")
    return tuple(value) if isinstance(value, list | tuple) else (cast(CallbackTask, value),)


def _callback_spec(event: str, task: CallbackTask) -> dict[str, object]:
    """A callback as it is stored in the options of a job: how it is enqueued, and which arguments it takes."""
    parameters = task.signature.parameters.values()
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    missing = [p.name for p in named if p.default is p.empty and p.name not in CALLBACK_ARGUMENTS]
    if missing:
        raise ConfigurationError(
            f"{event}={task.name}: it needs {missing[0]!r}, and a callback is told {', '.join(CALLBACK_ARGUMENTS)}"
        )
    draft = task.drafted(None)
    if draft.key is not None:
        raise ConfigurationError(f"{event}={task.name}: a callback is enqueued each time, and has no key")
    return {
        "task": draft.task,
        "queue": draft.queue,
        "priority": draft.priority,
        "max_crashes": draft.max_crashes,
        "options": draft.options,
        "delay": draft.delay,
        "takes": [p.name for p in named if p.name in CALLBACK_ARGUMENTS],
        "rest": any(p.kind is p.VAR_KEYWORD for p in parameters),
    }


def _expiry(value: object) -> Expiry:
    if isinstance(value, datetime):
        return Expiry(at=parse.instant(value))
    return Expiry(after=int(parse.seconds(value, 0.001) * 1_000_000))


def _name(value: object, longest: int) -> str:
    return parse.text(value, longest, without="\0\t")


def _as_it_is(value: object) -> object:
    return value


def _or_none(read: Callable[[object], object]) -> Callable[[object], object]:
    return lambda value: None if value is None else read(value)


READERS: Mapping[str, Callable[[object], object]] = {
    "name": lambda value: _name(value, NAME_LENGTH),
    "queue": lambda value: QueueLimit(_name(value, NAME_LENGTH)).name,
    "key": _or_none(lambda value: _name(value, KEY_LENGTH)),
    "priority": lambda value: parse.whole(value, -parse.MOST),
    "delay": parse.seconds,
    "timeout": _or_none(lambda value: parse.seconds(value, 0.001)),
    "at": _or_none(parse.instant),
    "limits": read_limits,
    "middleware": read_middleware,
    "aliases": lambda value: parse.texts(value, NAME_LENGTH, "shop.old_name", without="\0\t"),
    "labels": parse.labels,
    "retries": Retry.of,
    "max_crashes": _or_none(lambda value: parse.whole(value, 0)),
    "executor": _or_none(lambda value: parse.one_of(value, EXECUTORS)),
    "unique": _or_none(lambda value: parse.one_of(value, Uniqueness)),
    "on_conflict": _or_none(lambda value: parse.one_of(value, (RETURN, REPLACE))),
    "unique_for": _or_none(lambda value: parse.seconds(value, 0.001)),
    "on_success": _callbacks,
    "on_failure": _callbacks,
    "expires": _or_none(_expiry),
}
"""By option, how its value is read. Options that are not here are kept as they are."""


def kept_options(settings: TaskOptions) -> dict[str, object]:
    """The options that a worker reads with the job, whether the decorator or the enqueue has set them."""
    kept: dict[str, object] = {}
    if settings.expires is not None:
        kept |= settings.expires.stored()
    if settings.on_conflict == REPLACE:
        kept[REPLACEABLE] = True
    for event, tasks in ((ON_SUCCESS, settings.on_success), (ON_FAILURE, settings.on_failure)):
        if tasks:
            kept[event] = [_callback_spec(event, task) for task in tasks]
    return kept
