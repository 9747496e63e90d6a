"""Hostile outcomes of handlers: errors and values whose own methods raise or lie, and shapes without an end.

A case is plain JSON, so that it can be a job's argument and be made in another process; `act` does what it says.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, NoReturn

from penstock import Cancel, Snooze
from penstock.errors import CommitFailed, PenstockError
from penstock.values.outcome import StopRun

Case = list[Any]


class Odd(str):
    """A text that is one by its type only."""

    __slots__ = ()

    def replace(self, *_: Any) -> NoReturn:
        raise RuntimeError("replace")

    def isascii(self) -> NoReturn:
        raise RuntimeError("isascii")

    def encode(self, *_: Any) -> NoReturn:
        raise SystemExit(3)

    def __len__(self) -> int:
        return 5


def _raising(kind: type[BaseException]) -> Callable[..., Any]:
    def method(*_: Any, **__: Any) -> NoReturn:
        raise kind("hostile")

    return method


def _returning(value: object) -> Callable[..., Any]:
    return lambda *_, **__: value


BEHAVIOUR: dict[str, Callable[..., Any]] = {
    "raises ValueError": _raising(ValueError),
    "raises SystemExit": _raising(SystemExit),
    "raises KeyboardInterrupt": _raising(KeyboardInterrupt),
    "raises RecursionError": _raising(RecursionError),
    "raises AttributeError": _raising(AttributeError),
    "raises StopIteration": _raising(StopIteration),
    "returns a number": _returning(5),
    "returns nothing": _returning(None),
    "returns an odd text": _returning(Odd("odd")),
    "returns a large text": _returning("x" * 3_000_000),
    "returns control characters": _returning("\0\ud800\udfff\x1b[31m\u202e\r\nFAKE info hello"),
}
METHODS = (
    *(
        "__str__",
        "__repr__",
        "__reduce__",
        "__reduce_ex__",
        "__getattribute__",
        "__getattr__",
        "__eq__",
        "__bool__",
    ),
    *(
        "__len__",
        "__iter__",
        "__format__",
        "__getstate__",
        "with_traceback",
        "items",
        "keys",
        "encode",
        "__index__",
    ),
    *("__int__", "__float__", "add_note", "__contains__", "__getitem__", "isoformat", "total_seconds"),
)
PROPERTIES = (
    *("__class__", "__traceback__", "__cause__", "__context__", "__notes__", "__suppress_context__", "args"),
    *("exceptions", "message", "seconds", "reason", "output", "sqlstate", "orig", "where", "__dict__"),
)
OF_CLASSES = ("__qualname__", "__module__", "__mro__", "__name__", "__dict__", "__bases__")

ERRORS: dict[str, type[BaseException]] = {
    kind.__name__: kind
    for kind in (
        *(Exception, BaseException, ValueError, KeyboardInterrupt, SystemExit, GeneratorExit, StopIteration),
        *(StopAsyncIteration, TimeoutError, MemoryError, RecursionError, OSError, EOFError, BrokenPipeError),
        *(AttributeError, asyncio.CancelledError, PenstockError, CommitFailed, StopRun),
    )
}
BASES: dict[str, type] = {
    "dict": dict,
    "list": list,
    "str": str,
    "int": int,
    "float": float,
    "object": object,
    "Snooze": Snooze,
    "Cancel": Cancel,
    "datetime": datetime,
    "timedelta": timedelta,
}
MADE_OF: dict[str, list[Any]] = {
    "dict": [{"a": 1}],
    "list": [[1]],
    "object": [],
    "datetime": [2026, 1, 1],
    "timedelta": [1],
}


def _nested(depth: int) -> object:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def _circle() -> object:
    value: list[Any] = []
    value.append(value)
    return value


def _generator() -> Any:
    yield 1
    raise SystemExit(2)


VALUES: dict[str, Callable[[], object]] = {
    "nan": lambda: float("nan"),
    "infinity": lambda: float("-inf"),
    "large number": lambda: 10**5000,
    "deep": lambda: _nested(10_000),
    "rather deep": lambda: _nested(250),
    "circle": _circle,
    "surrogate": lambda: "\ud800",
    "nul": lambda: "a\0b",
    "bytes": lambda: b"\xff\0",
    "set": lambda: {1, 2},
    "complex": lambda: 1j,
    "lock": threading.Lock,
    "memoryview": lambda: memoryview(b"abc"),
    "type": lambda: int,
    "error": lambda: ValueError("x"),
    "generator": _generator,
    "keys": lambda: {1: 2, (1, 2): 3, None: 4},
    "large": lambda: "x" * 2_000_000,
    "early": lambda: datetime(1, 1, 1, tzinfo=UTC),
    "late": lambda: datetime(9999, 12, 31, 23, tzinfo=timezone(-timedelta(hours=23))),
    "long snooze": lambda: Snooze(1e300),
    "endless snooze": lambda: Snooze(10**400),
    "no snooze": lambda: Snooze(float("nan")),
    "cancelled": lambda: Cancel("\0\ud800\x1b[2J"),
    "cancelled at length": lambda: Cancel("x" * 5_000_000),
}


def act(case: str) -> object:
    """Do as a hostile handler does: raise, or return."""
    verb, what = json.loads(case)
    if verb == "raise":
        raise _error(what)
    return _value(what)


def thing(case: str) -> Any:
    """What a hostile handler would raise or return, to be used in another place."""
    verb, what = json.loads(case)
    return _error(what) if verb == "raise" else _value(what)


def _members(hostile: dict[str, str]) -> dict[str, Any]:
    return {
        name: property(BEHAVIOUR[how]) if name in PROPERTIES else BEHAVIOUR[how]
        for name, how in hostile.items()
    }


def _kind(bases: tuple[type, ...], hostile: dict[str, str], of_class: dict[str, str]) -> Any:
    def look(cls: type, name: str) -> Any:
        return BEHAVIOUR[of_class[name]]() if name in of_class else type.__getattribute__(cls, name)

    meta = type("Meta", (type,), {"__getattribute__": look} if of_class else {})
    return meta("Hostile", bases, _members(hostile))


def _error(what: Case) -> BaseException:
    match what:
        case ["group", inner, depth]:
            error = _error(inner)
            for _ in range(depth):
                error = BaseExceptionGroup("group", [error])
            return error
        case ["crowd", inner, count]:
            return BaseExceptionGroup("crowd", [_error(inner) for _ in range(count)])
        case ["chain", inner, length]:
            error = _error(inner)
            for _ in range(length):
                after = ValueError("after")
                after.__cause__, error = error, after
            return error
        case ["circle"]:
            one, other = ValueError("one"), ValueError("other")
            one.__cause__, other.__cause__ = other, one
            return one
        case [name, hostile, of_class]:
            return _kind((ERRORS[name],), hostile, of_class)("hostile")  # type: ignore[no-any-return]
    raise AssertionError(what)


def _value(what: Case) -> object:
    if len(what) == 1:
        return VALUES[what[0]]()
    name, hostile = what
    made_of: list[Any] = MADE_OF.get(name, [1])
    return _kind((BASES[name],), hostile, {})(*made_of)


KNOWN: list[Case] = [
    *(["raise", ["Exception", {"__str__": "returns an odd text"}, {}]] for _ in range(2)),
    ["raise", ["group", ["ValueError", {}, {}], 1500]],
    ["raise", ["Exception", {}, {"__qualname__": "raises ValueError"}]],
    ["raise", ["Exception", {}, {"__mro__": "raises ValueError"}]],
    ["raise", ["Exception", {"__getattribute__": "raises ValueError"}, {}]],
    ["raise", ["Exception", {"__class__": "raises KeyboardInterrupt"}, {}]],
    ["return", ["endless snooze"]],
    ["return", ["Snooze", {"seconds": "returns an odd text"}]],
]
"""Those that once kept a job running for ever, and its place."""
