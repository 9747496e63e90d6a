"""Waiting for other processes: the only place in the tests that may sleep.

Tests that stay in their own process never wait: they turn the loops themselves and move the database clock.
"""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

POLL_SECONDS = 0.02


def eventually(look: Callable[[], T], timeout: float = 30.0) -> T:
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
        time.sleep(POLL_SECONDS)
