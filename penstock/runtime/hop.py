"""From any thread to the event loop's."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import Any


def hop(loop: AbstractEventLoop, action: Callable[..., object], *args: Any) -> bool:
    """Have the loop do this. False: it is closed, and never will."""
    try:
        loop.call_soon_threadsafe(action, *args)
    except RuntimeError:
        if not loop.is_closed():
            raise
        return False
    return True
