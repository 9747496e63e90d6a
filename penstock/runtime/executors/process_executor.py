"""`executor="process"`: handlers in processes of their own, which can be killed when their time is up.

The operating system tells that a process is dead. Its pipe does not: whatever the handler has started
in the background has inherited that, and may hold it open for hours. What is killed is killed with all that it has
started: each is the leader of a process group of its own.

A fresh process first imports the application. If it dies before the first handler begins, or finds no memory for that,
the job is given back and spends nothing (invariant 11): it has not begun, and a limit of the host is no fault of its
own. Its task alone is left out of the next claims, for longer each time; every pause is told in the log, for it may be
the application that ends its importer.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from collections import OrderedDict, defaultdict
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.errors import DefinitionError
from penstock.handler_environment import HandlerEnvironment
from penstock.runtime.executors import event_for
from penstock.runtime.executors.process_child import HELD_BACK, AppClass, AppRecipe, Message, serve
from penstock.runtime.executors.start_pause import StartPause
from penstock.runtime.executors.work import Died, Interruption, Key, Order, Work, WorkOwner
from penstock.values.failure import Failure
from penstock.values.fork_safety import cached_property
from penstock.values.lazy_import import Lazy
from penstock.values.outcome import Event, Rejected, TimedOut, raised

if TYPE_CHECKING:
    import multiprocessing
    from multiprocessing import connection, resource_tracker
    from multiprocessing.connection import Connection
else:
    multiprocessing, connection = Lazy("multiprocessing"), Lazy("multiprocessing.connection")
    resource_tracker = Lazy("multiprocessing.resource_tracker")


# A handler's process is a fresh one. It first imports the main program again, so the program must allow that.


def refuse_program_without_file() -> None:
    """Refuse a main program without a file, for instance from stdin: a child process cannot import it."""
    file = getattr(sys.modules["__main__"], "__file__", None) or ""
    if file.startswith("<"):
        raise DefinitionError(
            f'a handler with executor="process" runs in a fresh process, which imports this program first, and {file} '
            "cannot be imported. Put the program into a file."
        )


NOT_GUARDED = 78
"""The exit code of a handler process whose program would start a worker when it is imported (EX_CONFIG)."""


def refuse_while_imported() -> None:
    """End a handler process whose program starts a worker wherever it is imported: it would start one in each of them.

    The exit code tells the worker that this is a fault of the program, and no shortage of the system.
    """
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and getattr(processes.current_process(), "_inheriting", False):
        refused = DefinitionError(
            'this program is only being imported, by a process for a handler with executor="process", and starts a '
            'worker all the same. What it does when it is run belongs under if __name__ == "__main__":'
        )
        traceback.print_exception(refused)
        sys.stderr.flush()
        os._exit(NOT_GUARDED)


LONGEST_START = 60.0
"""A fresh process first imports the application: that time is not the handler's."""
LONGEST_SILENCE = 10.0
"""Seconds without a byte in the middle of a message: the rest of it never comes."""
LOOK_INTERVAL = 0.25
"""Where the operating system does not tell of a death by itself, it is asked so often."""
NOT_STARTED = "no process could be started for this handler"
NOT_IMPORTED = "the process of this handler could not import the application"

log = logging.getLogger("penstock")


class ProcessExecutor:
    """A few child processes, each led by a thread that waits for it."""

    def __init__(self, around: HandlerEnvironment, app: type[AppClass], size: int | None) -> None:
        self.around = around
        self.app = app
        self._size = size
        self.start_pause = StartPause()
        """The start pause of processes."""
        self.import_pauses: defaultdict[str, StartPause] = defaultdict(StartPause)
        """By task, the start pause after processes that ended before a handler of the task began."""
        self._inbox: OrderedDict[Key, Work] = OrderedDict()
        """Works that wait for a child process, and have not begun."""
        self._leaders: list[ChildHandle] = []
        self._running: dict[Key, ChildHandle] = {}
        self._closing = False
        self._changed = threading.Condition()
        """A work is in the inbox, or led by a leader, or over; a thread that moves or interrupts it holds this."""

    @cached_property
    def size(self) -> int:
        """How many children at most. Asked when the first is needed: counting processors takes a while."""
        return self._size or os.cpu_count() or 1

    @property
    def paused_tasks(self) -> set[str]:
        """The tasks whose processes ended while they imported the application, and whose pause is not over."""
        return {task for task, pause in [*self.import_pauses.items()] if pause.is_waiting}

    def import_failed(self, task: str, message: str) -> float:
        """Leave the task out of the next claims, and tell of each pause once: how many seconds it takes."""
        met = self.import_pauses[task]
        before, pause = met.count, met.refresh()
        if met.count != before:
            words = "%s: %s. Its jobs are given back and spend nothing; the next try is in %g s (pause %d in a row)"
            log.error(words, task, message, pause, met.count)
        return pause

    def import_done(self, task: str) -> None:
        """A handler of this task has begun."""
        self.import_pauses.pop(task, None)

    def start(self, work: Work) -> None:
        with self._changed:
            self._leaders = [leader for leader in self._leaders if leader.is_alive()]
            if len(self._running) + len(self._inbox) >= len(self._leaders) < self.size:
                self._add_leader()
            self._inbox[work.key] = work
            self._changed.notify()

    def _add_leader(self) -> None:
        """If the system has no more threads, those that there are will come to what waits; raises if there are none."""
        leader = ChildHandle(self)
        try:
            leader.start()
        except RuntimeError:
            if not self._leaders:
                raise
        else:
            self._leaders.append(leader)

    def take(self, leader: ChildHandle) -> Work | None:
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
        """The first work that is not interrupted; `interrupt` will remove the others in a moment."""
        return next((key for key, work in self._inbox.items() if work.interrupted is None), None)

    def finish(self, work: Work, event: Any) -> None:
        with self._changed:
            self._running.pop(work.key, None)
        if work.end_once():
            work.owner.done_elsewhere(work, event)
        work.owner.vacate(work)

    def interrupt(self, work: Work, why: Interruption) -> None:
        work.interrupted = why
        with self._changed:
            waited = self._inbox.pop(work.key, None) is not None
            if work.key in self._running:
                self._running[work.key].interrupt(why)
        if waited:
            # It may wait for hours and must not run any more: it ends now.
            self.finish(work, event_for(why))

    def give_back_waiting(self, owner: WorkOwner) -> None:
        """Give back what one dispatcher has here that has not begun."""
        with self._changed:
            waiting = [work for work in self._inbox.values() if work.owner is owner]
            for work in waiting:
                del self._inbox[work.key]
        for work in waiting:
            self.finish(work, event_for(Interruption.RELEASED))

    def has(self, work: Work) -> bool:
        with self._changed:
            leader = self._running.get(work.key)
            return work.key in self._inbox or (leader is not None and leader.is_alive())

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


class ChildHandle(threading.Thread):
    """Leads one child: gives it work, waits for its answer, kills it when it must be."""

    def __init__(self, executor: ProcessExecutor) -> None:
        super().__init__(name="penstock-process-leader", daemon=True)
        self.executor = executor
        self.child: Any = None
        self.pipe: Connection | None = None
        self.death: int | None = None
        """A handle of the operating system's that can be read once the child is dead, where there are such."""
        self.why: Interruption | None = None
        self._ending = threading.Lock()
        """Held to kill the child: until it is waited for, its number belongs to no other process."""
        self._is_fresh = False
        """No handler has begun in this child: it imports the application."""

    def run(self) -> None:
        while (work := self.executor.take(self)) is not None:
            event = self._led(work)
            try:
                self.executor.finish(work, event)
            except Exception:
                log.exception("what came of %s %s could not be told", work.name, work.id)
            if self.why is not None:
                self.end_child()  # it was told to end: the next work needs another child
        self.end_child()

    def _led(self, work: Work) -> Any:
        work.begin()
        try:
            order = work.order(self.executor.around)
        except BaseException as error:  # it cannot be sent: no fault of the child's
            return raised(error)
        try:
            return self._lead(work, order)
        except (EOFError, OSError):
            return self._lost_child(work)
        except BaseException as error:
            # Whatever it is, this claim gets an end, and the leader goes on with the next.
            self.end_child()
            return raised(error)

    def _lead(self, work: Work, order: Order) -> Any:
        around = self.executor.around
        if self.child is None or self._is_dead():
            self.end_child()
            refuse_program_without_file()
            try:
                self._spawn()
            except Exception as error:
                # Also an ImportError: a library that is first needed now cannot be opened without a file handle.
                return self._not_started(error)
        if self.why is not None:
            return event_for(self.why)  # while there was no process yet that could have been killed
        assert self.pipe is not None
        self.pipe.send(order)
        deadline = None if work.timeout is None else time.monotonic() + LONGEST_START + work.timeout
        begun = False
        while self._hears(deadline):
            kind, content = self.pipe.recv()
            if kind is Message.BEGUN:
                self._is_fresh, begun = False, True
                self.executor.import_done(work.name)
                work.began = time.monotonic()
                deadline = None if work.timeout is None else work.began + work.timeout
            elif kind is Message.PROGRESS:
                around.report(*content)
            elif kind is Message.ENDED:
                return content if begun else self._ended_early(work, content)
        self.end_child()
        return TimedOut(work.timeout or 0.0)

    def _ended_early(self, work: Work, event: Event) -> Event | None:
        """No handler has begun. If there was no memory for the application, what is imported of it is of no use."""
        if not isinstance(event, Rejected):
            return event
        self.end_child()
        return self._not_imported(work, event.failure)

    def _not_imported(self, work: Work, failure: Failure) -> Event | None:
        """No handler has begun: the import of the application ended the child, or met a limit of the host."""
        failure = replace(failure, message=f"{NOT_IMPORTED}: {failure.message}")
        pause = self.executor.import_failed(work.name, str(failure))
        return Rejected(failure, pause) if self.why is None else event_for(self.why)

    def _not_started(self, error: Exception) -> Event | None:
        """The system has no room for another process: an outage of our own, which spends nothing. Invariant 11."""
        self.end_child()
        failure = replace(Failure.of(error), message=f"{NOT_STARTED}: {error}")
        pause = self.executor.start_pause.refresh()
        return Rejected(failure, pause) if self.why is None else event_for(self.why)

    def _hears(self, deadline: float | None) -> bool:
        """Wait until the child has said something. False: its time is up. EOFError: it is dead."""
        assert self.pipe is not None
        deaths = [] if self.death is None else [self.death]
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            pause = left if self.death is not None else min(LOOK_INTERVAL, left or LOOK_INTERVAL)
            if self.pipe in connection.wait([self.pipe, *deaths], pause):
                return True
            if self._is_dead():
                if self.pipe.poll():
                    return True  # its last words
                raise EOFError
            if left is not None and left <= 0:
                return False

    def _is_dead(self, seconds: float = 0.0) -> bool:
        """Ask the operating system, waiting so long at most. Its number stays taken, as long as that can be had."""
        if self.death is not None:
            return bool(connection.wait([self.death], seconds))
        self.child.join(seconds)
        return not self.child.is_alive()

    def _lost_child(self, work: Work) -> Event | Died | None:
        """The child is gone: because we ended it, or by itself, which spends a crash if a handler had begun."""
        child, is_fresh = self.child, self._is_fresh
        known = child is not None and self._is_dead(1)  # its pipe may be gone a moment before itself
        self.end_child()
        code = child.exitcode if known else None
        if code == NOT_GUARDED:
            return self._died(
                'the program starts a worker when it is imported; see if __name__ == "__main__":'
            )
        if is_fresh and self.why is None:
            return self._not_imported(
                work, Failure.note("ImportFailed", f"it ended by itself (exit code {code})")
            )
        return self._died(f"the process of this handler ended by itself (exit code {code})")

    def _died(self, message: str) -> Event | Died | None:
        return Died(message) if self.why is None else event_for(self.why)

    def interrupt(self, why: Interruption) -> None:
        """Kill the child, of which its leader hears; one that is only being made, the leader does not let begin."""
        self.why = why
        with self._ending:
            if self.child is not None:
                _kill(self.child)

    def dump_stacks(self) -> None:
        with self._ending:
            if self.child is not None and not self._is_dead():
                os.kill(self.child.pid, signal.SIGUSR1)

    def _spawn(self) -> None:
        spawning = multiprocessing.get_context("spawn")
        self.pipe, theirs = spawning.Pipe()
        _bound(self.pipe)
        home = AppRecipe(self.executor.app, self.executor.around.database.settings)
        child = spawning.Process(target=serve, args=(theirs, home), name="penstock-handler", daemon=True)
        resource_tracker.ensure_running()  # if that starts it, it lets signals through again
        # The child inherits the mask: these signals stay pending until the child has installed its handlers.
        signal.pthread_sigmask(signal.SIG_BLOCK, HELD_BACK)
        with theirs:
            child.start()
        with self._ending:
            self.child, self.death = child, _handle_of(child.pid or 0)
        self._is_fresh = True
        self.executor.start_pause.end()

    def end_child(self) -> None:
        """Kill the child and all that it has started, and take leave of it."""
        with self._ending:
            child, self.child = self.child, None
            death, self.death = self.death, None
            pipe, self.pipe = self.pipe, None
            if child is not None:
                _kill(child)
        if child is not None:
            child.join(5)
        if death is not None:
            os.close(death)
        if pipe is not None:
            pipe.close()


def _kill(child: Any) -> None:
    """With its process group, which outlives it if there is something in the background. It is not yet waited for."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.kill()


def _handle_of(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # not on this system, or no more handles are to be had
        return None


def _bound(pipe: Connection) -> None:
    """No leader waits for ever for the rest of a message, or for one to be read."""
    with socket.socket(fileno=os.dup(pipe.fileno())) as ends:
        for option, seconds in ((socket.SO_RCVTIMEO, LONGEST_SILENCE), (socket.SO_SNDTIMEO, LONGEST_START)):
            ends.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(seconds), 0))
