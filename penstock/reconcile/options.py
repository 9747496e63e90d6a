"""Options of a reconciler: intervals, leases, concurrency, back-off and failure handling. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, TypeVar

from penstock.errors import DefinitionError
from penstock.task_options import EXECUTORS
from penstock.values import parse
from penstock.values.parse import LONGEST, parse_seconds
from penstock.values.retry import Retry

R = TypeVar("R")
Seconds = float | int | str | timedelta
Every = Seconds | Mapping[Any, Seconds] | Callable[[Any], Seconds]
Exhausted = Mapping[str, Any] | Callable[[Any], Mapping[str, Any]]

LONGEST_BACKOFF = 3600.0
BACKOFF = Retry(delay=5.0, factor=2.0, jitter=0.1)
STATE_NAMES = ("status", "state")
OTHERS = frozenset({"name", "where", "locks", "on_lost", "index", "middleware"})
"""Options that select rows or belong to the reconciler itself, not to the policy."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The checked options by which a reconciler treats its rows."""

    workers: int = 10
    """Handlers at a time, in one process."""
    every: Every = 15.0
    """Seconds until the next visit; or a mapping from state to seconds; or a function of the row."""
    by: str | None = None
    """The attribute that `every={...}` looks at; `status` or `state` if the row has it."""
    lease: Seconds = 30.0
    """How long a silent process keeps its rows."""
    timeout: Seconds | None = None
    backoff: Retry = BACKOFF
    """How long a failing row waits, by the number of its consecutive failures."""
    max_attempts: int | None = None
    max_crashes: int | None = 10
    """How many consecutive times a process may die with a row; then `on_exhausted`, or a long pause. None: no limit."""
    on_exhausted: Exhausted | None = None
    """Written when the last attempt has failed: an update map, or a function of the item."""
    prefetch: int | None = None
    """Most rows that wait in the process for a free handler, however short handlers are; twenty times the workers."""
    executor: str | None = None
    """Where the handler runs: "async", "thread" or "process"; None: by the kind of function."""
    overwrite: bool | tuple[str, ...] = ()
    """Columns that an apply may overwrite although other code has written them meanwhile."""

    def __post_init__(self) -> None:
        option("workers", self.workers, lambda value: parse.whole(value, 1))
        if self.executor is not None:
            option("executor", self.executor, lambda value: parse.one_of(value, EXECUTORS))
        object.__setattr__(self, "every", _intervals(self.every))
        object.__setattr__(
            self, "lease", option("lease", self.lease, lambda value: parse.duration(value, 0.1))
        )
        if self.timeout is not None:
            object.__setattr__(
                self, "timeout", option("timeout", self.timeout, lambda value: parse.duration(value, 0.001))
            )
        if not isinstance(self.backoff, Retry):
            raise DefinitionError(f"backoff={self.backoff!r}: give a Retry(delay=5, factor=2)")
        object.__setattr__(self, "overwrite", _names("overwrite", self.overwrite))
        if self.max_attempts is not None:
            option("max_attempts", self.max_attempts, lambda value: parse.whole(value, 1))
        if self.max_crashes is not None:
            option("max_crashes", self.max_crashes, lambda value: parse.whole(value, 0))
        never = self.max_attempts is None and self.max_crashes is None
        if never if self.on_exhausted is not None else self.max_attempts is not None:
            raise DefinitionError(
                "max_attempts= and on_exhausted= belong together: say what a row becomes after its last attempt, "
                'such as max_attempts=5, on_exhausted={"status": "failed"}'
            )
        if not (
            self.on_exhausted is None or isinstance(self.on_exhausted, Mapping) or callable(self.on_exhausted)
        ):
            raise DefinitionError(
                f"on_exhausted={self.on_exhausted!r}: give a dict, or a function of the item"
            )
        if self.prefetch is not None:
            option("prefetch", self.prefetch, lambda value: parse.whole(value, 0))

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Policy:
        known = {field.name for field in fields(cls)}
        for name in options:
            if name not in known:
                raise DefinitionError(f"app.reconciler(...): {parse.no_option(name, known | OTHERS)}")
        return cls(**options)

    @property
    def lease_seconds(self) -> float:
        return parse_seconds(self.lease)

    @property
    def timeout_seconds(self) -> float | None:
        return None if self.timeout is None else parse_seconds(self.timeout)

    @property
    def most_waiting(self) -> int:
        return 20 * self.workers if self.prefetch is None else self.prefetch

    def interval(self, values: Mapping[str, Any], row: Any) -> float:
        """Seconds until the next visit of a row with these values."""
        every = self.every
        if isinstance(every, Mapping):
            return parse_seconds(every.get(self._state(values), every.get(None, 15.0)))
        return option("every", every(row), parse.duration) if callable(every) else parse_seconds(every)

    def _state(self, values: Mapping[str, Any]) -> Any:
        names = (self.by,) if self.by is not None else STATE_NAMES
        return next((values[name] for name in names if name in values), None)

    def pause_after(self, attempts: int, random: float) -> float:
        """Seconds until a row is tried again after this many failures in a row."""
        longest = min(max(LONGEST_BACKOFF, self.backoff.delay), LONGEST)
        return min(self.backoff.delay_for(attempts, random), longest)

    def may_overwrite(self, name: str) -> bool:
        return self.overwrite if isinstance(self.overwrite, bool) else name in self.overwrite


def option(name: str, value: Any, read: Callable[[object], R]) -> R:
    """Read an option; an error names it."""
    return parse.checked(name, value, read, error=DefinitionError)


def _intervals(every: Any) -> Every:
    if callable(every):
        return every  # type: ignore[no-any-return]  # what it gives is seen when it is called
    if not isinstance(every, Mapping):
        return option("every", every, parse.duration)
    if not every:
        raise DefinitionError('every={}: give seconds by state, such as {"active": 300, None: 15}')
    return {state: option(f"every[{state!r}]", seconds, parse.duration) for state, seconds in every.items()}


def _names(option: str, given: Any) -> bool | tuple[str, ...]:
    if isinstance(given, bool):
        return given
    names = (given,) if isinstance(given, str) else given
    if not isinstance(names, tuple | list | set | frozenset):
        raise DefinitionError(f"{option}={given!r}: give names of columns, or True for all")
    return tuple(names)
