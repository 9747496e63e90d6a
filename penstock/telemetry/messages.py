"""The one place where events get words and levels. Everything else only says what happened.

Ordinary success is `debug`; what an operator wants to know of is `info`; what spends a budget or drops a
result is `warning`; what an operator must look at is `error`.
"""

from __future__ import annotations

from collections.abc import Callable
from logging import DEBUG, ERROR, INFO, WARNING
from typing import Any, TypeVar

from penstock.telemetry import events
from penstock.telemetry.events import Event
from penstock.values.plain import counted

E = TypeVar("E", bound=Event)
Level = int | Callable[[Any], int]
Words = Callable[[Any], str]


def word(kind: type[E], level: int | Callable[[E], int], words: Callable[[E], str]) -> None:
    """Register the message of another type of event. Listeners that log are told, since they may have begun before."""
    WORDING[kind] = (level, words)
    for tell in added:
        tell(kind)


added: list[Callable[[type[Event]], None]] = []
"""Called with each type of event that is registered later, such as those of reconcilers."""


def _settled_level(event: events.AttemptSettled) -> int:
    if event.status == "failed":
        return ERROR
    return WARNING if event.outcome in ("errored", "timed_out", "crashed") else DEBUG


def _settled(event: events.AttemptSettled) -> str:
    what = f"job {event.job_id} ({event.task}) {event.outcome} after {event.seconds:.3f} s"
    error = f": {event.error}" if event.error else ""
    match event.status:
        case "failed":
            return f"{what}{error}. It is a dead letter now ({event.reason})"
        case "available" | "scheduled":
            return f"{what}{error}; it will run again"
        case _:
            return f"{what}{error}"


MOST_NAMES = 20


def _announced(event: events.WorkerAnnounced) -> str:
    names = ", ".join(event.tasks[:MOST_NAMES])
    more = f" and {len(event.tasks) - MOST_NAMES} more" if len(event.tasks) > MOST_NAMES else ""
    told = f"{counted(len(event.tasks), 'task')} ({names}{more})" if event.tasks else "no tasks"
    told += f", {counted(event.pipelines, 'pipeline')}" if event.pipelines else ""
    told += f", {counted(event.reconcilers, 'reconciler')}" if event.reconcilers else ""
    if not (event.tasks or event.reconcilers):
        told += ": it will do nothing. Import the modules that declare them where the app is made"
    shape = f"{counted(event.processes or 1, 'process', 'processes')} of {counted(event.concurrency, 'job')} at a time"
    return f"worker on {event.database}, queues: {event.queues}, {shape}; {told}"


def _ended(event: events.ChildEnded) -> str:
    how = f"was ended by signal {-event.code}" if event.code < 0 else f"ended with code {event.code}"
    return f"child {event.pid} {how} after {event.seconds:.1f} s"


def _crashed(event: events.JobCrashed) -> str:
    fate = {"failed": f"it is a dead letter now ({event.reason})", "cancelled": "it was cancelled anyway"}
    then = fate.get(event.status, "it will run again")
    return f"job {event.job_id} ({event.task}) lost its process {event.process}; {then}"


def _set_aside(event: events.RowSetAside) -> str:
    return (
        f"{event.what} {event.row} cannot be handled and is set aside; all others go on, and this one is tried again "
        f"in {event.seconds:g} s: {event.error}. `penstock doctor` says what to do"
    )


def _ticks(event: events.TicksDecided) -> str:
    late = f", {event.lateness:.1f} s late" if event.outcome == "fired" else ""
    return f"schedule {event.schedule} ({event.task}): {event.count} {event.outcome}{late}"


def _run_ended(event: events.RunEnded) -> str:
    why = f": {', '.join(event.reasons)}" if event.reasons else ""
    return f"run {event.run_id} ({event.pipeline}) ended {event.status}{why}"


WORDING: dict[type[Event], tuple[Level, Words]] = {
    events.JobsEnqueued: (DEBUG, lambda e: f"enqueued {e.count} of {e.task} to queue {e.queue}"),
    events.RunsTriggered: (DEBUG, lambda e: f"triggered {counted(e.count, 'run')} of {e.pipeline}"),
    events.JobsClaimed: (DEBUG, lambda e: f"claimed {counted(e.count, 'job')} in {e.seconds * 1000:.1f} ms"),
    events.AttemptSettled: (_settled_level, _settled),
    events.RunEnded: (lambda e: ERROR if e.status in ("failed", "halted") else DEBUG, _run_ended),
    events.RunRepaired: (
        WARNING,
        lambda e: f"run {e.run_id} could not have gone on and was repaired: {e.repair}",
    ),
    events.TicksDecided: (lambda e: INFO if e.outcome == "skipped_missed" else DEBUG, _ticks),
    events.ScheduleFailed: (
        ERROR,
        lambda e: f"schedule {e.schedule} cannot be fired and is tried again later: {e.error}",
    ),
    events.ClaimLost: (
        WARNING,
        lambda e: f"CommitFailed: the result of job {e.job_id} ({e.task}) was dropped: its claim was lost",
    ),
    events.ClaimsReleased: (INFO, lambda e: f"gave back {counted(e.count, 'job')}"),
    events.WorkReleased: (
        INFO,
        lambda e: f"gave back {counted(e.count, 'job')} of a stopped process; nothing is spent",
    ),
    events.JobsCancelled: (DEBUG, lambda e: f"cancelled {counted(len(e.job_ids), 'waiting job')}"),
    events.JobCrashed: (lambda e: ERROR if e.status == "failed" else DEBUG, _crashed),
    events.WorkReclaimed: (WARNING, lambda e: f"took back {counted(e.count, 'job')} of dead processes"),
    events.HandlerOverdue: (
        WARNING,
        lambda e: f"job {e.job_id} ({e.task}) runs on after its timeout of {e.seconds:g} s",
    ),
    events.PlaceFreed: (
        ERROR,
        lambda e: f"the place of job {e.job_id} ({e.task}) was taken by nothing, and is free again",
    ),
    events.ClockStepped: (
        WARNING,
        lambda e: (
            f"the database's clock was set by {e.seconds:+.1f} s: no process is judged by its silence until all have "
            "had time to be heard"
        ),
    ),
    events.WorkerAnnounced: (lambda e: INFO if e.tasks or e.reconcilers else WARNING, _announced),
    events.QueueUnused: (
        WARNING,
        lambda e: (
            f"no task of this app is for the queue {e.queue!r}, and no job has been in it yet{e.advice}"
        ),
    ),
    events.ProcessStarted: (
        INFO,
        lambda e: f"process {e.process} ({e.role}) started, pid {e.pid} on {e.host}",
    ),
    events.ProcessStopped: (INFO, lambda e: f"process {e.process} stopped"),
    events.ProcessDeserted: (
        ERROR,
        lambda e: (
            f"the event loop of process {e.process} was closed under its worker, which gives back what it holds and "
            "ends. Stop a worker before its loop: await worker.stop()"
        ),
    ),
    events.ProcessReaped: (WARNING, lambda e: f"process {e.process} is dead; its work is taken back"),
    events.ProcessDeclaredDead: (
        WARNING,
        lambda e: f"process {e.process} was taken for dead: its claims are gone, it goes on under a new name",
    ),
    events.ChildStarted: (INFO, lambda e: f"child {e.pid} started"),
    events.ChildEnded: (lambda e: INFO if e.expected or e.code == 0 else ERROR, _ended),
    events.ChildReplaced: (INFO, lambda e: f"child {e.pid} took an empty place after {e.seconds:.2f} s"),
    events.ChildPostponed: (
        ERROR,
        lambda e: (
            f"{counted(e.deaths, 'child', 'children')} in a row ended right after the start; "
            f"the next in {e.seconds:g} s"
        ),
    ),
    events.ChildKilled: (ERROR, lambda e: f"killed child {e.pid}: {e.why}"),
    events.MetricsServed: (INFO, lambda e: f"metrics are served on {e.host}, port {e.port}"),
    events.StopRequested: (
        INFO,
        lambda e: f"{e.signal}: stopping {'at once' if e.at_once else 'when running work is done'}",
    ),
    events.RowSetAside: (lambda e: ERROR if e.tries == 1 else DEBUG, _set_aside),
    events.ControlIgnored: (
        ERROR,
        lambda e: (
            f"the queues set for the workers of host {e.host} cannot be read and are ignored: {e.error}. "
            "`penstock doctor` says what to do"
        ),
    ),
    events.RowHandled: (INFO, lambda e: f"{e.what} {e.row} went through and is no longer set aside"),
    events.TroubleBegan: (ERROR, lambda e: f"the {e.loop} is in trouble and goes on trying: {e.error}"),
    events.TroubleEnded: (INFO, lambda e: f"the {e.loop} works again after {e.seconds:.1f} s"),
}
