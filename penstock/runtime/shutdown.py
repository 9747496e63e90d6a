"""Shuts a worker down: finishes or gives back what it holds, ends its threads, removes its process row.

A shutdown must complete even if its caller is cancelled or the event loop ends: a heartbeat that went on would keep
the claims of a worker that does nothing any more. So the event loop only waits for handlers, which may be cut short;
a thread does the rest, and no caller can cancel it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.async_bridge import ended, one_thread
from penstock.database.transaction import Transaction
from penstock.errors import DatabaseUnavailable
from penstock.queue.wakeups import READY
from penstock.runtime.liveness.process_row import Departure
from penstock.telemetry.events import ProcessDeserted, ProcessStopped, TroubleBegan

if TYPE_CHECKING:
    from penstock.runtime.worker import Worker

LEAVE_AGAIN = 0.5
SETTLE_FOR = 5.0


class Shutdown:
    """One worker's."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.by = 0.0
        self.leaving: Future[None] | None = None
        self._lock = threading.Lock()

    async def go(self, limit: float) -> None:
        """Let running handlers finish in time, give back the rest, and end. If cancelled: the same, at once."""
        self.by = self.worker.loop.time() + limit
        thread = one_thread("leave")
        try:
            await self._finish_work(limit)
        except (Exception, asyncio.CancelledError):
            await ended(self.begin(thread))
            raise
        await ended(self.begin(thread))

    def begin(self, thread: Executor) -> Future[None]:
        """Begin the end in this thread, after the calls that it was given before."""
        with self._lock:
            if self.leaving is None:
                try:
                    self.leaving = thread.submit(self._leave)
                except RuntimeError:  # the system has no more threads
                    self.leaving = _done_here(self._leave)
        thread.shutdown(wait=False)
        return self.leaving

    def go_if_deserted(self) -> None:
        """Called in the heartbeat's thread: end the worker if its event loop was closed under it.

        Then no caller can stop this worker any more; and while it writes heartbeats, no other process takes its claims.
        """
        worker = self.worker
        if not worker.loop.is_closed() or self.leaving is not None:
            return
        worker.hurry()
        self.begin(one_thread("leave"))
        for over in (worker.stopping, worker.stopped):
            with suppress(RuntimeError):  # only callers on the closed loop waited for these events
                over.set()

    async def _finish_work(self, limit: float) -> None:
        try:
            await self._let_finish(limit)
        except asyncio.CancelledError:
            self.worker.hurry()
            await self._take_back()
            raise
        await self._take_back()

    async def _let_finish(self, limit: float) -> None:
        worker = self.worker
        worker.pump.claiming = False
        worker.waker.wake()
        # Claims that arrive later are given back too.
        worker.dispatcher.give_back_waiting()
        worker.rows.give_back_waiting()
        await self._until(lambda: worker.busy == 0 or worker.hurried, limit)

    async def _take_back(self) -> None:
        worker = self.worker
        worker.dispatcher.give_back_running()
        worker.rows.give_back_running()
        await self._until(lambda: worker.busy == 0, 2)
        worker.rows.give_up_running()
        # While the database is away, outcomes are not settled yet: use the rest of the time for them. For those that
        # the database refuses by themselves a moment must do.
        await self._until(lambda: worker.at_rest or worker.only_refused, self._left(SETTLE_FOR))
        if worker.only_refused:
            await self._until(lambda: worker.at_rest, SETTLE_FOR)

    async def _until(self, done: Callable[[], bool], seconds: float) -> None:
        deadline = self.worker.loop.time() + seconds
        while not done() and self.worker.loop.time() < deadline:  # noqa: ASYNC110 - threads decide
            await asyncio.sleep(0.005)

    def _left(self, at_least: float) -> float:
        return at_least if self.worker.hurried else max(at_least, self.by - self.worker.loop.time())

    def _leave(self) -> None:
        worker = self.worker
        if worker.services:
            if worker.loop.is_closed():
                self._take_back_deserted()
            self._end_threads()
        if not worker.identity.id:
            return  # the process was never registered
        try:
            self._deregister()
        finally:
            if worker.services:
                worker.close_links()
        worker.app.events.emit(ProcessStopped(worker.identity.id))

    def _take_back_deserted(self) -> None:
        worker = self.worker
        worker.app.events.emit(ProcessDeserted(worker.identity.id))
        worker.pump.claiming = False
        worker.dispatcher.give_back_deserted()
        worker.rows.give_back_deserted()
        deadline = time.monotonic() + SETTLE_FOR
        while not worker.at_rest and time.monotonic() < deadline:
            threading.Event().wait(0.01)

    def _end_threads(self) -> None:
        worker = self.worker
        worker.rows.close()
        for service in worker.services:
            service.stop()
        for service in worker.services:
            service.join(10)
        worker.stop_listening()
        worker.executors.close()

    def _deregister(self) -> None:
        """Remove the process row, and give back the claims that could not be settled."""
        worker, app = self.worker, self.worker.app
        while True:
            try:
                Departure(app.database, app.events, [worker.identity.id], self._wake_others).go()
                return
            except Exception as error:
                may_pass = isinstance(error, DatabaseUnavailable)
                if not may_pass or self._left(0) == 0 or worker.hurried:
                    app.events.emit(TroubleBegan("stop", f"{error} Others will find this process dead."))
                    return
            threading.Event().wait(min(LEAVE_AGAIN, self._left(0)))

    def _wake_others(self, tx: Transaction) -> None:
        self.worker.app.wakeups.notify_other_processes(tx, [READY])


def _done_here(work: Callable[[], None]) -> Future[None]:
    """Do the work in this thread; returns a finished future."""
    future: Future[None] = Future()
    try:
        work()
    except Exception as error:
        future.set_exception(error)
    else:
        future.set_result(None)
    return future
