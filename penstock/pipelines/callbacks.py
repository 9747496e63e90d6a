"""Callbacks: ordinary jobs, enqueued in the transaction that makes a run terminal, under a key of the run's own."""

from __future__ import annotations

from penstock.database.transaction import Transaction
from penstock.pipelines.callback import Callback, payload
from penstock.pipelines.desk import Desk, Mould
from penstock.pipelines.ending import events_of
from penstock.pipelines.runs import RunView
from penstock.queue.enqueue import enqueue as enqueue_jobs
from penstock.queue.jobs import NewJob, tier_of
from penstock.values.ids import new_id
from penstock.values.status import RunStatus


def enqueue(desk: Desk, tx: Transaction, run: RunView, status: RunStatus, reasons: tuple[str, ...]) -> None:
    """One job for each task that is to hear of this end."""
    wanted = dict(run.wiring.definition.callbacks)
    told: dict[str, object] = {
        "run_id": run.id,
        "id": run.id,
        "pipeline": run.pipeline,
        "status": status.value,
        "reasons": list(reasons),
    }
    jobs = [
        _job(found, event, run.id, told) for event in events_of(status) for found in wanted.get(event, ())
    ]
    if not jobs:
        return
    enqueue_jobs(tx, jobs)
    desk.trace(tx).made.update({job.id: (job.queue, tier_of(job.priority)) for job in jobs})
    desk.tell_ready(tx)


def _job(callback: Callback, event: str, run: str, told: dict[str, object]) -> NewJob:
    mould = Mould.of(callback.task, callback.job)
    return NewJob(
        id=new_id(),
        task=mould.task,
        queue=mould.queue,
        priority=mould.priority,
        payload=payload(callback, told),
        options=mould.options,
        max_crashes=mould.max_crashes,
        delay=callback.delay,
        key=f"{event}:{run}",
    )
