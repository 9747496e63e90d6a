"""The default name of a function: the module from which others import it, and its name there."""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Callable
from pathlib import Path
from types import CellType, CodeType
from typing import Any

PROGRAMS = ("__main__", "__mp_main__")
"""The name of a program's module in the program itself, and in a process that multiprocessing has spawned for it."""


def qualified_name(function: Callable[..., Any]) -> str:
    return f"{_module(function)}.{function.__qualname__}"


def _module(function: Callable[..., Any]) -> str:
    """A job that `python shop.py` enqueues must have the name by which `penstock worker shop:app` knows its task."""
    module = function.__module__
    if module not in PROGRAMS:
        return module
    program = getattr(inspect.unwrap(function), "__globals__", {})
    spec, file = program.get("__spec__"), program.get("__file__")
    if spec is not None:
        return str(spec.name)
    return Path(file).stem if file else module


# Whether a function is one that was declared before: a module is loaded twice, a cell of a notebook is run again.
#
# Two functions are the same if their module and qualified name match, unless one definition made both for two objects
# or values.

LAMBDA = "<lambda>"
"""The name of all functions without a name."""

Function = Callable[..., Any]


def same(old: Function, new: Function) -> bool:
    """True if both have the same name in the same module."""
    return _origin(old) == _origin(new)


def bound_apart(old: Function, new: Function) -> bool:
    """True for methods of two objects, or functions that one definition made with two values."""
    if _code(old) is not _code(new):
        return False
    if getattr(old, "__self__", None) is not getattr(new, "__self__", None):
        return True
    one, other = _plain_values(old), _plain_values(new)
    return any(one[name] != other[name] for name in one.keys() & other.keys())


def both_written(old: Function, new: Function) -> bool:
    """True if one file contains two definitions of this name: the second does not replace the first.

    What was executed again, from a file that was changed meanwhile, may stand in another line too; but then the first
    is not where it was.
    """
    one, other = _code(old), _code(new)
    if (
        not isinstance(one, CodeType)
        or not isinstance(other, CodeType)
        or one.co_filename != other.co_filename
    ):
        return False
    lines = {one.co_firstlineno, other.co_firstlineno}
    return len(lines) == 2 and lines <= _lines_of(one.co_filename, one.co_name)


def _lines_of(file: str, name: str) -> set[int]:
    """Where functions of this name begin, decorators included; none if the file cannot be read."""
    linecache.checkcache(file)
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return set()
    return {
        min([node.lineno, *[decorator.lineno for decorator in node.decorator_list]])
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name
    }


def _origin(function: Function) -> tuple[object, ...]:
    name = getattr(function, "__qualname__", function)
    unnamed = getattr(function, "__name__", "") == LAMBDA
    return getattr(function, "__module__", ""), name, getattr(function, "__code__", None) if unnamed else None


def _code(function: Function) -> object:
    """The code object of a function; a definition that is executed again makes a new one."""
    return getattr(inspect.unwrap(function), "__code__", function)


def _plain_values(function: Function) -> dict[object, object]:
    """The values of its closure and its defaults that can be compared."""
    inner: Any = inspect.unwrap(function)
    if not hasattr(inner, "__code__"):
        return {}
    around = zip(inner.__code__.co_freevars, inner.__closure__ or (), strict=False)
    values = {name: cell.cell_contents for name, cell in around if cell != CellType()}
    values |= enumerate(inner.__defaults__ or ())
    values |= inner.__kwdefaults__ or {}
    return {name: value for name, value in values.items() if isinstance(value, str | bytes | int | float)}
