"""Callbacks: ordinary jobs, enqueued in the transaction that makes a run terminal, under a key of the run's own."""

from __future__ import annotations

from typing import Any

from penstock.database.transaction import Transaction
from penstock.pipelines.desk import Desk
from penstock.pipelines.ending import events_of
from penstock.pipelines.runs import RunView
from penstock.queue.enqueue import enqueue as enqueue_jobs
from penstock.queue.jobs import NewJob, tier_of
from penstock.values.ids import new_id
from penstock.values.jsontext import dumps
from penstock.values.layout import KEYWORDS
from penstock.values.status import RunStatus

ALIASES = {"run": "run_id", "id": "run_id"}


def enqueue(desk: Desk, tx: Transaction, run: RunView, status: RunStatus, reasons: tuple[str, ...]) -> None:
    """One job for each task that is to hear of this end."""
    wanted = dict(run.wiring.definition.callbacks)
    told: dict[str, object] = {
        "run_id": run.id,
        "pipeline": run.pipeline,
        "status": status.value,
        "reasons": list(reasons),
    }
    jobs = [
        _job(desk, task, event, run.id, told) for event in events_of(status) for task in wanted.get(event, ())
    ]
    if not jobs:
        return
    enqueue_jobs(tx, jobs)
    desk.trace(tx).made.update({job.id: (job.queue, tier_of(job.priority)) for job in jobs})
    desk.tell_ready(tx)


def _job(desk: Desk, name: str, event: str, run: str, told: dict[str, object]) -> NewJob:
    task = desk.host.find_task(name)
    settings = task.settings if task is not None else None
    return NewJob(
        id=new_id(),
        task=name,
        queue=settings.queue if settings is not None else "default",
        priority=settings.priority if settings is not None else 0,
        payload=dumps(_arguments(task, told)),
        max_crashes=settings.max_crashes if settings is not None else 10,
        key=f"{event}:{run}",
    )


def _arguments(task: Any, told: dict[str, object]) -> dict[str, object]:
    """What the task takes of it, by name; a task with one other parameter is given all of it in a dict."""
    if task is None:
        return told
    parameters = task.signature.parameters.values()
    names = [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    given = {name: told[ALIASES.get(name, name)] for name in names if ALIASES.get(name, name) in told}
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        rest = {name: value for name, value in told.items() if name not in given}
        return {**given, KEYWORDS: rest}
    if not given and names:
        return {names[0]: told}
    return given
