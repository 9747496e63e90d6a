"""One worker process from start to stop: the whole of `--processes 0`, and the life of every forked child.

The first stop signal lets running work finish within `shutdown_timeout`; the second gives it back and
leaves. Either way no budget is spent. A supervised child obeys its supervisor only, and stops when that is
gone. Nothing lasts for ever, not even if a handler holds the main thread or the database does not answer: a child is
killed by its supervisor, and who has none leaves by itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.runtime import os_signals
from penstock.runtime.liveness.process_row import Departure
from penstock.runtime.worker import Worker, WorkerOptions
from penstock.telemetry import fault_points
from penstock.telemetry.events import StopRequested, WorkReleased

if TYPE_CHECKING:
    from penstock.app_services import AppServices


# The event loop of a worker process, which is also the handlers': none of them ends it for the others.
#
# To asyncio a SystemExit is the end of the program, also from a task that a handler has started. Here it is that
# task's error, and becomes the error of the code that awaits it. Only that way does it spend a retry: a loop that
# ends gives back what it held, and the handler would do the same again to the next process, for ever.

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
    """True while no handler of signals is set: the interrupt came from a key."""
    unanswered = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return isinstance(error, KeyboardInterrupt) and unanswered


LAST_MOMENT = 3.0
"""How long a process that must stop at once may take to do it in order, and again to give back its work."""
OVERTIME = 10.0
"""Seconds that a process may take beyond `shutdown_timeout` to give back its work and leave."""
HURRIED = 128 + signal.SIGTERM


class Stop:
    """Records how this process was asked to stop. Its methods are signal handlers."""

    def __init__(self, app: AppServices, worker: Worker, *, alone: bool) -> None:
        self.app = app
        self.worker = worker
        self.alone = alone
        """True if there is no supervisor that could kill this process."""
        self.loop = asyncio.get_running_loop()
        self.requested = asyncio.Event()
        self.told = 0.0
        self.code = 0

    def ask(self, number: int) -> None:
        """Handle a stop signal: the first one stops in order, a second one at once."""
        if not self.requested.is_set():
            self.ask_once(number)
        elif time.monotonic() > self.told + os_signals.ECHO:
            self.hurry(number)

    def ask_once(self, number: int) -> None:
        if not self.requested.is_set():
            self.app.events.emit(StopRequested(os_signals.name_of(number), False))
            self.told = time.monotonic()
            self.requested.set()
            self.loop.call_soon_threadsafe(lambda: None)
            if self.alone:
                self._leave_after(self.app.settings.shutdown_timeout + OVERTIME)

    def hurry(self, number: int) -> None:
        if not self.worker.hurried:
            self.app.events.emit(StopRequested(os_signals.name_of(number), True))
            self.code = 128 + number if number != os_signals.HURRY else HURRIED
            self.worker.hurry()
            self.requested.set()
            self.loop.call_soon_threadsafe(lambda: None)
            self._leave_after(LAST_MOMENT)

    def _leave_after(self, seconds: float) -> None:
        threading.Thread(
            target=self._leave_anyway, args=(seconds,), name="penstock-last-moment", daemon=True
        ).start()

    def _leave_anyway(self, seconds: float) -> None:
        """End the process even if a handler holds the main thread: no other thread is left to give the work back."""
        threading.Event().wait(seconds)
        giving_back = threading.Thread(target=self._give_back, name="penstock-give-back", daemon=True)
        giving_back.start()
        giving_back.join(LAST_MOMENT)  # should the database not answer, others will find this process dead
        os._exit(self.code)

    def _give_back(self) -> None:
        jobs = Departure(self.app.database, self.app.events, [self.worker.identity.id]).go()
        self.app.events.emit(WorkReleased(len(jobs)))


def serve_alone(app: AppServices, options: WorkerOptions) -> int:
    """Everything in this process, until a signal stops it; the exit code."""

    async def live() -> int:
        worker = Worker(app, options)
        stop = Stop(app, worker, alone=True)
        handlers: dict[signal.Signals, os_signals.Handler | None] = dict.fromkeys(
            os_signals.that_stop(), stop.ask
        )
        with (
            os_signals.handling(handlers | {os_signals.HURRY: stop.hurry}),
            os_signals.dumping_stacks(worker.dump_stacks),
        ):
            return await _live(worker, stop)

    fault_points.watch(app.settings.crash_at)
    return run(live())


def serve_supervised(
    app: AppServices, options: WorkerOptions, lifeline: int, ready: Callable[[], None]
) -> int:
    """The life of a forked child: until its supervisor stops it, or is gone."""

    async def live() -> int:
        worker = Worker(app, options)
        stop = Stop(app, worker, alone=False)
        handlers: dict[signal.Signals, os_signals.Handler | None] = {
            signal.SIGTERM: stop.ask_once,
            signal.SIGINT: None,
            signal.SIGHUP: None,
            signal.SIGCHLD: lambda _number: None,
            os_signals.HURRY: stop.hurry,
        }
        with os_signals.handling(handlers), os_signals.dumping_stacks(worker.dump_stacks):
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            threading.Thread(target=_watch, args=(lifeline,), name="penstock-lifeline", daemon=True).start()
            return await _live(worker, stop, ready)

    fault_points.watch(app.settings.crash_at)
    return run(live())


async def _live(worker: Worker, stop: Stop, ready: Callable[[], None] = lambda: None) -> int:
    await worker.start()
    ready()
    await stop.requested.wait()
    await worker.stop()
    return stop.code


def _watch(lifeline: int) -> None:
    """The other end is held open by the supervisor alone: when it closes, the supervisor is gone."""
    while os.read(lifeline, 1):
        pass
    log.error("the supervisor is gone: this process stops, as after SIGTERM. Start the worker again")
    os.kill(os.getpid(), signal.SIGTERM)
