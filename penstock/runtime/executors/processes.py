"""`executor="process"`: handlers in processes of their own, which can be killed when their time is up."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Callable
from functools import cached_property
from multiprocessing.connection import Connection
from typing import Any

from penstock.runtime.executors import Done, event_for
from penstock.runtime.executors.child import Home, Message, serve
from penstock.runtime.work import Died, Interruption, Key, Work
from penstock.surroundings import Surroundings
from penstock.values.outcome import Event, TimedOut, raised

LONGEST_START = 60.0
"""A fresh process first imports the application: that time is not the handler's."""
SPAWN = multiprocessing.get_context("spawn")


class ProcessExecutor:
    """A few child processes, each led by a thread that waits for it."""

    def __init__(
        self, around: Surroundings, done: Done, vacated: Callable[[Work], None], size: int | None
    ) -> None:
        self.around = around
        self.done = done
        self.vacated = vacated
        self._size = size
        self._inbox: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._leaders: list[Leader] = []
        self._running: dict[Key, Leader] = {}
        self._lock = threading.Lock()

    @cached_property
    def size(self) -> int:
        """How many children at most. Asked when the first is needed: counting processors takes a while."""
        return self._size or os.cpu_count() or 1

    def start(self, work: Work) -> None:
        with self._lock:
            if len(self._leaders) < self.size and len(self._running) >= len(self._leaders):
                leader = Leader(self)
                self._leaders.append(leader)
                leader.start()
        self._inbox.put(work)

    def take(self, leader: Leader) -> Work | None:
        work = self._inbox.get()
        if work is not None:
            with self._lock:
                self._running[work.key] = leader
        return work

    def finish(self, work: Work, event: Event | Died | None) -> None:
        with self._lock:
            self._running.pop(work.key, None)
        if work.end_once():
            self.done(work, event)
        self.vacated(work)

    def interrupt(self, work: Work, why: Interruption) -> None:
        work.interrupted = why
        with self._lock:
            leader = self._running.get(work.key)
        if leader is not None:
            leader.interrupt(why)

    def dump_stacks(self) -> None:
        for leader in self._leaders:
            leader.dump_stacks()

    def close(self) -> None:
        for _ in self._leaders:
            self._inbox.put(None)
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
            self.why = None
            try:
                event = self._lead(work)
            except (EOFError, OSError):
                event = self._lost_child()
            except Exception as error:
                # Whatever it is, somebody waits for this job; and the leader for the next.
                self.end_child()
                event = raised(error)
            self.executor.finish(work, event)
        self.end_child()

    def _lead(self, work: Work) -> Event | Died | None:
        around = self.executor.around
        work.begin(around)
        if self.child is None or not self.child.is_alive():
            try:
                self._spawn(type(work.task.host))
            except Exception as error:
                return Died(f"no process could be started for this handler: {error}")
        assert self.pipe is not None
        self.pipe.send((work.claim, _address(work.task), around.process))
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
        if self.why is not None:
            return event_for(self.why)
        return Died(f"the process of this handler ended by itself (exit code {code})")

    def _exit_code(self) -> int | None:
        child = self.child
        if child is None:
            return None
        child.join(1)  # its pipe may be gone a moment before itself
        return child.exitcode  # type: ignore[no-any-return]

    def interrupt(self, why: Interruption) -> None:
        self.why = why
        self.end_child()

    def dump_stacks(self) -> None:
        child = self.child
        if child is not None and child.is_alive():
            os.kill(child.pid, signal.SIGUSR1)

    def _spawn(self, host: type) -> None:
        self.pipe, theirs = SPAWN.Pipe()
        home = Home(host, self.executor.around.database.settings)
        child = SPAWN.Process(target=serve, args=(theirs, home), name="penstock-handler", daemon=True)
        with theirs:
            child.start()
        self.child = child

    def end_child(self) -> None:
        child, self.child = self.child, None
        if child is not None and child.is_alive():
            child.kill()
            child.join(5)


def _address(task: Any) -> tuple[str, str]:
    """Where a fresh process finds the task: it is imported there, never pickled."""
    return task.function.__module__, task.function.__qualname__
