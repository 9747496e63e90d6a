"""The value that `job.once()` keeps: the result of a function, in the form that its return annotation gives it.

The function has been called by the time its value is written: whatever can be kept in any way is kept.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.errors import SerializationError
from penstock.values.typed_json import tags
from penstock.values.typed_json.converter import ANYTHING, Mismatch, TypeConverter
from penstock.values.typed_json.json_text import dumps, loads


class OnceValue:
    def __init__(self, name: str, function: Callable[..., object]) -> None:
        self.name = name
        self._shape = _shape(function)

    def write(self, value: object) -> str:
        """The JSON text of a value; raises `SerializationError`."""
        if inspect.isawaitable(value):
            raise SerializationError(
                f"what {self.name!r} returned is to be awaited: `await job.once_async({self.name!r}, ...)` does that"
            )
        try:
            return dumps(self._raw(value))
        except Mismatch as error:
            raise SerializationError(
                f"what {self.name!r} returned cannot be remembered: {error}. "
                "Annotate what the function returns, or return plain values"
            ) from None

    def read(self, text: str) -> object:
        raw = loads(text)
        try:
            return self._shape.read(raw)
        except Mismatch:
            return tags.read(raw)

    def _raw(self, value: object) -> object:
        try:
            return self._shape.write(value)
        except Mismatch:
            return ANYTHING.write(value)


def _shape(function: Callable[..., object]) -> TypeConverter:
    """The converter of the return annotation; an annotation that cannot be used counts as none."""
    try:
        return TypeConverter(_returned(function))
    except Exception:
        return ANYTHING


def _returned(function: Callable[..., object]) -> Any:
    while isinstance(function, partial):
        function = function.func
    if isinstance(function, type):
        return function
    return typing.get_type_hints(inspect.unwrap(function), include_extras=True).get("return", Any)
