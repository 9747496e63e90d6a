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
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.queue import family
from penstock.runtime import lasting, signals
from penstock.runtime.options import WorkerOptions
from penstock.runtime.worker import Worker
from penstock.telemetry import points
from penstock.telemetry.events import StopRequested, WorkReleased

if TYPE_CHECKING:
    from penstock.runtime.host import Host

log = logging.getLogger("penstock")

LAST_MOMENT = 3.0
"""How long a process that must stop at once may take to do it in order, and again to give back its work."""
OVERTIME = 10.0
"""What a process may take beyond `shutdown_timeout` to give back its work and leave."""
HURRIED = 128 + signal.SIGTERM


class Stop:
    """What was asked of this process so far. Its methods are signal handlers."""

    def __init__(self, app: Host, worker: Worker, *, alone: bool) -> None:
        self.app = app
        self.worker = worker
        self.alone = alone
        """There is no supervisor to end what does not end by itself."""
        self.loop = asyncio.get_running_loop()
        self.requested = asyncio.Event()
        self.told = 0.0
        self.code = 0

    def ask(self, number: int) -> None:
        """The first time: in order. After that: at once."""
        if not self.requested.is_set():
            self.ask_once(number)
        elif time.monotonic() > self.told + signals.ECHO:
            self.hurry(number)

    def ask_once(self, number: int) -> None:
        if not self.requested.is_set():
            self.app.events.emit(StopRequested(signals.name_of(number), False))
            self.told = time.monotonic()
            self.requested.set()
            self.loop.call_soon_threadsafe(lambda: None)
            if self.alone:
                self._leave_after(self.app.settings.shutdown_timeout + OVERTIME)

    def hurry(self, number: int) -> None:
        if not self.worker.hurried:
            self.app.events.emit(StopRequested(signals.name_of(number), True))
            self.code = 128 + number if number != signals.HURRY else HURRIED
            self.worker.hurry()
            self.requested.set()
            self.loop.call_soon_threadsafe(lambda: None)
            self._leave_after(LAST_MOMENT)

    def _leave_after(self, seconds: float) -> None:
        threading.Thread(
            target=self._leave_anyway, args=(seconds,), name="penstock-last-moment", daemon=True
        ).start()

    def _leave_anyway(self, seconds: float) -> None:
        """A handler may hold the main thread: then nobody else is left to give the work back."""
        threading.Event().wait(seconds)
        giving_back = threading.Thread(target=self._give_back, name="penstock-give-back", daemon=True)
        giving_back.start()
        giving_back.join(LAST_MOMENT)  # should the database not answer, others will find this process dead
        os._exit(self.code)

    def _give_back(self) -> None:
        jobs = self.app.database.in_transaction(family.leave, [self.worker.identity.id])
        self.app.events.emit(WorkReleased(len(jobs)))


def serve_alone(app: Host, options: WorkerOptions) -> int:
    """Everything in this process, until a signal stops it; the exit code."""

    async def live() -> int:
        worker = Worker(app, options)
        stop = Stop(app, worker, alone=True)
        handlers: dict[signal.Signals, signals.Handler | None] = dict.fromkeys(signals.that_stop(), stop.ask)
        with (
            signals.handling(handlers | {signals.HURRY: stop.hurry}),
            signals.dumping_stacks(worker.dump_stacks),
        ):
            return await _live(worker, stop)

    points.watch(app.settings.crash_at)
    return lasting.run(live())


def serve_supervised(app: Host, options: WorkerOptions, lifeline: int, ready: Callable[[], None]) -> int:
    """The life of a forked child: until its supervisor stops it, or is gone."""

    async def live() -> int:
        worker = Worker(app, options)
        stop = Stop(app, worker, alone=False)
        handlers: dict[signal.Signals, signals.Handler | None] = {
            signal.SIGTERM: stop.ask_once,
            signal.SIGINT: None,
            signal.SIGHUP: None,
            signal.SIGCHLD: lambda _number: None,
            signals.HURRY: stop.hurry,
        }
        with signals.handling(handlers), signals.dumping_stacks(worker.dump_stacks):
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            threading.Thread(target=_watch, args=(lifeline,), name="penstock-lifeline", daemon=True).start()
            return await _live(worker, stop, ready)

    points.watch(app.settings.crash_at)
    return lasting.run(live())


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
