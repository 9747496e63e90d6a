"""What `@app.task(...)` and `.options(...)` accept, checked by name and value."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import ConfigurationError
from penstock.values import checks
from penstock.values.lengths import KEY_LENGTH, NAME_LENGTH
from penstock.values.limits import Limit, read_limits
from penstock.values.readers import nearest
from penstock.values.retry import Retry
from penstock.values.units import QueueLimit

EXECUTORS = ("async", "thread", "process")
STEP_ONLY = ("after", "max_fanout", "on_failure", "optional")
AS_DECLARED = ("name", "queue", "priority", "delay")
"""Options that have no value None: None leaves them as they are, for callers that pass on what they were given."""


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

    def merged(self, changes: Mapping[str, object]) -> TaskOptions:
        if "delay" in changes:
            changes = {"at": None} | dict(changes)
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]


KNOWN = frozenset(field.name for field in dataclasses.fields(TaskOptions))


def overridden(said: Mapping[str, object], now: Mapping[str, object]) -> dict[str, object]:
    """What `.options()` has set so far, and sets now. A delay takes the place of an `at`, and the other way round."""
    rivals = {"delay": "at", "at": "delay"}
    outdone = {rival for name, rival in rivals.items() if now.get(name) is not None}
    return {name: value for name, value in said.items() if name not in outdone} | dict(now)


def declared_options(task: str, given: Mapping[str, object]) -> TaskOptions:
    """The options of `@app.task(...)`."""
    refuse_step_options(task, "to @app.task(...)", given)
    return TaskOptions().merged(read_options(task, given))


def refuse_step_options(task: str, place: str, given: Mapping[str, object]) -> None:
    """Outside of a pipeline they would do nothing, and whoever gave them would not know."""
    for name in STEP_ONLY:
        if given.get(name) is not None:
            raise ConfigurationError(
                f"{task}: {name}= belongs to a step of a pipeline, not {place}. Leave it out here; give it where "
                f"the step is described: task.options({name}=...)(...)"
            )


def read_options(task: str, given: Mapping[str, object]) -> dict[str, object]:
    """The options of a task or an enqueue; refuses unknown names and wrong values. Options of steps are left out."""
    read: dict[str, object] = {}
    for name, value in given.items():
        if name in STEP_ONLY or (value is None and name in AS_DECLARED):
            continue
        if name not in KNOWN:
            raise ConfigurationError(
                f"{task}: there is no option {name!r}{nearest(name, KNOWN | set(STEP_ONLY))}"
            )
        try:
            read[name] = _read(name, value)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"{task}: {name}={value!r}: {error}") from None
    if read.get("delay") and read.get("at") is not None:
        raise ConfigurationError(f"{task}: give delay= or at=, not both")
    return read


def _read(name: str, value: object) -> object:
    match name:
        case "name":
            return _name(value, NAME_LENGTH)
        case "queue":
            return QueueLimit(_name(value, NAME_LENGTH)).name
        case "key":
            return None if value is None else _name(value, KEY_LENGTH)
        case "priority":
            return checks.whole(value, -checks.MOST)
        case "delay":
            return checks.seconds(value)
        case "timeout":
            return None if value is None else checks.seconds(value, 0.001)
        case "at":
            return None if value is None else checks.instant(value)
        case "limits":
            return read_limits(value)
        case "retries":
            return Retry.of(value)
        case "max_crashes":
            return None if value is None else checks.whole(value, 0)
        case "executor":
            if value is not None and value not in EXECUTORS:
                raise ValueError(f"use one of {', '.join(EXECUTORS)}")
            return value
        case _:
            return value


def _name(value: object, longest: int) -> str:
    return checks.text(value, longest, without="\0\t")
