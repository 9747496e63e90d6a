"""Converts Python values that JSON lacks to tagged JSON objects and back.

JSON has no times, UUIDs, decimals or bytes, so these are written as objects with one key, `{"$uuid": "..."}`,
and come back as what they were, in any process. A user's dict that looks like that gets one more `$` and
loses it again. Tuples come back as lists, except those that members of enums are known by. `write` is given
`other`, which knows what to do with other types.

What a step that failed would have returned, where that is ignored, is `{"$missing": null}`: it comes back as None
wherever it gets to, whatever is annotated there.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path, PurePath
from typing import Any
from uuid import UUID

from penstock.errors import SerializationError

DEEPEST = 100
"""Deeper nesting is refused: parsers give up not far beyond, and a value that contains itself never ends."""

MARK = "$"
TAG_START = '{"$'
"""The beginning of every tag's JSON text: a text without it holds no tags."""

NATIVE = frozenset({str, int, bool, type(None)})
_PAIRS = "$pairs"
_TUPLE = "$tuple"
_MISSING = "$missing"
MISSING: dict[str, object] = {_MISSING: None}
"""The raw form of a value that is not there; never changed."""
_MICROSECOND = timedelta(microseconds=1)

Other = Callable[[object, int], object]
"""Writes a value of a type that JSON and the tags do not know, at a depth; or raises `Unwritable`."""


class Unwritable(Exception):
    """A value cannot be written; `path` leads to it from the outermost one."""

    def __init__(self, problem: str, kind: type | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.kind = kind
        self.path: list[object] = []

    def __str__(self) -> str:
        where = "".join(f"[{key!r}]" for key in reversed(self.path))
        return f"{self.problem} (at {where})" if where else self.problem


@dataclass(frozen=True, slots=True)
class _Tag:
    name: str
    write: Callable[[Any], object]
    read: Callable[[Any], object]


def _write_decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise Unwritable(f"{value} is not a number")
    return str(value)


_TAGS: dict[type, _Tag] = {
    datetime: _Tag("$datetime", datetime.isoformat, datetime.fromisoformat),
    date: _Tag("$date", date.isoformat, date.fromisoformat),
    time: _Tag("$time", time.isoformat, time.fromisoformat),
    timedelta: _Tag(
        "$timedelta", lambda value: value // _MICROSECOND, lambda raw: timedelta(microseconds=raw)
    ),
    UUID: _Tag("$uuid", str, UUID),
    Decimal: _Tag("$decimal", _write_decimal, Decimal),
    bytes: _Tag("$bytes", lambda value: base64.b64encode(value).decode(), base64.b64decode),
    PurePath: _Tag("$path", str, Path),
}
_BY_NAME = {tag.name: tag for tag in _TAGS.values()}
TAGGED = tuple(_TAGS)
"""The types that have a tag; a subclass stands before its base."""


def write(value: object, other: Other, depth: int = 0) -> object:
    """The raw form of a value. What holds only raw values is returned as it is, not copied."""
    kind = type(value)
    if kind in NATIVE:
        return value
    if kind is float:
        if not math.isfinite(value):  # type: ignore[arg-type]
            raise Unwritable(f"{value} is not a number in JSON")
        return value
    if depth >= DEEPEST:
        raise Unwritable(f"nested deeper than {DEEPEST} levels, or contains itself")
    if isinstance(value, dict) and kind is dict:
        return _write_dict(value, other, depth + 1)
    if isinstance(value, (list, tuple)) and kind in (list, tuple):
        return _write_list(value, other, depth + 1)
    tag = _TAGS.get(kind)
    return {tag.name: tag.write(value)} if tag else other(value, depth)


def write_as(kind: type, value: object) -> object:
    """The raw form of an instance of a subclass, as if it were of the tagged type itself."""
    tag = _TAGS[kind]
    return {tag.name: tag.write(value)}


def write_exactly(value: object, other: Other, depth: int) -> object:
    """The raw form of a value that is looked up by what it equals: a tuple in it comes back as a tuple."""
    if type(value) is not tuple:
        return write(value, other, depth)
    return {_TUPLE: [write_exactly(each, other, depth + 1) for each in value]}


def write_pairs(value: dict[object, object], other: Other, depth: int) -> object:
    """The raw form of a dict whose keys are not all strings."""
    return {
        _PAIRS: [[write(key, other, depth + 1), write(item, other, depth + 1)] for key, item in value.items()]
    }


def read(raw: object) -> object:
    """The natural values behind a raw value."""
    if type(raw) is list:
        return [read(item) if type(item) in (dict, list) else item for item in raw]
    if type(raw) is not dict:
        return raw
    if len(raw) == 1:
        ((key, inner),) = raw.items()
        if key.startswith(MARK):
            return _read_marked(key, inner)
    return {key: read(item) if type(item) in (dict, list) else item for key, item in raw.items()}


def raw_elements(raw: object) -> list[object] | str:
    """The elements of a raw list, or the items of a raw dict, still raw; else the name of the type it is."""
    if isinstance(raw, list):
        return raw
    if not isinstance(raw, dict):
        return type(raw).__name__
    if len(raw) == 1:
        ((key, inner),) = raw.items()
        if key == _PAIRS:
            return list(inner)
        if key == _MISSING:
            return type(None).__name__
        if key.startswith(MARK * 2):
            return [[key.removeprefix(MARK), inner]]
        if key.startswith(MARK):
            return str(key.removeprefix(MARK))
    return [[key, item] for key, item in raw.items()]


def is_missing(raw: object) -> bool:
    return type(raw) is dict and raw.keys() == MISSING.keys()


def has_missing(raw: object) -> bool:
    """Whether it is a value that is not there, or one of those inside it is."""
    if type(raw) is dict:
        return is_missing(raw) or any(map(has_missing, raw.values()))
    return type(raw) is list and any(map(has_missing, raw))


def _write_list(values: list[object] | tuple[object, ...], other: Other, depth: int) -> object:
    if NATIVE.issuperset(map(type, values)):
        return values if type(values) is list else list(values)
    written: list[object] = []
    for index, item in enumerate(values):
        try:
            written.append(write(item, other, depth))
        except Unwritable as error:
            error.path.append(index)
            raise
    return written


def _write_dict(value: dict[object, object], other: Other, depth: int) -> object:
    written: dict[object, object] = {}
    for key, item in value.items():
        if type(key) is not str:
            return other(value, depth - 1)
        try:
            written[key] = write(item, other, depth)
        except Unwritable as error:
            error.path.append(key)
            raise
    if len(written) == 1:
        ((only, inner),) = written.items()
        if isinstance(only, str) and only.startswith(MARK):
            return {MARK + only: inner}
    return written


def _read_marked(key: str, inner: object) -> object:
    if key.startswith(MARK * 2):
        return {key.removeprefix(MARK): read(inner)}
    if key == _MISSING:
        return None
    try:
        if key == _PAIRS:
            return {_hashable(read(name)): read(item) for name, item in inner}  # type: ignore[attr-defined]
        if key == _TUPLE:
            return tuple(map(read, inner))  # type: ignore[call-overload]
        return _BY_NAME[key].read(inner)
    except KeyError:
        raise SerializationError(
            f"a stored value is marked {key!r}, which this version of Penstock does not know. "
            "A newer version wrote it: upgrade this process."
        ) from None
    except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
        raise SerializationError(f"a stored {key.removeprefix(MARK)} cannot be read: {error}") from None


def _hashable(key: object) -> object:
    return tuple(_hashable(part) for part in key) if isinstance(key, list) else key
