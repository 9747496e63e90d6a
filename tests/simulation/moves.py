"""The moves of a job: which changes of its state there may be, what they may spend, and where they must leave it.

The numbers are those of the invariants. How an attempt may end is in `endings`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation import endings

if TYPE_CHECKING:
    from tests.simulation.model import Model

TERMINAL = ("succeeded", "failed", "cancelled", "skipped")
REPLACED = ("latest",)
"""Tasks whose jobs may be replaced, and put off, while they wait."""
CHILDREN = ("small", "fragile", "part")
"""Pipelines that are steps of others."""


class State(NamedTuple):
    status: str
    token: int | None
    process: str | None
    generation: int
    retries: int
    crashes: int
    cancel: int
    reason: str | None


def change(model: Model, job_id: str, before: tuple[Any, ...], after: tuple[Any, ...]) -> None:
    old = State(*before) if before[0] is not None else None
    new = State(*after) if after[0] is not None else None
    if new is None:
        if old is not None and old.status not in TERMINAL:
            model.say(f"{job_id} is {old.status}, and was pruned")
        model.pruned.add(job_id)
        return
    model.states[job_id] = new
    if old is None and new.status == "running" and model.jobs[job_id].run_id:
        _held_at_once(model, job_id, new)
        return
    if old is None:
        begins = ("available", "scheduled", "waiting", *(TERMINAL if model.jobs[job_id].run_id else ()))
        if new.status not in begins or new.generation:
            model.say(f"{job_id} begins as {new.status}")
        return
    _generation(model, job_id, old, new)
    if old.status == "running" and new.token != old.token:
        _end(model, job_id, old, new)
    elif old.status != new.status:
        _move(model, job_id, old, new)


def _generation(model: Model, job_id: str, old: State, new: State) -> None:
    claimed = new.token is not None and new.token != old.token
    if old.status == "waiting" and new.generation == old.generation + 1:
        return  # what it waited for has ended it: an attempt without a claim
    if (new.status, new.generation) == ("available", old.generation - 1) and old.status == "running":
        if (job_id, old.generation) in model.began:
            model.say(f"{job_id} was refused by a limit, and has run [2]")
        return  # no process has heard of this claim
    if new.generation - old.generation != int(claimed):
        model.say(f"{job_id} goes from generation {old.generation} to {new.generation} [2]")
    if claimed and model.tokens.setdefault(new.token or 0, model.tx) != model.tx:
        model.say(f"token {new.token} is given again [2]")


def _held_at_once(model: Model, job_id: str, new: State) -> None:
    """A step may be written as held by the process that settled the one before it: a claim like any other."""
    if new.generation != 1 or new.token is None:
        model.say(f"{job_id} is held from the beginning by no claim [2]")
    if model.tokens.setdefault(new.token or 0, model.tx) != model.tx:
        model.say(f"token {new.token} is given again [2]")
    if new.process not in model.processes:
        model.say(f"{job_id} is held for a process that is not there [10]")


def _move(model: Model, job_id: str, old: State, new: State) -> None:
    """A change of a job that no process holds."""
    match (old.status, new.status):
        case ("available", "running"):
            if new.process not in model.processes:
                model.say(f"{job_id} is claimed for a process that is not there [10]")
        case ("scheduled", "available") | ("available" | "scheduled" | "waiting", "cancelled"):
            pass
        case ("available" | "scheduled" | "waiting", _) if (
            model.jobs[job_id].run_id and new.status != "running"
        ):
            pass
        case ("waiting", "scheduled" | "skipped"):
            pass  # it has followed another job, which is over
        case ("available", "scheduled") if model.jobs[job_id].task in REPLACED or model.is_poisoned:
            pass  # where another job cannot be claimed, this one may be put off in its place: for a moment
        case ("failed", "cancelled") if new.reason == "discarded":
            pass
        case ("failed" | "cancelled", "available"):
            if new.retries or new.crashes or new.cancel:
                model.say(f"{job_id} is retried with old budgets [11]")
            return
        case _:
            model.say(f"{job_id} goes from {old.status} to {new.status}")
    if (old.retries, old.crashes) != (new.retries, new.crashes):
        model.say(f"{job_id} spends budget by going to {new.status} [11]")


def _end(model: Model, job_id: str, old: State, new: State) -> None:
    """A claim ends: with an execution in the same transaction, or given back before it began."""
    if model.jobs[job_id].task in CHILDREN:
        return  # it starts a run and waits for that
    execution = model.executions.get((job_id, old.generation))
    if execution is None or execution[0] != model.tx:
        if job_id in model.refused:
            return  # its outcome was refused in every form that leaves one
        met = model.jobs[job_id].run_id is not None and new.status in ("skipped", "cancelled")
        unwanted = new.status == "cancelled" and (old.cancel or new.reason == "expired")
        given_back = met or new.status == "available" or unwanted
        if (job_id, old.generation) in model.began or not given_back:
            model.say(f"attempt {old.generation} of {job_id} ends as {new.status} without a trace [10]")
        outcome = "released"
    else:
        outcome = execution[2]
        for problem in endings.problems(model, job_id, old, new, execution):
            model.say(f"attempt {old.generation} of {job_id} ends {outcome}: {problem}")
    spent = (new.retries - old.retries, new.crashes - old.crashes)
    errored = outcome in ("errored", "timed_out") and new.status not in TERMINAL
    if spent != (int(errored), int(outcome == "crashed")):
        model.say(f"{job_id} {outcome} spends {spent[0]} retries and {spent[1]} crashes [11]")


def places(model: Model, job_id: str, state: State) -> None:
    """After a commit the tables agree: what is ready is in the queue, what is held has a receipt."""
    staged = model.jobs[job_id].run_id is not None  # steps may be written before they are let go
    match state.status:
        case "available" | "scheduled" if staged:
            pass
        case "available":
            if not model.queued[job_id] and not model.parked[job_id]:
                model.say(f"{job_id} is available and in no queue: it is lost")
        case "scheduled":
            if not model.due[job_id]:
                model.say(f"{job_id} is scheduled for no time: it is lost")
        case "running":
            process, jobs = model.claims.get(state.token or 0, ("", []))
            if process != state.process or job_id not in jobs:
                model.say(f"{job_id} is held without a receipt: no reaper would find it [10]")
