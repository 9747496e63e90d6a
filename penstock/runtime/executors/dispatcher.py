"""The dispatcher takes claims from a pump, runs each in the executor of its handler, and reports the outcomes.

There is one for jobs and one for each reconciler; they share the executors. No more than `limit` handlers run at a
time. A few claims more wait here when handlers are so short that they would otherwise starve between two turns of the
pump; claims that have not begun can always be given back. Nothing begins while too many outcomes are not on record:
they would be lost with the process, and their bodies run again.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence, Set
from typing import Any, Generic, TypeVar

from penstock.runtime.executors import event_for
from penstock.runtime.executors.executor_set import ExecutorSet
from penstock.runtime.executors.prefetch import Prefetch
from penstock.runtime.executors.start_pause import StartPause
from penstock.runtime.executors.work import Interruption, Key, Work
from penstock.runtime.service import call_on_loop, drain_deque
from penstock.telemetry.events import PlaceFreed, Stream
from penstock.values.failure import Failure
from penstock.values.outcome import Rejected, Released, raised

C = TypeVar("C")
F = TypeVar("F")

YIELD_AFTER = 32
"""After so many short handlers the loop's thread lets others have the interpreter. The pump, back from the database,
would else wait five milliseconds for it, several times a turn."""


class PlaceLost(RuntimeError):
    """The error of a work whose place was occupied without a running handler."""

    def __init__(self) -> None:
        super().__init__("the worker lost sight of this handler, and freed its place; see its log")


class Unrecorded:
    """Bounds the outcomes that are not recorded yet: when there are too many, no handler begins.

    If the process dies, at most `most` handlers that never wait run again. Handlers that do wait may all end at once,
    and the next ones should begin at once: their number is added to `most`.
    """

    def __init__(self, count: Callable[[], int], most: float) -> None:
        self.count = count
        self.most = most
        self.begun = 0
        """Not yet known to go on after their first step."""
        self.is_waited_for = False
        """Claims wait for outcomes to be recorded."""
        self._marked = 0
        """So many of them have had their first step when the loop comes to what was said to it after they began."""
        self._lasting = 0
        """How many are at work at a time that do go on."""

    def has_room(self) -> bool:
        if self._is_full():
            self.is_waited_for = True
            # Ask again: the pump may have recorded outcomes before it saw `is_waited_for`.
            if self._is_full():
                return False
            self.is_waited_for = False
        return True

    def _is_full(self) -> bool:
        return self.begun + self.count() >= self.most + self._lasting

    def marks(self) -> bool:
        """True: say so when the loop comes round, for those that have begun."""
        if self._marked or not self.begun:
            return False
        self._marked = self.begun
        return True

    def came_round(self, active: int) -> None:
        """The loop has come round: handlers that never wait have ended and count as outcomes; the others still run."""
        self.begun -= self._marked
        self._marked = 0
        self._lasting = max(active - self.begun, self._lasting // 2)


class Dispatcher(Generic[C, F]):
    """Runs the handlers of one kind of claims in this process. Runs on one event loop.

    `C` is a claim, `F` an outcome.
    """

    def __init__(
        self,
        executors: ExecutorSet,
        make_work: Callable[[C], Work | None],
        finished: Callable[[F], None],
        lost: Callable[[Any], None],
        stream: Stream,
        prefetch: Prefetch,
        unrecorded: Unrecorded | None = None,
    ) -> None:
        self.make_work = make_work
        """Makes a work of a claim; None: its handler is not called, and its outcome was reported."""
        self.finished = finished
        self.lost = lost
        """Called with works whose claims are lost: they are not held here any more."""
        self.stream = stream
        self.prefetch = prefetch
        self.limit = prefetch.limit
        self.unrecorded = unrecorded or Unrecorded(lambda: 0, math.inf)
        self.loop = asyncio.get_running_loop()
        self.active: dict[Key, Work] = {}
        self.waiting: deque[Work] = deque()
        self.coming: deque[C] = deque()
        """On their way from the pump's thread to the loop's: if that is closed, they never arrive."""
        self.late: dict[Key, Work] = {}
        """Settled, and still in their places."""
        self.leaving = False
        self.average = 0.05
        """Seconds that a handler takes, lately."""
        self._missed: set[Key] = set()
        self._begun_in_a_row = 0
        self.processes = executors.processes
        self.executors = executors.by_name
        self.uses: Set[str] = self.executors.keys()
        """The executors that the works here may need."""
        self._start_pauses = {name: StartPause() for name in self.executors}

    def room(self) -> int:
        """How many claims the pump may bring."""
        if self.loop.is_closed() or self.paused_executors >= self.uses:
            return 0
        return self.prefetch.room(self)

    @property
    def paused_executors(self) -> Set[str]:
        """The executors that the system refused a thread or a process a moment ago: nothing is claimed for them now."""
        pauses = [*self._start_pauses.items(), ("process", self.processes.start_pause)]
        return {name for name, pause in pauses if pause.refused_at is not None and pause.is_fresh}

    def hand_over(self, claims: Sequence[C]) -> None:
        """Pass claims from the pump's thread to the loop's, with one call.

        Without claims: outcomes were recorded, so claims that wait for that may begin.
        """
        if not claims and not self.unrecorded.is_waited_for:
            return
        self.prefetch.claimed()
        self.coming.extend(claims)
        # During a shutdown the threads end without waiting for the event loop.
        if self.leaving or not call_on_loop(self.loop, self._accept):
            self.leaving = True
            self._give_back_coming()

    def _accept(self) -> None:
        coming, waiting, make_work = self.coming, self.waiting, self.make_work
        while coming:
            try:
                claim = coming.popleft()
            except IndexError:  # it was given back by another thread at this moment
                break
            work = make_work(claim)
            if work is not None:
                work.owner = self
                waiting.append(work)
        if self.leaving:
            self.give_back_waiting()
        self._start_waiting()

    def _give_back_coming(self) -> None:
        for claim in drain_deque(self.coming):
            work = self.make_work(claim)
            if work is not None:
                self._tell(work, Released())

    def _start_waiting(self) -> None:
        self.unrecorded.is_waited_for = False
        while self.waiting and len(self.active) + len(self.late) < self.limit and self.unrecorded.has_room():
            self._start(self.waiting.popleft())
        if self.unrecorded.marks():
            self.loop.call_soon(self._have_begun)

    def _start(self, work: Work) -> None:
        self.active[work.key] = work
        try:
            self.executors[work.executor].start(work)
        except Exception as error:
            self._reject(work, error)
        else:
            if self._start_pauses[work.executor].count:
                self._start_pauses[work.executor].end()
            self.unrecorded.begun += 1

    def _have_begun(self) -> None:
        """After one pass of the event loop."""
        self.unrecorded.came_round(len(self.active))
        self._start_waiting()

    def _reject(self, work: Work, error: Exception) -> None:
        """There is not even a thread for it. That is no fault of its own, so it is given back and spends nothing.

        It comes back in a moment, perhaps to another process; and until then nothing is claimed here for this executor,
        or we would do the same to all that is in the queue, and again from the start. As long as that goes on, moments
        get longer. Tasks of other executors go on.
        """
        self.active.pop(work.key, None)
        pause = self._start_pauses[work.executor].refresh()
        work.begin_once()  # an attempt, though a short one: operators look for the error there
        work.end_once()
        self._tell(work, Rejected(Failure.of(error), pause))

    # from the executors

    def done(self, work: Work, event: Any) -> None:
        self.active.pop(work.key, None)
        if event is None:
            self._lose(work)
        else:
            if work.started:
                self.average += (time.monotonic() - work.began - self.average) * 0.05
            self.finished(work.outcome(event))
            work.told = True
            self._begun_in_a_row += 1
            if self._begun_in_a_row >= YIELD_AFTER:
                self._begun_in_a_row = 0
                time.sleep(0)
        if self.waiting:
            self._start_waiting()

    def done_elsewhere(self, work: Work, event: Any) -> None:
        """Settle at once, but have the loop tidy up first, or the job may be back before."""
        call_on_loop(self.loop, self._tidy, work, event is None)
        if event is not None:
            self._tell(work, event)

    def _tell(self, work: Work, event: Any) -> None:
        self.finished(work.outcome(event))
        work.told = True

    def _tidy(self, work: Work, lost: bool) -> None:
        if self.active.pop(work.key, None) is not None and not work.vacated:
            self.late[work.key] = work
        if self.prefetch.counts_threads and work.started:
            self.average += (time.monotonic() - work.began - self.average) * 0.05
        if lost:
            self._lose(work)

    def _lose(self, work: Work) -> None:
        self.lost(work)
        work.told = True

    def vacate(self, work: Work) -> None:
        call_on_loop(self.loop, self._free, work)

    def _free(self, work: Work) -> None:
        work.vacated = True  # which may be heard before it is heard that its time was up
        self.late.pop(work.key, None)
        self._start_waiting()

    # watching

    def free_lost(self) -> None:
        """Free places that were occupied without a running handler in two checks in a row.

        By design there are none: every outcome is told, whatever it is. But a place that was lost all the same would
        be lost for good, and its claim would be held for ever.
        """
        taken = {**self.active, **self.late}
        missing = {key for key, work in taken.items() if not self.executors[work.executor].has(work)}
        for key in missing & self._missed:
            self._free_place(taken[key])
        self._missed = missing

    def _free_place(self, work: Work) -> None:
        self.stream.emit(PlaceFreed(work.id, work.name))
        self.active.pop(work.key, None)
        work.end_once()
        if not work.told:
            event = event_for(work.interrupted) if work.interrupted is not None else raised(PlaceLost())
            if event is None:
                self._lose(work)
            else:
                self._tell(work, event)
        self._free(work)

    # from outside, on the loop's thread

    def interrupt(self, claims: Set[Key], why: Interruption) -> None:
        """Tell handlers that they were cancelled or have lost their claims, and stop those that can be stopped."""
        for work in [work for work in self.waiting if work.key in claims]:
            self._drop_waiting(work, why)
        self._stop([work for key, work in self.active.items() if key in claims], why)

    def _stop(self, works: Sequence[Work], why: Interruption) -> None:
        if why is Interruption.CANCELLED:  # a handler that was told before may be cleaning up
            works = [work for work in works if not work.signals.cancelled]
        for work in works:
            # All of them before the first is stopped: the place that this frees is not for one of the others.
            work.interrupted = why
        for work in works:
            work.signals.cancelled |= why is Interruption.CANCELLED
            work.signals.lost |= why is Interruption.LOST
            self.executors[work.executor].interrupt(work, why)

    def _drop_waiting(self, work: Work, why: Interruption) -> None:
        self.waiting.remove(work)
        event = event_for(why)
        if event is None:
            self._lose(work)
        else:
            self._tell(work, event)

    def abandon_all(self) -> None:
        """All claims are lost: drop waiting works, stop running handlers, write nothing."""
        while self.waiting:
            self._lose(self.waiting.popleft())
        self._stop(list(self.active.values()), Interruption.LOST)

    def give_back_surplus(self) -> None:
        """Give back what would wait too long: other workers may have room for it."""
        for _ in range(self.prefetch.surplus(self)):
            self._tell(self.waiting.pop(), Released())

    def give_back_waiting(self) -> None:
        """The worker stops: give back works that have not begun, or that are still on their way here; nothing is
        spent."""
        self.leaving = True
        self._give_back_coming()
        while self.waiting:
            self._tell(self.waiting.popleft(), Released())
        self.processes.give_back_waiting(self)

    def give_back_running(self) -> None:
        """Time is up: stop the handlers and give their claims back. What waits in an executor does not begin."""
        self._stop(list(self.active.values()), Interruption.RELEASED)

    def give_up_running(self) -> None:
        """Give back the claims of handlers that did not end when told to."""
        for work in list(self.active.values()):
            if work.end_once():
                self._tell(work, Released())
        self.active.clear()

    def give_back_deserted(self) -> None:
        """Give back everything after the event loop was closed. Called from another thread: the loop runs nothing."""
        self.give_back_waiting()
        for work in list(self.active.values()):
            if work.executor != "async":
                self.executors[work.executor].interrupt(work, Interruption.RELEASED)
            elif work.end_once():
                self._tell(work, Released())
        self.active.clear()

    @property
    def overdue(self) -> int:
        """How many are settled, and still in their places."""
        return len(self.late)

    @property
    def busy(self) -> int:
        return len(self.active) + len(self.waiting) + len(self.coming)
