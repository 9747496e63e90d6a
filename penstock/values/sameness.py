"""Whether a function is one that was declared before: a module is loaded twice, a cell of a notebook is run again.

By its name it is. What one definition has made for two objects or with two values has one name too, and is not.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import CellType
from typing import Any

LAMBDA = "<lambda>"
"""What all functions without a name are called."""

Function = Callable[..., Any]


def same(old: Function, new: Function) -> bool:
    """They have one name, in one module."""
    return _origin(old) == _origin(new)


def bound_apart(old: Function, new: Function) -> bool:
    """Methods of two objects, or functions that one definition has made with two values."""
    if _code(old) is not _code(new):
        return False
    if getattr(old, "__self__", None) is not getattr(new, "__self__", None):
        return True
    one, other = _plain_values(old), _plain_values(new)
    return any(one[name] != other[name] for name in one.keys() & other.keys())


def _origin(function: Function) -> tuple[object, ...]:
    name = getattr(function, "__qualname__", function)
    unnamed = getattr(function, "__name__", "") == LAMBDA
    return getattr(function, "__module__", ""), name, getattr(function, "__code__", None) if unnamed else None


def _code(function: Function) -> object:
    """A definition that is executed again has another."""
    return getattr(inspect.unwrap(function), "__code__", function)


def _plain_values(function: Function) -> dict[object, object]:
    """What it has from around it and by default, as far as a look tells one from another."""
    inner: Any = inspect.unwrap(function)
    if not hasattr(inner, "__code__"):
        return {}
    around = zip(inner.__code__.co_freevars, inner.__closure__ or (), strict=False)
    values = {name: cell.cell_contents for name, cell in around if cell != CellType()}
    values |= enumerate(inner.__defaults__ or ())
    values |= inner.__kwdefaults__ or {}
    return {name: value for name, value in values.items() if isinstance(value, str | bytes | int | float)}
