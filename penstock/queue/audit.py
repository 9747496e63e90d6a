"""The audit trail: a row for each act of an operator and its subject, in the transaction of the act.

So there is a row if and only if the act took effect. What a handler does by returning, and what follows from an act by
itself, are not acts: settling, advancing, reaping and retention write nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from penstock.database.transaction import Transaction
from penstock.queue.jobs import NewJob
from penstock.values.actor import actor, named_actor
from penstock.values.ids import new_id
from penstock.values.typed_json.json_text import dumps, loads

RUNS_OF = "SELECT id, run_id FROM {jobs} WHERE id {among:ids:uuid}"
DETAIL = "SELECT detail FROM {audits} WHERE id = :id {lock}"
REPLACE = "UPDATE {audits} SET detail = :detail WHERE id = :id"
OLD = "SELECT id FROM {audits} WHERE acted_at <= {now} - :age ORDER BY acted_at, id LIMIT :limit"
REMOVE = "DELETE FROM {audits} WHERE id {among:ids:uuid}"
BATCH = 1000


class Subject(StrEnum):
    """The kind of thing that an act is about."""

    RUN = "run"
    JOB = "job"
    SCHEDULE = "schedule"
    QUEUE = "queue"
    PROCESS = "process"
    RECONCILER = "reconciler"
    ALL = "installation"


def of_run(tx: Transaction, act: str, run: str, why: str | None = None, **detail: object) -> None:
    """Something was done to a run."""
    of_runs(tx, act, [run], why, **detail)


def of_runs(tx: Transaction, act: str, runs: Sequence[str], why: str | None = None, **detail: object) -> None:
    """The same was done to several runs."""
    _write(tx, act, Subject.RUN, [(run, run) for run in runs], detail, why)


def of_jobs(tx: Transaction, act: str, jobs: Sequence[str], **detail: object) -> None:
    """The same was done to several jobs."""
    if jobs:
        found = tx.rows(RUNS_OF, ids=sorted(jobs))
        _write(tx, act, Subject.JOB, [(str(job), run) for job, run in found], detail)


def of_schedule(
    tx: Transaction, act: str, id: str, name: str, why: str | None = None, **detail: object
) -> None:
    """Something was done to a schedule."""
    _write(tx, act, Subject.SCHEDULE, [(id, None)], {"schedule": name, **detail}, why)


def of_queue(tx: Transaction, act: str, why: str | None = None, **detail: object) -> None:
    """Something was done to a queue, or to the queues of workers, which have names and no ids."""
    _write(tx, act, Subject.QUEUE, [(None, None)], detail, why)


def of_process(tx: Transaction, act: str, process: str) -> None:
    """Something was asked of a process."""
    _write(tx, act, Subject.PROCESS, [(process, None)], {})


def of_reconcilers(tx: Transaction, act: str, table: str, **detail: object) -> None:
    """Something was asked of the reconcilers of a table, which have names and no ids."""
    _write(tx, act, Subject.RECONCILER, [(None, None)], {"table": table, **detail})


def of_enqueued(tx: Transaction, jobs: Sequence[NewJob], ids: Sequence[str]) -> None:
    """Record an enqueue by a named actor, for the jobs that it inserted."""
    if named_actor() is None:
        return
    new = [job for job, id in zip(jobs, ids, strict=True) if job.id == id]
    for task in sorted({job.task for job in new}):
        made: list[tuple[str | None, str | None]] = [(job.id, None) for job in new if job.task == task]
        _write(tx, "enqueue", Subject.JOB, made, {"task": task})


def count(tx: Transaction, id: str, act: str, number: int, **detail: object) -> None:
    """Record an act that takes many transactions: one row, whose `count` grows with each of them."""
    row = tx.row(DETAIL, id=id)
    if row is None:
        _write(tx, act, Subject.ALL, [(None, None)], {**detail, "count": number}, id=id)
        return
    known = loads(row[0])
    assert isinstance(known, dict)
    tx.run(REPLACE, id=id, detail=dumps({**known, "count": int(str(known["count"])) + number}))


def prune(tx: Transaction, age: float) -> bool:
    """Remove the oldest rows; True if there may be more."""
    tx.stage("prune_audits")
    ids = [str(id) for (id,) in tx.rows(OLD, age=int(age * 1_000_000), limit=BATCH)]
    if ids:
        tx.run(REMOVE, ids=ids)
    return len(ids) == BATCH


def _write(
    tx: Transaction,
    act: str,
    kind: Subject,
    subjects: Sequence[tuple[str | None, str | None]],
    detail: Mapping[str, object],
    why: str | None = None,
    id: str | None = None,
) -> None:
    by, told = actor()
    text = dumps({name: value for name, value in detail.items() if value is not None})
    rows = [
        {
            "id": id or new_id(),
            "actor": by,
            "why": told or why or "",
            "act": act,
            "subject_kind": kind.value,
            "subject_id": subject,
            "run_id": run,
            "detail": text,
        }
        for subject, run in subjects
    ]
    tx.insert("audits", rows, acted_at="{now}")
