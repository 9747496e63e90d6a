"""Runs the handlers of one reconciler: `async def` on the worker's loop, `def` in threads.

No more than `workers` at a time. A few rows more wait here, as many as are done in a few turns of the pump; more are
fetched when half of them are gone, never by a timer. A row that waits can always be given back.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from penstock.reconcile.item import Item
from penstock.reconcile.outcome import (
    VisitKind,
    VisitOutcome,
    beforehand,
    errored,
    failed,
    raised,
    released,
    returned,
)
from penstock.reconcile.reconciler import Reconciler
from penstock.runtime.executors.async_executor import CLEANING_UP
from penstock.runtime.executors.dispatcher import PlaceLost
from penstock.runtime.executors.start_pause import Hindrance
from penstock.runtime.executors.work import Interruption
from penstock.runtime.service import call_on_loop, drain_deque
from penstock.telemetry.events import HandlerOverdue, PlaceFreed, Stream
from penstock.telemetry.fault_points import SimulatedCrash
from penstock.values.failure import Failure
from penstock.values.typed_json.annotations import is_async, waited_for

# What a handler did outside the database may have to be undone, when its row was lost; only the user knows how.

log = logging.getLogger("penstock")


async def undo(hook: Callable[..., Any], item: Item, values: Mapping[str, Any] | None) -> None:
    """Call `on_lost`, and log what it raises: no caller waits for it."""
    try:
        if is_async(hook):
            await hook(item, values)
        else:
            await waited_for(await asyncio.to_thread(hook, item, values))
    except Exception:
        log.warning("%r was lost, and its on_lost has failed", item, exc_info=True)


TURN = 0.01
"""About what a turn of the pump takes, until it is known better."""
TURNS_AHEAD = 3
"""Half of it is left when more is fetched: a turn, and half a turn for those that take longer."""


class RowDispatcher:
    """Runs the handlers of one reconciler in this process, on one event loop."""

    def __init__(
        self, reconciler: Reconciler, finished: Callable[[VisitOutcome], None], stream: Stream
    ) -> None:
        self.reconciler = reconciler
        self.policy = reconciler.policy
        self.finished = finished
        self.stream = stream
        self.loop = asyncio.get_running_loop()
        self.active: dict[Item, asyncio.Task[None] | None] = {}
        self.waiting: deque[Item] = deque()
        self.coming: deque[Item] = deque()
        """On their way from the pump's thread to the loop's: if that is closed, they never arrive."""
        self.closing = False
        self._why: dict[Item, Interruption] = {}
        self._over: set[Item] = set()
        self._undoing: set[asyncio.Task[None]] = set()
        self._average = 0.05
        self._turn = TURN
        self._asked = 0.0
        self._pool: ThreadPoolExecutor | None = None
        self._threads: dict[Item, Future[None]] = {}
        self._missed: set[Item] = set()
        self._hindrance = Hindrance()
        self._lock = threading.Lock()

    def room(self) -> int:
        """How many rows the pump may bring now: none while enough wait, all that fit once half of those are gone."""
        if not self.reconciler.enabled or self.loop.is_closed() or self._hindrance.is_fresh:
            return 0
        workers, ahead = self.policy.workers, self._ahead()
        waiting = len(self.waiting) + len(self.coming)
        if len(self.active) >= workers and waiting > ahead // 2:
            return 0
        self._asked = time.monotonic()
        return workers + ahead - len(self.active) - waiting

    def _ahead(self) -> int:
        """How many rows may wait: as many as are done in a few turns, by handlers past and present."""
        present = [item.began for item in list(self.active)]
        running = time.monotonic() - sum(present) / len(present) if present else 0.0
        done = TURNS_AHEAD * self.policy.workers * self._turn / max(self._average, running, 1e-4)
        return min(self.policy.most_waiting, int(done))

    def give_back_surplus(self) -> None:
        """Handlers take longer than it seemed: rows that would wait for them may be taken by others."""
        surplus = len(self.waiting) - self._ahead() if len(self.active) >= self.policy.workers else 0
        for _ in range(max(0, surplus)):
            self.finished(released(self.waiting.pop()))

    def hand_over(self, items: Sequence[Item]) -> None:
        """Pass items from the pump's thread to the event loop's, with one call."""
        if not items:
            return
        if self._asked:
            took = min(time.monotonic() - self._asked, 1.0)
            # Quick to believe in slow turns: it is those that let handlers run dry.
            self._turn += (took - self._turn) * (0.5 if took > self._turn else 0.05)
        self.coming.extend(items)
        # During a shutdown the threads end without waiting for the event loop.
        if self.closing or not call_on_loop(self.loop, self._accept):
            self._give_back(self.coming)

    def _accept(self) -> None:
        self.waiting.extend(drain_deque(self.coming))
        if self.closing:
            self.give_back_waiting()
        else:
            self._start_waiting()

    def _start_waiting(self) -> None:
        while self.waiting and len(self.active) < self.policy.workers:
            item = self.waiting.popleft()
            if item.lease_lost:
                continue
            item.began = time.monotonic()
            end = self._ended_by(item, lambda item: beforehand(self.policy, item, random.random()))
            if end is not None:
                self.finished(end)
            elif self.reconciler.is_async:
                self._start_task(item)
            else:
                self.active[item] = None
                self._start_thread(item)

    # handlers on the loop

    def _start_task(self, item: Item) -> None:
        task = self.active[item] = self.loop.create_task(self._run_async(item))
        task.add_done_callback(partial(self._never_began, item))
        seconds = self.policy.timeout_seconds
        if seconds is not None:
            self.loop.call_later(seconds + CLEANING_UP, self._overdue, item, seconds)

    def _never_began(self, item: Item, task: asyncio.Task[None]) -> None:
        """A task that is cancelled before its first step does not get to say how it ended."""
        if task.cancelled() and item in self.active:
            lost = self._why.get(item) is Interruption.LOST
            self._done(item, None if lost else released(item))

    async def _run_async(self, item: Item) -> None:
        limit = asyncio.timeout(self.policy.timeout_seconds)
        end: VisitOutcome | None
        try:
            value: Any = self.reconciler.visit(item)
            if not inspect.isawaitable(value):
                pass  # wrapped in something that is not async
            elif self.policy.timeout is None:
                value = await value
            else:
                async with limit:
                    value = await value
            end = self._returned(item, value)
        except SimulatedCrash:
            raise
        except BaseException as error:
            end = self._ended_by(item, partial(self._broken_off, limit=limit, error=error))
        self._done(item, end)

    def _ended_by(self, item: Item, judge: Callable[[Item], VisitOutcome | None]) -> VisitOutcome | None:
        """How it ends. What the user's part of that raises is the row's error: a row always has an end."""
        try:
            return judge(item)
        except SimulatedCrash:
            raise
        except BaseException as error:
            return errored(self.policy, item, Failure.of(error))

    def _broken_off(self, item: Item, limit: asyncio.Timeout, error: BaseException) -> VisitOutcome | None:
        """Whatever a handler raises while it is being stopped comes of that, and is no error of the row."""
        match self._why.get(item):
            case Interruption.LOST:
                return None
            case Interruption.RELEASED:
                return released(item)
        if limit.expired():
            return self._timed_out(item)
        # Ended with its loop, or by something inside the handler: only the latter is the row's error.
        task = asyncio.current_task()
        # By its type: what an error says of its class is its own code, and may raise.
        cancelled = issubclass(type(error), asyncio.CancelledError)
        outside = cancelled and task is not None and task.cancelling()
        return released(item) if outside else self._raised(item, error)

    # handlers in threads

    def _start_thread(self, item: Item) -> None:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.policy.workers, thread_name_prefix="penstock-row")
        seconds = self.policy.timeout_seconds
        if seconds is not None:
            self.loop.call_later(seconds, self._overdue, item, seconds)
        try:
            self._threads[item] = self._pool.submit(self._run_sync, item)
            self._hindrance.end()
        except RuntimeError:  # the system has no more threads: no fault of the row's
            self._hindrance.refresh()
            self.active.pop(item, None)
            self.finished(released(item))

    def _run_sync(self, item: Item) -> None:
        if item not in self.active:
            return  # given back, when there seemed to be no thread for it
        item.began = time.monotonic()
        try:
            value = self.reconciler.visit(item)
            end: VisitOutcome | None
            if inspect.isawaitable(value):
                value = asyncio.run(waited_for(value))
            end = self._returned(item, value)
        except SimulatedCrash:
            raise
        except BaseException as error:
            end = self._ended_by(item, partial(self._raised, error=error))
        if self._ends(item) and end is not None:
            self.finished(end)
        call_on_loop(self.loop, self._vacate, item)

    def _overdue(self, item: Item, seconds: float) -> None:
        """A thread cannot be ended, nor a task that will not hear of it: its row goes on, its place stays taken."""
        if item in self.active and self._ends(item):
            self.stream.emit(HandlerOverdue(str(item.id), self.reconciler.name, seconds))
            end = self._ended_by(item, self._timed_out)
            if end is not None:
                self.finished(end)

    def free_lost(self) -> None:
        """Find places that are taken by nothing, twice in a row, and free them: see `Dispatcher.free_lost`."""
        missing = {item for item in self.active if not self._has(item)}
        for item in missing & self._missed:
            self.stream.emit(PlaceFreed(str(item.id), self.reconciler.name))
            self._done(item, errored(self.policy, item, Failure.of(PlaceLost())))
        self._missed = missing

    def _has(self, item: Item) -> bool:
        at_work = self.active[item] or self._threads.get(item)
        return at_work is not None and not at_work.done()

    def _ends(self, item: Item) -> bool:
        """True for the first call that ends this item."""
        with self._lock:
            first = item not in self._over
            self._over.add(item)
            return first

    def _vacate(self, item: Item) -> None:
        with self._lock:
            self._over.discard(item)
        self.active.pop(item, None)
        self._threads.pop(item, None)
        self._why.pop(item, None)
        self._learn(item)
        self._start_waiting()

    # ends

    def _returned(self, item: Item, value: object) -> VisitOutcome:
        return returned(self.policy, item, value)

    def _raised(self, item: Item, error: BaseException) -> VisitOutcome:
        return self._failed(item, raised(item, error), VisitKind.ERRORED)

    def _timed_out(self, item: Item) -> VisitOutcome:
        seconds = self.policy.timeout_seconds or 0.0
        return self._failed(
            item, Failure.note("TimedOut", f"no end after {seconds:g} s (timeout)"), VisitKind.TIMED_OUT
        )

    def _failed(self, item: Item, failure: Failure, kind: VisitKind) -> VisitOutcome:
        return failed(self.policy, item, failure, kind, random.random())

    def _done(self, item: Item, end: VisitOutcome | None) -> None:
        if self._ends(item):
            if end is not None:
                self.finished(end)
            else:
                self.regret(item, None)
        self._vacate(item)

    def _learn(self, item: Item) -> None:
        self._average += (time.monotonic() - item.began - self._average) * 0.05

    # from outside

    def lose(self, item: Item) -> None:
        """From any thread: the claim is gone, there is nothing left to do for it."""
        call_on_loop(self.loop, self._lose, item)

    def _lose(self, item: Item) -> None:
        if item in self.waiting:
            self.waiting.remove(item)
            return
        task = self.active.get(item)
        if task is not None:
            self._why[item] = Interruption.LOST
            task.cancel()

    def regret(self, item: Item, end: VisitOutcome | None) -> None:
        """Call the user's `on_lost`: only the user knows how to undo what the handler did outside the database."""
        hook = self.reconciler.on_lost
        if hook is not None:
            values = None if end is None else dict(end.values)
            call_on_loop(self.loop, self._undo, hook, item, values)

    def _undo(self, hook: Callable[..., Any], item: Item, values: Mapping[str, Any] | None) -> None:
        task = self.loop.create_task(undo(hook, item, values))
        self._undoing.add(task)
        task.add_done_callback(self._undoing.discard)

    @property
    def busy(self) -> int:
        return len(self.active) + len(self.waiting) + len(self.coming)

    def give_back_waiting(self) -> None:
        """From now on nothing begins: what waits goes back at once, and what a turn under way still brings too."""
        self.closing = True
        self._give_back(self.coming)
        self._give_back(self.waiting)

    def _give_back(self, items: deque[Item]) -> None:
        for item in drain_deque(items):
            self.finished(released(item))

    def give_back_running(self) -> None:
        """Time is up: end what can be ended; a thread's row is given back without it."""
        for item, task in list(self.active.items()):
            if task is not None:
                self._why[item] = Interruption.RELEASED
                task.cancel()
            elif self._ends(item):
                self.finished(released(item))
                self.active.pop(item, None)

    def give_up_running(self) -> None:
        """Give back the rows of handlers that did not end when told to."""
        for item in list(self.active):
            if self._ends(item):
                self.finished(released(item))
            self.active.pop(item, None)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
