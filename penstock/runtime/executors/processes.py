"""`executor="process"`: handlers in processes of their own, which can be killed when their time is up."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.lazy import Lazy
from penstock.runtime.executors import Done, event_for
from penstock.runtime.executors.child import Address, Home, Message, serve
from penstock.runtime.executors.spawning import refuse_program_without_file
from penstock.runtime.work import Died, Interruption, Key, Work
from penstock.surroundings import Surroundings
from penstock.values.cached import cached_property
from penstock.values.outcome import Event, TimedOut, raised

if TYPE_CHECKING:
    import multiprocessing
    from multiprocessing.connection import Connection
else:
    multiprocessing = Lazy("multiprocessing")

LONGEST_START = 60.0
"""A fresh process first imports the application: that time is not the handler's."""


class ProcessExecutor:
    """A few child processes, each led by a thread that waits for it."""

    def __init__(
        self, around: Surroundings, done: Done, vacated: Callable[[Work], None], size: int | None
    ) -> None:
        self.around = around
        self.done = done
        self.vacated = vacated
        self._size = size
        self._inbox: OrderedDict[Key, Work] = OrderedDict()
        """What waits for a process: most of it, where there are few of them. It has not begun."""
        self._leaders: list[Leader] = []
        self._running: dict[Key, Leader] = {}
        self._closing = False
        self._changed = threading.Condition()
        """A work is in the inbox, or led by a leader, or over; who moves it or interrupts it holds this."""

    @cached_property
    def size(self) -> int:
        """How many children at most. Asked when the first is needed: counting processors takes a while."""
        return self._size or os.cpu_count() or 1

    def start(self, work: Work) -> None:
        with self._changed:
            if len(self._running) + len(self._inbox) >= len(self._leaders) < self.size:
                self._add_leader()
            self._inbox[work.key] = work
            self._changed.notify()

    def _add_leader(self) -> None:
        """If the system has no more threads, those that there are will come to what waits; raises if there are none."""
        leader = Leader(self)
        try:
            leader.start()
        except RuntimeError:
            if not self._leaders:
                raise
        else:
            self._leaders.append(leader)

    def take(self, leader: Leader) -> Work | None:
        """The next work for this leader, once there is one. None: no more is to be begun."""
        with self._changed:
            while (key := self._next()) is None and not self._closing:
                self._changed.wait()
            if key is None or self._closing:
                return None
            self._running[key] = leader
            leader.why = None
            return self._inbox.pop(key)

    def _next(self) -> Key | None:
        """What is to be stopped does not begin: whoever has marked it will take it out in a moment."""
        return next((key for key, work in self._inbox.items() if work.interrupted is None), None)

    def finish(self, work: Work, event: Event | Died | None) -> None:
        with self._changed:
            self._running.pop(work.key, None)
        if work.end_once():
            self.done(work, event)
        self.vacated(work)

    def interrupt(self, work: Work, why: Interruption) -> None:
        work.interrupted = why
        with self._changed:
            waited = self._inbox.pop(work.key, None) is not None
            if work.key in self._running:
                self._running[work.key].interrupt(why)
        if waited:
            # Its turn may be hours away, and it must not run when it comes: it is over now.
            self.finish(work, event_for(why))

    def give_back_waiting(self) -> None:
        with self._changed:
            waiting = list(self._inbox.values())
            self._inbox.clear()
        for work in waiting:
            self.finish(work, event_for(Interruption.RELEASED))

    def dump_stacks(self) -> None:
        for leader in self._leaders:
            leader.dump_stacks()

    def close(self) -> None:
        """Nothing is begun any more. What is still held here goes back when the process takes its leave."""
        with self._changed:
            self._closing = True
            self._inbox.clear()
            for leader in self._running.values():
                leader.interrupt(Interruption.RELEASED)
            self._changed.notify_all()
        for leader in self._leaders:
            leader.end_child()


class Leader(threading.Thread):
    """Leads one child: gives it work, waits for its answer, kills it when it must be."""

    def __init__(self, executor: ProcessExecutor) -> None:
        super().__init__(name="penstock-process-leader", daemon=True)
        self.executor = executor
        self.child: Any = None
        self.pipe: Connection | None = None
        self.why: Interruption | None = None

    def run(self) -> None:
        # Inherited by the child: a request for stacks waits until there is somebody to answer it.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        while (work := self.executor.take(self)) is not None:
            try:
                event = self._lead(work)
            except (EOFError, OSError):
                event = self._lost_child()
            except Exception as error:
                # Whatever it is, somebody waits for this job; and the leader for the next.
                self.end_child()
                event = raised(error)
            self.executor.finish(work, event)
            if self.why is not None:
                self.end_child()  # it was told to end, even if it was quicker than that: the next needs another
        self.end_child()

    def _lead(self, work: Work) -> Event | Died | None:
        around = self.executor.around
        work.begin(around)
        if self.child is None or not self.child.is_alive():
            refuse_program_without_file()
            try:
                self._spawn(type(work.task.host))
            except Exception as error:
                return self._died(f"no process could be started for this handler: {error}")
        if self.why is not None:
            return event_for(self.why)  # while there was no process yet that could have been killed
        assert self.pipe is not None
        self.pipe.send((work.claim, Address.of(work.task.function), around.process))
        deadline = None if work.timeout is None else time.monotonic() + LONGEST_START + work.timeout
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self.pipe.poll(left):
                self.end_child()
                return TimedOut(work.timeout or 0.0)
            kind, content = self.pipe.recv()
            if kind is Message.BEGUN:
                work.began = time.monotonic()
                deadline = None if work.timeout is None else work.began + work.timeout
            elif kind is Message.PROGRESS:
                around.report(*content)
            elif kind is Message.ENDED:
                return content  # type: ignore[no-any-return]

    def _lost_child(self) -> Event | Died | None:
        """The child is gone: because we ended it, or by itself, which is a crash and spends a crash."""
        code = self._exit_code()
        self.end_child()
        return self._died(f"the process of this handler ended by itself (exit code {code})")

    def _died(self, message: str) -> Event | Died | None:
        return Died(message) if self.why is None else event_for(self.why)

    def _exit_code(self) -> int | None:
        child = self.child
        if child is None:
            return None
        child.join(1)  # its pipe may be gone a moment before itself
        return child.exitcode  # type: ignore[no-any-return]

    def interrupt(self, why: Interruption) -> None:
        """Kill the child, of which its leader hears; one that is only being made, the leader does not let begin."""
        self.why = why
        child = self.child
        if child is not None:
            child.kill()

    def dump_stacks(self) -> None:
        child = self.child
        if child is not None and child.is_alive():
            os.kill(child.pid, signal.SIGUSR1)

    def _spawn(self, host: type) -> None:
        spawning = multiprocessing.get_context("spawn")
        self.pipe, theirs = spawning.Pipe()
        home = Home(host, self.executor.around.database.settings)
        child = spawning.Process(target=serve, args=(theirs, home), name="penstock-handler", daemon=True)
        with theirs:
            child.start()
        self.child = child

    def end_child(self) -> None:
        child, self.child = self.child, None
        if child is not None and child.is_alive():
            child.kill()
            child.join(5)
