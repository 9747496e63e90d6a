"""Runs work in the caller that enqueues it, for tests that need no worker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.testing.drain import drain

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.queue.jobs import NewJob


@contextmanager
def inline(app: Penstock, *, raises: bool = False) -> Iterator[None]:
    """Inside the block an enqueue runs the job, and whatever else is due, before it returns; so do nested ones.

    Outcomes are recorded as usual: an error is on the job, and `job.result()` has the value. With `raises` a handler's
    error comes out of the enqueue too, with its traceback.
    What is delayed, a retry included, waits for `travel` and `drain`. A job enqueued with `connection=` is not
    there before the caller commits: it runs with the next enqueue, or with `drain(app)`.
    """

    def run(_jobs: Sequence[NewJob]) -> None:
        _outside_any_loop(app, raises)

    before, app.inline = app.inline, run
    try:
        yield
    finally:
        app.inline = before


def _outside_any_loop(app: Penstock, raises: bool) -> None:
    """Run the jobs on an event loop of their own: a synchronous enqueue blocks the caller's loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        drain(app, raises=raises)
        return
    problems: list[BaseException] = []
    thread = threading.Thread(target=_kept, args=(app, raises, problems), name="penstock-inline", daemon=True)
    thread.start()
    thread.join()
    for problem in problems:
        raise problem


def _kept(app: Penstock, raises: bool, problems: list[BaseException]) -> None:
    try:
        drain(app, raises=raises)
    except BaseException as error:
        problems.append(error)
