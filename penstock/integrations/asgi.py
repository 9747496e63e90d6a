"""A worker in the lifespan of an ASGI application: FastAPI, Starlette, Litestar, and whatever has lifespans.

    api = FastAPI(lifespan=lifespan(app))

Every process of the server is a worker then. When the server stops, jobs that run may finish within
`shutdown_timeout`, and the log says which are waited for. A second Ctrl-C gives them back at once. The reloader of a
development server waits for nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from types import FrameType
from typing import TYPE_CHECKING, Any

from penstock.values.parse import checked, seconds

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.runtime.worker import Worker

log = logging.getLogger("penstock")

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]
RELOADERS = ("--reload", "--autoreload")
"""Options of servers that start again when a file changes: uvicorn, hypercorn, granian, litestar."""


def lifespan(
    app: Penstock,
    existing: Lifespan | None = None,
    *,
    shutdown_timeout: float | None = None,
    **options: Any,
) -> Lifespan:
    """Make a lifespan that runs a worker: `FastAPI(lifespan=lifespan(app))`, `Litestar(lifespan=[lifespan(app)])`.

    `existing` is a lifespan that the application has already: the worker starts after it, and stops before it ends.
    `options` are those of `app.worker()`: `queues=`, `concurrency=`, `role=`. `shutdown_timeout` is how long running
    jobs may go on when the server stops: the app's setting, and 0 under a reloader.
    """
    patience = (
        checked("shutdown_timeout", shutdown_timeout, seconds) if shutdown_timeout is not None else None
    )

    @asynccontextmanager
    async def around(server_app: Any) -> AsyncIterator[Any]:
        async with AsyncExitStack() as stack:
            state = None
            if existing is not None:
                state = await stack.enter_async_context(existing(server_app))
            await stack.enter_async_context(running_worker(app, patience, **options))
            yield state

    return around


@asynccontextmanager
async def running_worker(
    app: Penstock, patience: float | None = None, **options: Any
) -> AsyncIterator[Worker]:
    """A worker for the time of the block, which stops at once at a second Ctrl-C."""
    worker = app.worker(**options)
    await worker.start()
    limit = patience if patience is not None else (0.0 if is_reloaded() else app.settings.shutdown_timeout)
    try:
        yield worker
    except asyncio.CancelledError:  # the server stops at once, or its event loop ends
        limit = 0.0
        raise
    finally:
        _tell(worker.running_tasks, limit)
        with _hurried_by_signals(worker):
            await worker.stop(limit)


def is_reloaded(arguments: Sequence[str] | None = None) -> bool:
    """True if this process is started again whenever a file changes, as development servers do."""
    given = list(arguments) if arguments is not None else sys.argv
    by_fastapi = os.path.basename(given[0] if given else "").startswith("fastapi") and "dev" in given[1:2]
    by_option = any(argument.split("=")[0] in RELOADERS for argument in given[1:])
    return by_option or by_fastapi or os.environ.get("WERKZEUG_RUN_MAIN") == "true"


def _tell(running: dict[str, int], limit: float) -> None:
    if not running:
        return
    named = ", ".join(task if count == 1 else f"{task} ({count})" for task, count in running.items())
    jobs = "1 running job" if sum(running.values()) == 1 else f"{sum(running.values())} running jobs"
    if limit > 0:
        log.warning(
            "stopping: %s may finish within %g s: %s. Press Ctrl-C again to give them back at once",
            jobs,
            limit,
            named,
        )
    else:
        log.warning("stopping: %s given back: %s", jobs, named)


@contextmanager
def _hurried_by_signals(worker: Worker) -> Iterator[None]:
    """While the worker stops: a further signal stops it at once. Servers note the signal and go on waiting."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[signal.Signals, Any] = {}

    def hurry(number: int, frame: FrameType | None) -> None:
        log.warning("stopping at once: what still runs is given back")
        worker.hurry()
        if callable(earlier := before.get(signal.Signals(number))):
            with suppress(KeyboardInterrupt):
                earlier(number, frame)

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, hurry)
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier if earlier is not None else signal.SIG_DFL)
