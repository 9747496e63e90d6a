"""The crew: takes claims from the pump, runs each in the executor its task wants, and reports what came of it.

No more than `limit` handlers run at a time. A few claims more wait here when handlers are so short that they would
otherwise starve between two turns of the pump; claims that have not begun can always be given back.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Sequence, Set
from typing import Any

from penstock.queue.jobs import Attempt, Claim
from penstock.runtime.executors import Executor, event_for
from penstock.runtime.executors.loop import LoopExecutor
from penstock.runtime.executors.processes import ProcessExecutor
from penstock.runtime.executors.threads import ThreadExecutor
from penstock.runtime.hop import hop
from penstock.runtime.work import Died, Interruption, Key, Work, unfit
from penstock.surroundings import Surroundings
from penstock.telemetry.events import ClaimLost, Stream
from penstock.values.failure import Failure
from penstock.values.outcome import HINDERED_FOR, Event, Hindered, Released

TURN = 0.02
"""About what a turn of the pump takes: so much work may wait here as is done in that time."""


BREATH = 32
"""After so many short handlers the loop's thread lets others have the interpreter. The pump, back from the database,
would else wait five milliseconds for it, several times a turn."""


class Crew:
    """Everything that runs handlers in this process. Lives on one event loop."""

    def __init__(
        self,
        around: Surroundings,
        find_task: Callable[[str], Any],
        finished: Callable[[Attempt], None],
        forget: Callable[[Sequence[Claim]], None],
        stream: Stream,
        limit: int,
        most_waiting: int,
        processes: int | None,
    ) -> None:
        self.around = around
        self.find_task = find_task
        self.finished = finished
        self.forget = forget
        """Told of claims that are lost: they will never be finished, and are not held here any more."""
        self.stream = stream
        self.limit = limit
        self.most_waiting = most_waiting
        self.loop = asyncio.get_running_loop()
        self.active: dict[Key, Work] = {}
        self.waiting: deque[Work] = deque()
        self.overdue = 0
        self.leaving = False
        self._handed = 0
        self._arrived = 0
        self._hindered_until = 0.0
        self._average = 0.05
        self._breathless = 0
        self.processes = ProcessExecutor(around, self._done_elsewhere, self._vacated, processes)
        self.executors: dict[str, Executor] = {
            "async": LoopExecutor(around, self._done, self._done_elsewhere, self._vacated, stream),
            "thread": ThreadExecutor(around, self._done_elsewhere, self._vacated, stream),
            "process": self.processes,
        }

    def room(self) -> int:
        """How many claims the pump may bring: free places, and what will be done within a turn."""
        if time.monotonic() < self._hindered_until or self.loop.is_closed():
            return 0
        ahead = min(self.most_waiting, int(self.limit * TURN / max(self._average, 1e-5)))
        return self.limit + ahead - len(self.active) - len(self.waiting) - self._accepted - self.overdue

    def hand_over(self, claims: Sequence[Claim]) -> None:
        """From the pump's thread to the loop's, in one hop."""
        self._handed += len(claims)
        if not hop(self.loop, self._accept, claims):
            self.leaving = True
            self._accept(claims)

    def _accept(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            task = self.find_task(claim.task)
            try:
                self.waiting.append(Work.of(claim, task))
            except Exception as error:
                # Its own, not that of those beside it; and whoever holds a claim must say what came of it.
                self.finished(unfit(claim, task, error, random.random))
        self._arrived += len(claims)
        if self.leaving:
            self.give_back_waiting()
        self._start_waiting()

    def _start_waiting(self) -> None:
        while self.waiting and len(self.active) + self.overdue < self.limit:
            work = self.waiting.popleft()
            self.active[work.key] = work
            try:
                self.executors[work.executor].start(work)
            except Exception as error:
                self._hinder(work, error)

    def _hinder(self, work: Work, error: Exception) -> None:
        """There is not even a thread for it. That is no fault of the job's, so it is given back and spends nothing.

        It comes back in a moment, perhaps to somebody else; and until then nothing is claimed here, or we would do
        the same to all that is in the queue, and again from the start.
        """
        self.active.pop(work.key, None)
        self._hindered_until = time.monotonic() + HINDERED_FOR
        work.begin_once()  # an attempt, though a short one: it is where everybody looks for the error
        work.end_once()
        self.finished(work.attempt(Hindered(Failure.of(error)), random.random))

    def _done(self, work: Work, event: Event | Died | None) -> None:
        self.active.pop(work.key, None)
        if event is None:
            self._lose(work)
        else:
            attempt = work.attempt(event, random.random)
            self._average += (attempt.began_ago / 1_000_000 - self._average) * 0.05
            self.finished(attempt)
            self._breathless += 1
            if self._breathless >= BREATH:
                self._breathless = 0
                time.sleep(0)
        if self.waiting:
            self._start_waiting()

    def _done_elsewhere(self, work: Work, event: Event | Died | None) -> None:
        """From a thread: settle at once, but have the loop tidy up first, or the job may be back before."""
        hop(self.loop, self._tidy, work, event is None)
        if event is not None:
            self.finished(work.attempt(event, random.random))

    def _tidy(self, work: Work, lost: bool) -> None:
        if self.active.pop(work.key, None) is not None:
            self.overdue += 1
        if lost:
            self._lose(work)

    def _lose(self, work: Work) -> None:
        self.forget([work.claim])
        self.stream.emit(ClaimLost(work.claim.job_id, work.claim.task, work.claim.generation))

    def _vacated(self, work: Work) -> None:
        hop(self.loop, self._free)

    def _free(self) -> None:
        self.overdue -= 1
        self._start_waiting()

    # from outside, on the loop's thread

    def interrupt(self, claims: Set[Key], why: Interruption) -> None:
        """Tell handlers that they were cancelled or have lost their claims, and stop those that can be stopped."""
        for work in [work for work in self.waiting if work.key in claims]:
            self._drop_waiting(work, why)
        self._stop([work for key, work in self.active.items() if key in claims], why)

    def _stop(self, works: Sequence[Work], why: Interruption) -> None:
        if why is Interruption.CANCELLED:  # who knows already may be cleaning up
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
            self.finished(work.attempt(event, random.random))

    def abandon_all(self) -> None:
        """Every claim is lost: drop what waits, stop what runs, write nothing."""
        while self.waiting:
            self._lose(self.waiting.popleft())
        self._stop(list(self.active.values()), Interruption.LOST)

    def give_back_waiting(self) -> None:
        """We are leaving: what has not begun, or is still on its way here, goes back and spends nothing."""
        self.leaving = True
        while self.waiting:
            self.finished(self.waiting.popleft().attempt(Released(), random.random))
        self.processes.give_back_waiting()

    def give_back_running(self) -> None:
        """Time is up: stop the handlers and give their claims back. What waits in an executor does not begin."""
        self._stop(list(self.active.values()), Interruption.RELEASED)

    def give_back_deserted(self) -> None:
        """The loop was closed under us, so this is another thread: nothing on it goes on, and nobody else is here."""
        self.give_back_waiting()
        for work in list(self.active.values()):
            if work.executor != "async":
                self.executors[work.executor].interrupt(work, Interruption.RELEASED)
            elif work.end_once():
                self.finished(work.attempt(Released(), random.random))
        self.active.clear()

    @property
    def _accepted(self) -> int:
        """On their way from the pump's thread to the loop's. Each of them counts for itself: that needs no lock."""
        return self._handed - self._arrived

    @property
    def busy(self) -> int:
        return len(self.active) + len(self.waiting) + self._accepted

    def close(self) -> None:
        for executor in self.executors.values():
            executor.close()
