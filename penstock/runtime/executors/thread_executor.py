"""`def` handlers: threads. A thread cannot be ended from outside, so its overtime is reported, not hidden."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading

from penstock.handler_environment import HandlerEnvironment
from penstock.runtime.executors import event_for
from penstock.runtime.executors.work import Interruption, Key, Work
from penstock.telemetry.events import HandlerOverdue, Stream
from penstock.telemetry.fault_points import SimulatedCrash
from penstock.values.outcome import TimedOut, raised

log = logging.getLogger("penstock")


class ThreadExecutor:
    """As many threads as there is work for, kept for the next."""

    def __init__(self, around: HandlerEnvironment, stream: Stream) -> None:
        self.around = around
        self.stream = stream
        self._inbox: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._idle = 0
        """Threads that wait for work; below zero: works that wait for a thread."""
        self._threads = 0
        self._taken: dict[Key, threading.Thread | None] = {}
        """By thread, the work that it runs; None: it waits for work."""
        self._lock = threading.Lock()

    def start(self, work: Work) -> None:
        with self._lock:
            while self._idle <= 0 and self._add_thread():
                pass
            self._idle -= 1
        self._taken[work.key] = None
        if work.timeout is not None:
            asyncio.get_running_loop().call_later(work.timeout, self._overdue, work)
        self._inbox.put(work)

    def _add_thread(self) -> bool:
        """False: the system has no more; those that there are will come to what waits. Raises if there are none."""
        name = f"penstock-handler-{self._threads + 1}"
        try:
            threading.Thread(target=self._serve, name=name, daemon=True).start()
        except RuntimeError:
            if self._threads == 0:
                raise
            return False
        self._threads += 1
        self._idle += 1
        return True

    def _serve(self) -> None:
        while (work := self._inbox.get()) is not None:
            self._taken[work.key] = threading.current_thread()
            try:
                self._work_on(work)
            except SimulatedCrash:
                raise
            except BaseException:
                log.exception("what came of %s %s could not be told", work.name, work.id)
            with self._lock:
                self._idle += 1
            work.owner.vacate(work)  # after a timeout that is later than its end
            self._taken.pop(work.key, None)

    def _work_on(self, work: Work) -> None:
        """Whatever the handler does, its claim gets an end, and this thread goes on."""
        if not work.begin_once():
            return
        try:
            event = work.run_here(self.around)
        except SimulatedCrash:
            raise
        except BaseException as error:
            event = raised(error)
        if work.end_once():
            work.owner.done_elsewhere(work, event)

    def _overdue(self, work: Work) -> None:
        left = work.time_left()
        if left is not None and left > 0:
            asyncio.get_running_loop().call_later(left, self._overdue, work)
        elif work.end_once():
            work.signals.cancelled = work.signals.overdue = True
            self.stream.emit(HandlerOverdue(work.id, work.name, work.timeout or 0.0))
            work.owner.done_elsewhere(work, TimedOut(work.timeout or 0.0))

    def interrupt(self, work: Work, why: Interruption) -> None:
        """The handler may only see it, as a cancelled job does on `current()`; or its claim is over without it.

        One that still waits for a thread never begins.
        """
        work.interrupted = why
        if work.end_unbegun() or (why is not work.only_seen and work.end_once()):
            work.owner.done_elsewhere(work, event_for(why))

    def has(self, work: Work) -> bool:
        if work.key not in self._taken:
            return False
        thread = self._taken.get(work.key)
        return thread is None or thread.is_alive()

    def close(self) -> None:
        with self._lock:
            for _ in range(self._threads):
                self._inbox.put(None)
