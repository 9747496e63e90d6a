"""The event loop of a worker process, which is also the handlers': none of them ends it for the others.

To asyncio a SystemExit is the end of the program, also from a task that a handler has started. Here it is that task's
error, and becomes the error of whoever awaits it. Only that way does it spend a retry: a loop that ends gives back
what it held, and the handler would do the same again to the next process, for ever.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

R = TypeVar("R")

log = logging.getLogger("penstock")


def run(main: Coroutine[Any, Any, R]) -> R:
    """`asyncio.run`, but the loop ends with `main` and not before."""
    with asyncio.Runner() as runner:
        return run_on(runner, main)


def run_on(runner: asyncio.Runner, main: Coroutine[Any, Any, R]) -> R:
    loop = runner.get_loop()
    living = loop.create_task(main)
    while True:
        try:
            return loop.run_until_complete(living)
        except (SystemExit, KeyboardInterrupt, RuntimeError) as error:
            if living.done() or loop.is_closed() or _is_meant(error):
                raise
            log.error("a handler has tried to end its worker, which goes on", exc_info=error)


def _is_meant(error: BaseException) -> bool:
    """Nobody answers signals yet, or any more: it was a key that somebody pressed."""
    unanswered = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return isinstance(error, KeyboardInterrupt) and unanswered
