"""When to try again: the retry policy for errors and the back-off after crashes, two budgets never mixed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Self

from penstock.errors import ConfigurationError
from penstock.values import parse
from penstock.values.parse import checked

WHERE = "Retry(...)"
LONGEST_GROWN_DELAY = 24 * 60 * 60.0
_FREE_CRASHES = 3
_CRASH_STEP = 10.0
_LONGEST_CRASH_DELAY = 600.0

ErrorKind = type[BaseException] | str


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and how soon a task that raised an error is run again.

    `max` retries follow the first attempt. The first comes after `delay` seconds, each later one after
    `factor` times as long (up to a day), plus up to `jitter` of itself, at random. `on` limits retries to
    these exceptions, `never` excludes some: classes, or their qualified names ("shop.errors.Declined").
    """

    max: int = 3
    delay: float = 10.0
    factor: float = 2.0
    jitter: float = 0.1
    on: tuple[ErrorKind, ...] = ()
    never: tuple[ErrorKind, ...] = ()

    def __post_init__(self) -> None:
        checked("max", self.max, lambda value: parse.whole(value, 0), WHERE)
        delay = checked("delay", self.delay, lambda value: parse.seconds(value, most=parse.LARGEST), WHERE)
        given: object = self.delay
        if isinstance(
            given, timedelta
        ):  # a number stays as it was written: it is part of a definition's hash
            object.__setattr__(self, "delay", delay)
        checked("factor", self.factor, lambda value: parse.number(value, 1.0), WHERE)
        checked("jitter", self.jitter, lambda value: parse.number(value, 0.0, 1.0), WHERE)
        object.__setattr__(self, "on", _error_kinds("on", self.on))
        object.__setattr__(self, "never", _error_kinds("never", self.never))

    @classmethod
    def of(cls, retries: object) -> Retry:
        """The policy meant by a task's `retries` option: a number means that many with the usual delays."""
        match retries:
            case None:
                return cls()
            case Retry():
                return retries
            case int() if not isinstance(retries, bool):
                return cls(max=retries)
        raise ConfigurationError(f"retries={retries!r}: give a whole number or a Retry(max=..., delay=...)")

    def delay_for(self, retry: int, random: float = 0.0) -> float:
        """Seconds before retry number `retry` (from 1); `random` in [0, 1) places it within the jitter."""
        ceiling = max(self.delay, LONGEST_GROWN_DELAY)
        try:
            grown = min(self.delay * self.factor ** (retry - 1), ceiling)
        except OverflowError:
            grown = ceiling
        return grown * (1.0 + self.jitter * random)

    def permits(self, error: BaseException | Iterable[str]) -> bool:
        """Whether this error may be retried. An error that is not at hand is given as its `lineage`."""
        if not self.on and not self.never:
            return True
        names = set(lineage(error) if isinstance(error, BaseException) else error)
        if any(_name(kind) in names for kind in self.never):
            return False
        return not self.on or any(_name(kind) in names for kind in self.on)

    def to_dict(self) -> dict[str, object]:
        """The policy as plain JSON values, without what equals the default; exceptions by name."""
        plain: dict[str, object] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                plain[field.name] = [_name(kind) for kind in value] if isinstance(value, tuple) else value
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, object]) -> Self:
        """Read what `to_dict` wrote. Names it does not know, from a newer version, are passed over."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in plain.items() if name in known})  # type: ignore[arg-type]


def lineage(error: BaseException) -> tuple[str, ...]:
    """The qualified names of an exception's class and its bases; builtins also by their short names."""
    names: list[str] = []
    for kind in type(error).__mro__[:-1]:
        names.append(_name(kind))
        if kind.__module__ == "builtins":
            names.append(kind.__qualname__)
    return tuple(names)


def crash_delay(crash_count: int) -> float:
    """Seconds before a job is available again after its `crash_count`-th crash.

    The first crashes are usually the process's fault (a deploy, the host): the job goes on at once. From then
    on the job itself is the suspect, and each crash makes it wait longer, up to ten minutes.
    """
    return min(max(0, crash_count - _FREE_CRASHES) * _CRASH_STEP, _LONGEST_CRASH_DELAY)


def _name(kind: ErrorKind) -> str:
    return kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"


def _error_kinds(name: str, kinds: object) -> tuple[ErrorKind, ...]:
    listed = tuple(kinds) if isinstance(kinds, (list, tuple, set, frozenset)) else (kinds,)
    for kind in listed:
        if not isinstance(kind, str) and not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise ConfigurationError(
                f"Retry({name}=...): {kind!r} is neither an exception class nor its name"
            )
    return listed
