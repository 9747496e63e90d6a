"""Makes a `TaskResult` of `django.tasks` from what is on record about a job."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.conf import settings
from django.utils import timezone
from django.utils.module_loading import import_string

from penstock.django.application import DjangoApp
from penstock.django.tasks_api import Task, TaskError, TaskResult, TaskResultDoesNotExist, TaskResultStatus
from penstock.errors import PenstockError
from penstock.job import AttemptRecord, attempt_of, instant
from penstock.queue import job_records
from penstock.queue.job_records import JobRecord
from penstock.values.ids import checked_id
from penstock.values.status import JobStatus
from penstock.values.typed_json.json_text import loads

STATUSES = {
    JobStatus.RUNNING: TaskResultStatus.RUNNING,
    JobStatus.SUCCEEDED: TaskResultStatus.SUCCESSFUL,
    JobStatus.FAILED: TaskResultStatus.FAILED,
    JobStatus.CANCELLED: TaskResultStatus.FAILED,
}
"""All others are READY: the job waits, also for its next attempt."""
STAND_INS = {"TimedOut": "builtins.TimeoutError", "Crashed": "builtins.SystemError", "Cancelled": "asyncio.CancelledError"}
"""Exceptions for ends without one: the time was up, the worker's process died, the job was cancelled."""


def read_record(app: DjangoApp, id: str) -> JobRecord:
    """The record of a job, or the error of Django's if there is none."""
    try:
        known = checked_id(id)
    except PenstockError as error:
        raise TaskResultDoesNotExist(id) from error
    app.prepare()
    found = app.database.read(job_records.whole, known)
    if found is None:
        raise TaskResultDoesNotExist(id)
    return found


def result_of(id: str, record: JobRecord, alias: str) -> Any:
    """The result as the caller of `get_result` sees it."""
    call = _call_of(record)
    if call is None or call["backend"] != alias:
        raise TaskResultDoesNotExist(id)
    attempts = [attempt_of(row) for row in record.attempts]
    claimed = None if record.claimed_at is None or record.status is not JobStatus.RUNNING else record.claimed_at
    begun = [each.started_at for each in attempts] + ([instant(claimed)] if claimed is not None else [])
    result = TaskResult(
        task=_task_of(record, alias),
        id=id,
        status=STATUSES.get(record.status, TaskResultStatus.READY),
        enqueued_at=local(instant(record.created_at)),
        started_at=local(begun[0]) if begun else None,
        finished_at=local(instant(record.finished_at)) if record.finished_at else None,
        last_attempted_at=local(begun[-1]) if begun else None,
        args=call["args"],
        kwargs=call["kwargs"],
        backend=alias,
        errors=[task_error(each) for each in attempts if each.error is not None],
        worker_ids=[str(each.process) for each in attempts] + ([str(record.process_id)] if claimed else []),
    )
    if record.output is not None:
        object.__setattr__(result, "_return_value", loads(record.output))
    return result


def task_error(attempt: AttemptRecord) -> Any:
    """An attempt that went wrong, as Django tells it."""
    kind = (attempt.error or "").partition(":")[0]
    path = STAND_INS.get(kind) or (kind if "." in kind else f"builtins.{kind}")
    return TaskError(exception_class_path=path, traceback=attempt.traceback or attempt.error or "")


def local(moment: datetime) -> datetime:
    """A time as the project wants it: aware with USE_TZ, else naive in its own zone."""
    return moment if settings.USE_TZ else timezone.make_naive(moment)


def _call_of(record: JobRecord) -> dict[str, Any] | None:
    """The stored call, if the job is one of this backend's."""
    found: Any = loads(record.payload)
    is_ours = isinstance(found, dict) and found.keys() == {"args", "kwargs", "backend"}
    return found if is_ours else None


def _task_of(record: JobRecord, alias: str) -> Any:
    task = import_string(record.task)
    if not isinstance(task, Task):
        raise TaskResultDoesNotExist(f"{record.task} is not a task any more")
    deferred = record.status is JobStatus.SCHEDULED and not record.generation and record.due_at is not None
    after = local(instant(record.due_at or 0)) if deferred else None
    return task.using(priority=record.priority, queue_name=record.queue, run_after=after, backend=alias)
