"""Typed events, and the stream they go through. Code says what happened; listeners decide on words and numbers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from penstock.values.fork_safety import register_reset_after_fork

log = logging.getLogger("penstock")


@dataclass(frozen=True, slots=True)
class Event:
    """Something happened."""


@dataclass(frozen=True, slots=True)
class JobsEnqueued(Event):
    task: str
    queue: str
    count: int


@dataclass(frozen=True, slots=True)
class RunsTriggered(Event):
    pipeline: str
    count: int


@dataclass(frozen=True, slots=True)
class JobsClaimed(Event):
    process: str
    count: int
    seconds: float


@dataclass(frozen=True, slots=True)
class AttemptSettled(Event):
    job_id: str
    task: str
    queue: str
    generation: int
    outcome: str
    status: str
    reason: str | None
    seconds: float
    error: str | None = None
    error_type: str | None = None
    """The name of the exception's class, with its module."""
    traceback: str | None = None
    run_id: str | None = None
    """The run that a step belongs to."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The headers that were stored with the job. A step has none of its own: they are its run's."""


@dataclass(frozen=True, slots=True)
class ClaimLost(Event):
    """CommitFailed: a result came too late and was dropped; another claim of the job is current."""

    job_id: str
    task: str
    generation: int


@dataclass(frozen=True, slots=True)
class ClaimsReleased(Event):
    process: str
    count: int


@dataclass(frozen=True, slots=True)
class JobsCancelled(Event):
    """Jobs that waited were cancelled. One that runs is told, and ends by an `AttemptSettled`."""

    job_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobCrashed(Event):
    job_id: str
    task: str
    process: str
    status: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class WorkReclaimed(Event):
    """Jobs were taken back from dead processes; each spends a crash. `failed`: how many have none left."""

    count: int
    failed: int


@dataclass(frozen=True, slots=True)
class WorkerAnnounced(Event):
    """`penstock worker` has started: where its work comes from, and which work it can do."""

    database: str
    queues: str
    tasks: tuple[str, ...]
    pipelines: int
    reconcilers: int
    processes: int
    concurrency: int


@dataclass(frozen=True, slots=True)
class QueueUnused(Event):
    """`penstock worker` was told to take from a queue that nothing has used yet. `advice`: the nearest known name."""

    queue: str
    advice: str


@dataclass(frozen=True, slots=True)
class ProcessStarted(Event):
    process: str
    host: str
    pid: int
    role: str


@dataclass(frozen=True, slots=True)
class MetricsServed(Event):
    """A worker serves its metrics and probes over HTTP."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class ProcessStopped(Event):
    process: str


@dataclass(frozen=True, slots=True)
class ProcessDeserted(Event):
    """The event loop of a worker was closed under it."""

    process: str


@dataclass(frozen=True, slots=True)
class ProcessReaped(Event):
    process: str


@dataclass(frozen=True, slots=True)
class ProcessDeclaredDead(Event):
    """This process was declared dead: its claims are gone, and it goes on under a new id."""

    process: str


@dataclass(frozen=True, slots=True)
class ChildStarted(Event):
    pid: int
    slot: int


@dataclass(frozen=True, slots=True)
class ChildEnded(Event):
    """A child of the supervisor is gone. `code` is its exit code, or minus the signal that ended it."""

    pid: int
    slot: int
    code: int
    expected: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class ChildReplaced(Event):
    """Another took the place of a child that ended. `seconds`: how long the place was empty."""

    pid: int
    slot: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ChildPostponed(Event):
    """Children end as soon as they start: the next one has to wait."""

    slot: int
    deaths: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ChildKilled(Event):
    """The supervisor killed a child: it was silent for too long, or did not stop in time."""

    pid: int
    why: str


@dataclass(frozen=True, slots=True)
class StopRequested(Event):
    """A stop signal. `at_once`: the second one, which stops the process without waiting."""

    signal: str
    at_once: bool


@dataclass(frozen=True, slots=True)
class WorkReleased(Event):
    """Work of a stopped process was given back; it spends nothing."""

    count: int


@dataclass(frozen=True, slots=True)
class HandlerOverdue(Event):
    """A handler went on after its timeout: it cannot be stopped, only waited for."""

    job_id: str
    task: str
    seconds: float


@dataclass(frozen=True, slots=True)
class PlaceFreed(Event):
    """A place of a worker was occupied without a running handler; it is free again."""

    job_id: str
    task: str


@dataclass(frozen=True, slots=True)
class ClockStepped(Event):
    """The database's clock was set. `seconds`: how far it moved beyond the time that has passed."""

    seconds: float


@dataclass(frozen=True, slots=True)
class RunEnded(Event):
    run_id: str
    pipeline: str
    status: str
    reasons: tuple[str, ...]
    scheduled: bool = False
    """True if a schedule has started this run, or one that it revives or repeats; never true of a child run."""


@dataclass(frozen=True, slots=True)
class RunRepaired(Event):
    """A run was active and nothing could advance it; it was repaired."""

    run_id: str
    repair: str


@dataclass(frozen=True, slots=True)
class RowSetAside(Event):
    """A row could not be handled: it is left alone and tried again after so many seconds; nothing else waits for it.

    `what`: the kind of row. `row`: its key. `tries`: how often this process has tried.
    """

    what: str
    row: str
    error: str
    tries: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RowHandled(Event):
    """A row that had been set aside went through."""

    what: str
    row: str


@dataclass(frozen=True, slots=True)
class TicksDecided(Event):
    """Ticks of a schedule fired, or were skipped. `lateness`: seconds, of the latest that fired.

    `runs`: the ids of the runs that were started, where the schedule is a pipeline's.
    """

    schedule: str
    task: str
    outcome: str
    count: int
    lateness: float
    runs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ScheduleFailed(Event):
    """A schedule cannot be fired; it is tried again later, and the others go on."""

    schedule: str
    error: str


@dataclass(frozen=True, slots=True)
class ControlIgnored(Event):
    """The queues that an operator has set for the workers of a host cannot be read; the worker goes on without them.

    `host`: `*` stands for all hosts.
    """

    host: str
    error: str


@dataclass(frozen=True, slots=True)
class TroubleBegan(Event):
    """A loop fails and goes on trying; this is reported once."""

    loop: str
    error: str


@dataclass(frozen=True, slots=True)
class TroubleEnded(Event):
    loop: str
    seconds: float


E = TypeVar("E", bound=Event)
Listener = Callable[[Event], None]


class Stream:
    """Hands every event to each listener that asked for its type. A listener that raises disturbs no other listener."""

    def __init__(self) -> None:
        self._listeners: list[tuple[type[Event], Listener]] = []
        self.reset_after_fork()
        register_reset_after_fork(self)

    def reset_after_fork(self) -> None:
        """In a forked child: replace the lock, which a thread of the parent may hold. The listeners stay."""
        self._lock = threading.Lock()

    def on(self, kind: type[E], listener: Callable[[E], None]) -> Callable[[], None]:
        """Listen to a type of event (and its subtypes). Call what is returned to stop."""
        entry = (kind, listener)
        with self._lock:
            self._listeners = [*self._listeners, entry]  # type: ignore[list-item]

        def stop() -> None:
            with self._lock:
                self._listeners = [other for other in self._listeners if other is not entry]

        return stop

    def wants(self, kind: type[Event]) -> bool:
        return any(issubclass(kind, wanted) for wanted, _ in self._listeners)

    def emit(self, event: Event) -> None:
        for kind, listener in self._listeners:
            if isinstance(event, kind):
                try:
                    listener(event)
                except BaseException as error:
                    if _is_interrupt(error):
                        raise
                    _report(event)


def _is_interrupt(error: BaseException) -> bool:
    """True if Ctrl-C ends the program. Whatever else a listener raises must not end the thread that tells it."""
    in_main = threading.current_thread() is threading.main_thread()
    return in_main and issubclass(type(error), KeyboardInterrupt)


def _report(event: Event) -> None:
    try:
        log.exception("a listener of %s raised", type(event).__name__)
    except BaseException as error:  # filters and handlers of the log are the user's code too
        if _is_interrupt(error):
            raise
