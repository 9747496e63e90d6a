"""Properties that are worked out once, at their first use.

Python 3.11 holds a lock meanwhile, one for all objects of the class: a child forked by another thread just then would
wait for it for ever. Newer ones hold none, and neither do we: two threads that come first may both work it out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar

T = TypeVar("T")


class cached_property(functools.cached_property[T]):
    """`functools.cached_property` without its lock."""

    def __init__(self, func: Callable[[Any], T]) -> None:
        super().__init__(func)
        self.lock = nullcontext()
