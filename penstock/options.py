"""What `@app.task(...)` and `.options(...)` accept, checked by name and value."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from penstock.errors import ConfigurationError
from penstock.schema.types import KEY_LENGTH, NAME_LENGTH
from penstock.values.limits import Limit, read_limits
from penstock.values.readers import nearest
from penstock.values.retry import Retry
from penstock.values.units import QueueLimit

LONGEST = 100 * 366 * 86_400.0
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
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]


KNOWN = frozenset(field.name for field in dataclasses.fields(TaskOptions))


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
            return _text(value, NAME_LENGTH)
        case "queue":
            return QueueLimit(_text(value, NAME_LENGTH)).name
        case "key":
            return None if value is None else _text(value, KEY_LENGTH)
        case "priority":
            return _whole(value, -(2**30), 2**30)
        case "delay":
            return _seconds(value, 0.0)
        case "timeout":
            return None if value is None else _seconds(value, 0.001)
        case "at":
            return None if value is None else _instant(value)
        case "limits":
            return read_limits(value)
        case "retries":
            return Retry.of(value)  # type: ignore[arg-type]
        case "max_crashes":
            return None if value is None else _whole(value, 0, 2**30)
        case "executor":
            if value is not None and value not in EXECUTORS:
                raise ValueError(f"use one of {', '.join(EXECUTORS)}")
            return value
        case _:
            return value


def _text(value: object, longest: int) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("give a text")
    if len(value) > longest or "\0" in value or "\t" in value:
        raise ValueError(f"at most {longest} characters, no NUL and no tab")
    return value


def _whole(value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"give a whole number from {least} to {most}")
    return value


def _seconds(value: object, least: float) -> float:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= LONGEST:
        raise ValueError(
            f"give seconds (or a timedelta), at least {least:g} and no more than a hundred years"
        )
    return float(value)


def _instant(value: object) -> int:
    if not isinstance(value, datetime):
        raise ValueError("give a datetime with a time zone")
    if value.tzinfo is None:
        raise ValueError("this datetime has no time zone; give one, such as datetime.now(timezone.utc)")
    return int(value.timestamp() * 1_000_000)
