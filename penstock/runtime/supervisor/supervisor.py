"""The supervisor: forks the workers, learns from the operating system when one dies, and starts another in its place.

The main thread only forks, waits and signals; the child reaper does all database work, and rests while a child
is forked, so that the parent of a fork has one thread and no connection but the relay's, which the child closes. A dead
child's work is taken back at once, for its death is proven. A child that does not move is killed, whether the database
answers or not: on SQLite it may be this very child, frozen in the middle of a write, that keeps it from answering. When
the supervisor itself dies, its children notice by a pipe that closes, stop as after SIGTERM, and leave the field to the
supervisor that is started next.
"""

from __future__ import annotations

import gc
import logging
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from penstock.database.listeners import RelayedListener, hears
from penstock.errors import ConfigurationError, DatabaseUnavailable, PenstockError
from penstock.queue.wakeups import READY
from penstock.runtime import os_signals
from penstock.runtime.supervisor.child_process import ChildProcess, ChildPulse, ChildSlot, fork_child
from penstock.runtime.supervisor.child_reaper import SILENCE_SHARE, ChildInfo, ChildReaper
from penstock.runtime.supervisor.wakeup_relay import WakeupRelay
from penstock.runtime.supervisor.worker_process import LAST_MOMENT, OVERTIME, serve_supervised
from penstock.runtime.worker import WorkerOptions
from penstock.telemetry.events import (
    ChildEnded,
    ChildKilled,
    ChildPostponed,
    ChildReplaced,
    ChildStarted,
    ProcessStopped,
    StopRequested,
)

if TYPE_CHECKING:
    from penstock.app_services import AppServices

log = logging.getLogger("penstock")

WAIT = 1.0
AT_ONCE = 1.0
FINAL_CLEANUP = 10.0
FEWEST_RELAYED = 2
"""So many children share the supervisor's listening connection; fewer listen by themselves."""
PULSES = 4
"""How often a live child is heard of, at least, in the time after which it counts as frozen."""


class ChildMonitor(Protocol):
    """Counts what children do, and tells collectors. It may have a thread, which rests while a child is forked."""

    @property
    def handles(self) -> list[int]:
        """Open files that are the supervisor's own."""

    def turned(self) -> None: ...

    def start(self) -> None: ...

    def rest(self) -> None: ...

    def begin_in_child(self, slot: int) -> Callable[[], None]:
        """In the child: count for this slot from now on. Returns what its event loop calls when it turns."""

    def child_ended(self, slot: int) -> None: ...

    def close(self) -> None: ...


class NoMonitor:
    """Counts nothing."""

    handles: Final[list[int]] = []

    def turned(self) -> None: ...

    def start(self) -> None: ...

    def rest(self) -> None: ...

    def begin_in_child(self, slot: int) -> Callable[[], None]:
        return self.turned

    def child_ended(self, slot: int) -> None: ...

    def close(self) -> None: ...


class Supervisor:
    """Keeps `count` worker processes alive until it is told to stop."""

    def __init__(
        self, app: AppServices, options: WorkerOptions, count: int, monitor: ChildMonitor | None = None
    ) -> None:
        if app.database.dialect.in_memory:
            raise ConfigurationError("a database in memory lives in one process only: use --processes 0")
        self.app = app
        self.options = options
        self.stream = app.events
        self.monitor: ChildMonitor = NoMonitor() if monitor is None else monitor
        self.places = [ChildSlot(slot) for slot in range(count)]
        self.code = 0
        self._signals: list[tuple[int, float]] = []
        self._stopping = False
        self._told = 0.0
        self._hurried = False
        self._deadline: float | None = None
        self._leave_by: float | None = None
        self._turned = time.monotonic()
        self._patience = SILENCE_SHARE * app.settings.reap_after
        self._wake_read, self._wake_write = _pipe()
        self._lifeline, self._lifeline_held = os.pipe()
        self.child_reaper = ChildReaper(app, {"processes": count, **options.details}, self._wake)
        self.relay: WakeupRelay | None = None

    def run(self) -> int:
        """Supervise; the exit code, when all is over."""
        self._get_ready()
        handlers: dict[signal.Signals, os_signals.Handler | None] = dict.fromkeys(
            os_signals.that_stop(), self._take_note
        )
        handlers[signal.SIGCHLD] = lambda _number: None
        before = signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        try:
            with os_signals.handling(handlers), os_signals.dumping_stacks(also=self._pass_on_dump):
                while self.turn():
                    self._wait()
        finally:
            signal.set_wakeup_fd(before)
            self._end()
        return self.code

    def turn(self) -> bool:
        """One round: what has happened, and what must be done about it. False: all is over."""
        self.monitor.turned()
        self._obey()
        self._collect_dead()
        self._kill_silent()
        self._kill_frozen()
        self._enforce_deadline()
        if self._stopping:
            self.child_reaper.resume()
        else:
            self._fill_places()
        return bool(not self._stopping or self.children)

    @property
    def children(self) -> list[ChildProcess]:
        return [place.child for place in self.places if place.child is not None]

    def _get_ready(self) -> None:
        self.app.prepare()
        self.app.database.close()
        self.child_reaper.register()
        self.relay = self._make_relay()
        gc.collect()
        gc.freeze()

    def _make_relay(self) -> WakeupRelay | None:
        database = self.child_reaper.database
        if len(self.places) < FEWEST_RELAYED or not hears(database):
            return None
        return WakeupRelay(database, self.app.wakeups.channel_of(READY), len(self.places), self.stream)

    # children

    def _fill_places(self) -> None:
        now = time.monotonic()
        empty = [place for place in self.places if place.child is None and place.due <= now]
        if not empty:
            return
        if not self._rest():
            return  # one of them waits for the database; meanwhile a signal may come
        self.monitor.rest()
        self.app.database.close()
        _wait_for_other_threads()
        for place in empty:
            self._fork(place)
        self.child_reaper.living = [
            ChildInfo(child.child_key, child.pid, child.since) for child in self.children
        ]
        self.child_reaper.start()
        if self.relay is not None:
            self.relay.start()
        self.monitor.start()

    def _rest(self) -> bool:
        """End the threads that use the database. False: not in time."""
        return (self.relay is None or self.relay.rest(WAIT)) and self.child_reaper.rest(WAIT)

    def _fork(self, place: ChildSlot) -> None:
        try:
            with self._listener(place.slot) as listener, os_signals.held_back():
                place.child = child = fork_child(partial(self._live, place.slot, listener), self._handles())
        except OSError as error:
            log.error("cannot fork: %s; trying again", error)
            place.due = time.monotonic() + WAIT
            return
        self.stream.emit(ChildStarted(child.pid, place.slot))
        if place.empty_since is not None:
            self.stream.emit(ChildReplaced(child.pid, place.slot, time.monotonic() - place.empty_since))

    def _listener(self, slot: int) -> AbstractContextManager[RelayedListener | None]:
        return nullcontext() if self.relay is None else self.relay.listener(slot)

    def _handles(self) -> list[int]:
        """Open files that are the supervisor's own."""
        own = [self._lifeline_held, self._wake_read, self._wake_write, *self.monitor.handles]
        relayed = [] if self.relay is None else self.relay.handles
        return [*own, *relayed, *(child.readiness for child in self.children)]

    def _live(
        self, slot: int, listener: RelayedListener | None, child_key: str, say: Callable[[bytes], None]
    ) -> int:
        """The life of a child."""
        details = {**self.options.details, "birth": child_key}
        turned = self.monitor.begin_in_child(slot)
        options = replace(self.options, details=details, turned=turned, listener=listener)
        options = replace(options, supervisor_id=self.child_reaper.id)
        every = min(self.app.settings.heartbeat_interval, self._patience / PULSES)
        pulse = ChildPulse(say, every)
        try:
            return serve_supervised(self.app, options, self._lifeline, pulse.ready)
        except DatabaseUnavailable as error:
            log.error("this process cannot start: %s", error)
            return 3
        except PenstockError as error:
            log.error("this process cannot start: %s", error)
            return 2
        except BaseException:
            log.exception("this process cannot go on")
            return 1

    def _collect_dead(self) -> None:
        for place in self.places:
            child = place.child
            if child is None or not child.has_ended():
                continue
            code = child.code or 0
            lived = time.monotonic() - child.since
            delay = place.lost(child)
            self.monitor.child_ended(place.slot)
            self.stream.emit(ChildEnded(child.pid, place.slot, code, child.told, lived))
            self.child_reaper.reap_child(child.child_key, released=child.told or code == 0)
            if delay and not self._stopping:
                self.stream.emit(ChildPostponed(place.slot, place.deaths, delay))

    def _kill_silent(self) -> None:
        silent, self.child_reaper.silent = self.child_reaper.silent, set()
        for child in self.children:
            if child.child_key in silent and not self._stopping:
                self._kill(child, "nothing was heard of it for too long")

    def _kill_frozen(self) -> None:
        """Kill frozen children, without the database.

        After this process was stopped itself, children get time to be heard first.
        """
        now = time.monotonic()
        was_stopped, self._turned = now - self._turned > self._patience / 4, now
        for child in self.children:
            child.listen()
            if was_stopped:
                child.heard = now
            if not self._stopping and now - child.heard > self._patience:
                self._kill(child, f"it has not moved for {self._patience:.1f} s")

    def _kill(self, child: ChildProcess, why: str) -> None:
        """Kill it, and say so, once: two reasons may be found at the same time."""
        if not child.killed:
            child.killed = True
            self.stream.emit(ChildKilled(child.pid, why))
            child.send(signal.SIGKILL)

    # stopping

    def _take_note(self, number: int) -> None:
        self._signals.append((number, time.monotonic()))

    def _obey(self) -> None:
        while self._signals:
            number, at = self._signals.pop(0)
            if not self._stopping:
                self._told = at
                self._stop(number)
            elif not self._hurried and at > self._told + os_signals.ECHO:
                self._hurry(number)

    def _stop(self, number: int) -> None:
        self._stopping = True
        self.stream.emit(StopRequested(os_signals.name_of(number), False))
        self._deadline = self._leave_by = time.monotonic() + self.app.settings.shutdown_timeout + OVERTIME
        for child in self.children:
            child.told = True
            child.send(signal.SIGTERM)

    def _hurry(self, number: int) -> None:
        self._hurried = True
        self.code = 128 + number
        self.stream.emit(StopRequested(os_signals.name_of(number), True))
        self._deadline = time.monotonic() + AT_ONCE
        for child in self.children:
            child.send(os_signals.HURRY)

    def _enforce_deadline(self) -> None:
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self._deadline = None
            for child in self.children:
                self._kill(child, "it did not stop in time")

    def _end(self) -> None:
        self.monitor.close()
        os.close(self._lifeline_held)
        os.close(self._lifeline)
        self.child_reaper.finish(self._time_to_leave())
        if self.relay is not None:
            self.relay.close(AT_ONCE)
        os.close(self._wake_read)
        os.close(self._wake_write)
        gc.unfreeze()
        self.stream.emit(ProcessStopped(self.child_reaper.id))

    def _time_to_leave(self) -> float:
        """Seconds that the child reaper may still take: a stop ends in time, however much of that the children took."""
        if self._leave_by is None:
            return FINAL_CLEANUP
        return min(FINAL_CLEANUP, max(LAST_MOMENT, self._leave_by - time.monotonic()))

    # waiting

    def _wait(self) -> None:
        """Wait for a signal, a message of the child reaper, or the next due time."""
        times = [place.due for place in self.places if place.child is None and not self._stopping]
        if self._deadline is not None:
            times.append(self._deadline)
        now = time.monotonic()
        longest = min(WAIT, self._patience / (2 * PULSES))
        pause = max(0.0, min([now + longest, *times]) - now)
        if select.select([self._wake_read], [], [], pause)[0]:
            with suppress(BlockingIOError):
                os.read(self._wake_read, 4096)

    def _wake(self) -> None:
        with suppress(BlockingIOError, OSError):
            os.write(self._wake_write, b"!")

    def _pass_on_dump(self) -> None:
        for child in self.children:
            child.send(signal.SIGUSR1)


def _pipe() -> tuple[int, int]:
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
    return ends


def _wait_for_other_threads(seconds: float = 0.1) -> None:
    """Ours are done by now, but for one that may be sending a wake-up. The application's are its own affair."""
    for thread in threading.enumerate():
        if thread.name.startswith("penstock-") and thread is not threading.current_thread():
            thread.join(seconds)
