"""From any thread to the event loop's."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


def hop(loop: AbstractEventLoop, action: Callable[..., object], *args: Any) -> bool:
    """Have the loop do this. False: it is closed, and never will."""
    try:
        loop.call_soon_threadsafe(action, *args)
    except RuntimeError:
        if not loop.is_closed():
            raise
        return False
    return True


def taken_from(items: deque[T]) -> Iterator[T]:
    """All of them. Each comes out once, whoever else takes from there at the same time."""
    while items:
        with suppress(IndexError):
            yield items.popleft()
