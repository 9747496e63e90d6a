"""A wait as the definition keeps it: for how long, what it is worth if nobody comes, and who is reminded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from penstock.pipelines.callback import Callback
from penstock.pipelines.expressions import JsonValue


@dataclass(frozen=True, slots=True)
class Reminder:
    """A task that is enqueued again and again while a step waits, so many seconds apart."""

    every: float
    callback: Callback

    @property
    def signs(self) -> bool:
        """It is told a token, so only a process that knows the secret can enqueue it."""
        return "token" in self.callback.takes


@dataclass(frozen=True, slots=True)
class Wait:
    """How long a step waits for its signal, and the value it has if none comes (`default` is JSON text)."""

    timeout: float | None = None
    default: str | None = None
    remind: Reminder | None = None

    def to_json(self) -> list[JsonValue]:
        stored: list[JsonValue] = [self.timeout, self.default]
        if self.remind is not None:
            stored.append({"every": self.remind.every, **self.remind.callback.to_json()})
        return stored

    @classmethod
    def from_json(cls, stored: list[JsonValue]) -> Wait:
        timeout, default, *rest = stored
        remind = None
        if rest:
            told = cast("Mapping[str, JsonValue]", rest[0])
            remind = Reminder(cast(float, told["every"]), Callback.from_json(told))
        return cls(cast("float | None", timeout), cast("str | None", default), remind)
