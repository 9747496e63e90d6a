"""How an attempt may end: every outcome must be true, written by whom it belongs to, and spend what it should."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.model import Model
    from tests.simulation.moves import State

PUTS = {
    "succeeded": ("succeeded",),
    "errored": ("scheduled", "available", "failed"),
    "timed_out": ("scheduled", "available", "failed"),
    "crashed": ("scheduled", "available", "failed", "cancelled"),
    "snoozed": ("scheduled", "available"),
    "cancelled": ("cancelled",),
    "released": ("available", "scheduled"),
}
"""Where each outcome may put a job."""
MOST_RETRIES = 2
"""What every task here is declared with."""
TIMED = (
    *("slow", "patient", "on_time", "stubborn"),
    *("entering", "unawaited", "deaf", "marking", "passing", "dozing", "slim"),
)
"""The tasks that have a timeout."""
WITHIN = ("writing", "writing_async", "entering", "unawaited", "deaf", "slim")
"""The tasks that complete in a transaction of their own."""


def problems(model: Model, job_id: str, old: State, new: State, execution: tuple[Any, ...]) -> Iterator[str]:
    """What is wrong with the end of a claim."""
    _tx, process, outcome, _output, _error = execution
    if new.status not in PUTS[outcome]:
        yield f"and goes to {new.status}"
    if old.cancel and new.status != "cancelled":
        yield f"goes to {new.status}, but its cancellation was accepted"
    if outcome == "crashed":
        yield from _crash(model, job_id, old, new)
        return
    if outcome == "cancelled" and model.jobs[job_id].run_id is not None:
        return  # a run gives up on its steps after its grace, from anywhere
    if process is None and model.jobs[job_id].run_id is not None:
        return  # kept from the run that this one was revived from: there it was checked
    if model.host != model.hosts.get(old.process or ""):
        yield "but the claim is not this host's [3]"
    if process != old.process and model.hosts.get(process) != model.host:
        yield "in the name of another process [3]"
    if outcome == "errored" and job_id in model.refused:
        return  # what its handler did could not be written
    yield from _true(model, job_id, old, outcome)
    if outcome in ("errored", "timed_out") and (new.status == "failed") != (old.retries >= MOST_RETRIES):
        yield f"and goes to {new.status} with {old.retries} retries spent [11]"


def _crash(model: Model, job_id: str, old: State, new: State) -> Iterator[str]:
    """Only the dead crash. A process that left in order holds nothing any more: that spends nothing."""
    if old.process in model.processes:
        yield "but its process is there [10]"
    if old.process in model.departed and not old.cancel and job_id not in model.refused:
        yield "but its process stopped in order [11]"
    most = model.jobs[job_id].max_crashes
    exhausted = most is not None and old.crashes + 1 > most
    if not old.cancel and (new.status == "failed") != exhausted:
        yield f"and goes to {new.status} with {old.crashes} crashes before [11]"


def _true(model: Model, job_id: str, old: State, outcome: str) -> Iterator[str]:
    """The handler of this very attempt did that."""
    attempt = (job_id, old.generation)
    how, what = model.ended.get(attempt, ("", None))
    match outcome:
        case "succeeded":
            within = attempt in model.began and model.jobs[job_id].task in WITHIN
            if how != "returned" and not within:
                yield "but its handler did not return [3]"
        case "errored":
            if what == "DatabaseUnavailable":
                yield "but the database was away, which is not the job's fault [11]"
            if how != "raised":
                yield f"but its handler did not raise: {how or 'it had not ended'} {what} [11]"
        case "timed_out":
            if model.jobs[job_id].task not in TIMED:
                yield "but it has no timeout [11]"
        case "snoozed":
            if what != "Snooze":
                yield f"but its handler {how} {what}"
        case "cancelled":
            if what != "Cancel" and not old.cancel:
                yield f"but no caller wanted that; its handler {how} {what}"
        case "released":
            if model.host not in model.leaving and what != "DatabaseUnavailable":
                yield "but its process was not stopping [11]"
