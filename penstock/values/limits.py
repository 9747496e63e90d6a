"""Limits of a task: how many of its jobs may run at a time, and how many may start in a while. Pure.

A limit is declared once, and holds for every key by itself: `Concurrency(5, key="account")` is five for each account.
What a job needs of it is a demand: the name of one key, as it stands in the database, and how many that allows.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.errors import DefinitionError
from penstock.values import parse
from penstock.values.failure import Failure
from penstock.values.parse import checked, nearest
from penstock.values.typed_json import tags
from penstock.values.typed_json.json_text import loads
from penstock.values.typed_json.signature import Signature

LONGEST_NAME = 100
LONGEST_KEY = 255
MOST = 1_000_000
LONGEST_WINDOW = 366 * 86_400.0

KeyOf = str | Callable[[Mapping[str, Any]], object] | None
Call = tuple[Sequence[object], Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class Concurrency:
    """No more than `most` jobs at the same time, over all processes and hosts.

    `key`: the name of a parameter, or a function of all arguments by name; the limit then holds for each of its values
    by itself. `name`: tasks that give the same name share the limit.
    """

    most: int
    key: KeyOf = None
    name: str | None = None

    def __post_init__(self) -> None:
        _check(self)

    @property
    def kind(self) -> str:
        return "concurrency"

    @property
    def micros(self) -> int:
        """For how long a start counts; 0: for as long as the job is held."""
        return 0


@dataclass(frozen=True, slots=True)
class Rate:
    """No more than `most` starts in any `per` seconds, over all processes and hosts. `key`, `name`: as above."""

    most: int
    per: float
    key: KeyOf = None
    name: str | None = None

    def __post_init__(self) -> None:
        read = checked(
            "per",
            self.per,
            lambda value: parse.seconds(value, 0.001, LONGEST_WINDOW),
            f"Rate({self.most!r}, ...)",
        )
        object.__setattr__(self, "per", read)
        _check(self)

    @property
    def kind(self) -> str:
        return f"rate/{self.per:g}s"

    @property
    def micros(self) -> int:
        return int(self.per * 1_000_000)


Limit = Concurrency | Rate


class Demand(NamedTuple):
    """The slot that one job needs: its key, how many slots the key has, and how long the slot counts (0: while the
    job is held)."""

    key: str
    most: int
    micros: int


class TaskLimits:
    """The limits of one task, checked against its signature."""

    def __init__(
        self, task: str, function: Callable[..., object], codec: Signature, limits: Iterable[Limit]
    ) -> None:
        self.task = task
        self.limits = tuple(limits)
        self.codec = codec
        self.signature = inspect.signature(function)
        named = [
            p.name
            for p in self.signature.parameters.values()
            if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        ]
        for limit in self.limits:
            if isinstance(limit.key, str) and limit.key not in named:
                have = f"its parameters are {', '.join(named)}" if named else "it has no parameters"
                raise DefinitionError(
                    f"{task}: {_spelled(limit)}: there is no parameter {limit.key!r}; {have}"
                    f"{nearest(limit.key, named)}"
                )
        stems = [self._stem(limit) for limit in self.limits]
        for stem in stems:
            if stems.count(stem) > 1:
                raise DefinitionError(
                    f"{task}: two of its limits are the same one ({stem}): leave one out, or give it a name="
                )

    def demands(self, payload: str, call: Call | None) -> tuple[Demand, ...]:
        """The slots that a job with these stored arguments needs; raises `DefinitionError` if a key cannot be told."""
        return tuple(
            Demand(self._key(limit, payload, call), limit.most, limit.micros) for limit in self.limits
        )

    def allows(self, key: str) -> int | None:
        """How many slots this key has by these limits; None: the key belongs to none of them."""
        for limit in self.limits:
            stem = self._stem(limit)
            own = key == fitting(stem) if limit.key is None else key.startswith(stem[: LONGEST_KEY - 33])
            if own:
                return limit.most
        return None

    def _key(self, limit: Limit, payload: str, call: Call | None) -> str:
        stem = self._stem(limit)
        if limit.key is None:
            return fitting(stem)
        try:
            value = self._value(limit.key, payload, call)
        except BaseException as error:  # the key function is the user's code, and runs in the pump's thread
            raise DefinitionError(
                f"{self.task}: the key of {_spelled(limit)} cannot be told: {Failure.of(error)}"
            ) from error
        return fitting(f"{stem}{value}")

    def _value(self, key: KeyOf, payload: str, call: Call | None) -> str:
        if isinstance(key, str):
            raw = self.codec.raw_arguments(payload, call)
            if key in raw:
                return _text(None if tags.is_missing(raw[key]) else raw[key])
            default = self.signature.parameters[key].default
            return _text(loads(self.codec.encode_value_for(key, default)))
        assert key is not None
        read = self.codec.decode_arguments(payload) if call is None else self.codec.decode_call(*call)
        bound = self.signature.bind(*read[0], **read[1])
        bound.apply_defaults()
        return _text(key(bound.arguments))

    def _stem(self, limit: Limit) -> str:
        """The prefix of all keys of a limit. Shared limits go by their own name, the others by the task's."""
        if limit.name is not None:
            return f"{limit.kind} {limit.name}" + ("" if limit.key is None else ": ")
        named = limit.key if isinstance(limit.key, str) else "key"
        return f"{limit.kind} of {self.task}" + ("" if limit.key is None else f": {named}=")


def declare(known: MutableMapping[str, TaskLimits], task: str, limits: TaskLimits | None) -> None:
    """Add a task's limits to those of the app; refuses a shared one that others have declared differently."""
    known.pop(task, None)
    if limits is None:
        return
    for limit in [limit for limit in limits.limits if limit.name is not None]:
        for other in [other for others in known.values() for other in others.limits]:
            if (other.name, other.kind) != (limit.name, limit.kind):
                continue
            if (other.most, other.key is None) != (limit.most, limit.key is None):
                raise DefinitionError(
                    f"{task}: {_spelled(limit)} is shared by name, and declared elsewhere as {_spelled(other)}: "
                    "give both the same number, and both a key or none; or another name="
                )
    known[task] = limits


def read_limits(value: object) -> tuple[Limit, ...]:
    """The `limits` option of a task."""
    if isinstance(value, Concurrency | Rate):
        return (value,)
    if not isinstance(value, list | tuple) or not all(isinstance(each, Concurrency | Rate) for each in value):
        raise ValueError("give a list of limits, such as [Concurrency(5, key='account'), Rate(100, per=60)]")
    return tuple(value)


def fitting(key: str) -> str:
    """A key that is too long for its column ends in a digest of the whole."""
    if len(key) <= LONGEST_KEY:
        return key
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"{key[: LONGEST_KEY - 33]}#{digest}"


def _check(limit: Limit) -> None:
    where = _spelled(limit)
    checked("most", limit.most, lambda value: parse.whole(value, 1, MOST), where)
    if limit.name is not None:
        checked("name", limit.name, _shared_name, where)
    if limit.key is not None:
        checked("key", limit.key, _key, where)


def _shared_name(value: object) -> str:
    if not parse.text(value, LONGEST_NAME).isprintable():
        raise ValueError("give a text that can be printed")
    return str(value)


def _key(value: object) -> object:
    if not isinstance(value, str) and not callable(value):
        raise ValueError("give the name of a parameter, or a function of the arguments")
    return value


def _spelled(limit: Limit) -> str:
    parts = [repr(limit.most)]
    if isinstance(limit, Rate):
        parts.append(f"per={limit.per:g}")
    if isinstance(limit.key, str):
        parts.append(f"key={limit.key!r}")
    if limit.name is not None:
        parts.append(f"name={limit.name!r}")
    return f"{type(limit).__name__}({', '.join(parts)})"


def _text(value: object) -> str:
    """A key's value as it is shown and compared; what cannot be shown, or is no text, as JSON."""
    if isinstance(value, str) and value.isprintable():
        return value
    if value is None or isinstance(value, str | bool | int | float | list | dict):
        return json.dumps(value, sort_keys=True, default=str)
    text = str(value)
    return text if text.isprintable() else json.dumps(text)
