"""Runs the handlers of one reconciler: `async def` on the worker's loop, `def` in threads.

No more than `workers` at a time. A few rows more wait here, as many as are done in a few turns of the pump; more are
fetched when half of them are gone, never by a timer. A row that waits can always be given back.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from penstock.reconcile.definition import Reconciler
from penstock.reconcile.ending import Ended, Kind, beforehand, failed, raised, released, returned
from penstock.reconcile.item import Item
from penstock.runtime.executors.loop import CLEANING_UP
from penstock.runtime.hop import hop, taken_from
from penstock.runtime.undo import undo
from penstock.runtime.work import Interruption
from penstock.telemetry.events import HandlerOverdue, Stream
from penstock.telemetry.points import SimulatedCrash
from penstock.values.annotations import waited_for
from penstock.values.failure import Failure

TURN = 0.01
"""About what a turn of the pump takes, until it is known better."""
TURNS_AHEAD = 3
"""Half of it is left when more is fetched: a turn, and half a turn for those that take longer."""


class RowCrew:
    """The workers of one reconciler in this process. Lives on one event loop."""

    def __init__(self, reconciler: Reconciler, finished: Callable[[Ended], None], stream: Stream) -> None:
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
        self._lock = threading.Lock()

    def room(self) -> int:
        """How many rows the pump may bring now: none while enough wait, all that fit once half of those are gone."""
        if not self.reconciler.enabled or self.loop.is_closed():
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

    def shed(self) -> None:
        """Handlers take longer than it seemed: rows that would wait for them may be taken by others."""
        surplus = len(self.waiting) - self._ahead() if len(self.active) >= self.policy.workers else 0
        for _ in range(max(0, surplus)):
            self.finished(released(self.waiting.pop()))

    def hand_over(self, items: Sequence[Item]) -> None:
        """From the pump's thread to the loop's, in one hop."""
        if self._asked:
            took = min(time.monotonic() - self._asked, 1.0)
            # Quick to believe in slow turns: it is those that let handlers run dry.
            self._turn += (took - self._turn) * (0.5 if took > self._turn else 0.05)
        self.coming.extend(items)
        # Whoever ends the threads does not wait for the loop any more.
        if self.closing or not hop(self.loop, self._accept):
            self._give_back(self.coming)

    def _accept(self) -> None:
        self.waiting.extend(taken_from(self.coming))
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
            if (end := beforehand(self.policy, item, random.random())) is not None:
                self.finished(end)
                continue
            if self.reconciler.is_async:
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
        end: Ended | None
        try:
            value: Any = self.reconciler.function(item)
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
            end = self._broken_off(item, limit, error)
        self._done(item, end)

    def _broken_off(self, item: Item, limit: asyncio.Timeout, error: BaseException) -> Ended | None:
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
        outside = isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling()
        return released(item) if outside else self._raised(item, error)

    # handlers in threads

    def _start_thread(self, item: Item) -> None:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.policy.workers, thread_name_prefix="penstock-row")
        seconds = self.policy.timeout_seconds
        if seconds is not None:
            self.loop.call_later(seconds, self._overdue, item, seconds)
        self._pool.submit(self._run_sync, item)

    def _run_sync(self, item: Item) -> None:
        item.began = time.monotonic()
        try:
            value = self.reconciler.function(item)
            if inspect.isawaitable(value):
                value = asyncio.run(waited_for(value))
            end = self._returned(item, value)
        except SimulatedCrash:
            raise
        except BaseException as error:
            end = self._raised(item, error)
        if self._ends(item):
            self.finished(end)
        hop(self.loop, self._vacate, item)

    def _overdue(self, item: Item, seconds: float) -> None:
        """A thread cannot be ended, nor a task that will not hear of it: its row goes on, its place stays taken."""
        if item in self.active and self._ends(item):
            self.stream.emit(HandlerOverdue(str(item.id), self.reconciler.name, seconds))
            self.finished(self._timed_out(item))

    def _ends(self, item: Item) -> bool:
        """True for the first who says that this is over."""
        with self._lock:
            first = item not in self._over
            self._over.add(item)
            return first

    def _vacate(self, item: Item) -> None:
        with self._lock:
            self._over.discard(item)
        self.active.pop(item, None)
        self._why.pop(item, None)
        self._learn(item)
        self._start_waiting()

    # ends

    def _returned(self, item: Item, value: object) -> Ended:
        return returned(self.policy, item, value)

    def _raised(self, item: Item, error: BaseException) -> Ended:
        return self._failed(item, raised(item, error), Kind.ERRORED)

    def _timed_out(self, item: Item) -> Ended:
        seconds = self.policy.timeout_seconds or 0.0
        return self._failed(
            item, Failure.note("TimedOut", f"no end after {seconds:g} s (timeout)"), Kind.TIMED_OUT
        )

    def _failed(self, item: Item, failure: Failure, kind: Kind) -> Ended:
        return failed(self.policy, item, failure, kind, random.random())

    def _done(self, item: Item, end: Ended | None) -> None:
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
        hop(self.loop, self._lose, item)

    def _lose(self, item: Item) -> None:
        if item in self.waiting:
            self.waiting.remove(item)
            return
        task = self.active.get(item)
        if task is not None:
            self._why[item] = Interruption.LOST
            task.cancel()

    def regret(self, item: Item, end: Ended | None) -> None:
        """What the handler did outside the database may have to be undone; only the user knows how."""
        hook = self.reconciler.on_lost
        if hook is not None:
            values = None if end is None else dict(end.values)
            hop(self.loop, self._undo, hook, item, values)

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
        for item in taken_from(items):
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
        """Whoever will not end when told to: its row is given back without it."""
        for item in list(self.active):
            if self._ends(item):
                self.finished(released(item))
            self.active.pop(item, None)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
