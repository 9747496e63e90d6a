"""Waiting for other processes and threads: the only place in the tests that may sleep.

Tests that need neither never wait: they turn the loops themselves and move the database clock.
"""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

POLL_SECONDS = 0.02


def eventually(look: Callable[[], T], timeout: float = 30.0, pause: float = POLL_SECONDS) -> T:
    """Look until there is something true to see, and return it.

    An AssertionError in `look` counts as not yet; the last one is raised when the time is over.
    """
    end = time.monotonic() + timeout
    while True:
        try:
            if seen := look():
                return seen
            not_yet = AssertionError(f"still {seen!r} after {timeout} s")
        except AssertionError as error:
            not_yet = error
        if time.monotonic() > end:
            raise not_yet
        time.sleep(pause)


async def until(look: Callable[[], object], timeout: float = 60.0) -> None:
    """Yield to the loop until there is something true to see."""
    async with asyncio.timeout(timeout):
        while not look():  # noqa: ASYNC110 - what is looked at lies in the database, and cannot set an event
            await asyncio.sleep(POLL_SECONDS / 4)


def pass_time(seconds: float) -> None:
    """Where time that passes is itself what is tested."""
    time.sleep(seconds)
