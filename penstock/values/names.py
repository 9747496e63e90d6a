"""The name a function has if nobody gives it another: where others import it from, and what it is called there."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROGRAMS = ("__main__", "__mp_main__")
"""What the module of a program is called in it, and in a process that multiprocessing has spawned for it."""


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
