"""Makes a `TaskResult` of `django.tasks` from what is on record about a job."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from importlib import import_module
from typing import Any

from django.conf import settings
from django.utils import timezone

from penstock.django.application import DjangoApp
from penstock.django.tasks_api import (
    InvalidTask,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
)
from penstock.errors import PenstockError
from penstock.job import AttemptRecord, attempt_of, instant
from penstock.queue import job_records
from penstock.queue.job_records import JobDetails, JobHistory
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
STAND_INS = {
    "TimedOut": "builtins.TimeoutError",
    "Crashed": "builtins.SystemError",
    "Cancelled": "asyncio.CancelledError",
}
"""Exceptions for attempts that raised none: a timeout, a crash, a cancellation."""


def read_history(app: DjangoApp, id: str) -> JobHistory:
    """The history of a job, or the error of Django's if there is none."""
    try:
        known = checked_id(id)
    except PenstockError as error:
        raise TaskResultDoesNotExist(id) from error
    app.prepare()
    found = app.database.read(job_records.history, known)
    if found is None:
        raise TaskResultDoesNotExist(id)
    return found


def result_of(app: DjangoApp, id: str, history: JobHistory, alias: str) -> Any:
    """The result as the caller of `get_result` sees it."""
    details = history.details
    call = _call_of(details)
    if call is None or call["backend"] != alias:
        raise TaskResultDoesNotExist(id)
    attempts = [attempt_of(row) for row in history.attempts]
    running = [instant(details.started_at)] if history.holder and details.started_at else []
    begun = [each.started_at for each in attempts] + running
    result = TaskResult(
        task=_task_of(app, details, alias),
        id=id,
        status=STATUSES.get(details.status, TaskResultStatus.READY),
        enqueued_at=local(instant(details.created_at)),
        started_at=local(begun[0]) if begun else None,
        finished_at=local(instant(details.finished_at)) if details.finished_at else None,
        last_attempted_at=local(begun[-1]) if begun else None,
        args=call["args"],
        kwargs=call["kwargs"],
        backend=alias,
        errors=[task_error(each) for each in attempts if each.error is not None],
        worker_ids=[str(each.process) for each in attempts] + ([history.holder] if running else []),
    )
    if history.output is not None:
        object.__setattr__(result, "_return_value", loads(history.output))
    return result


def backend_of(details: JobDetails) -> str | None:
    """The alias of the backend that a job was enqueued by; None: it is no job of `django.tasks`."""
    call = _call_of(details)
    return None if call is None else str(call["backend"])


def task_error(attempt: AttemptRecord) -> Any:
    """An attempt that went wrong, as Django tells it."""
    kind = (attempt.error or "").partition(":")[0]
    path = STAND_INS.get(kind) or (kind if "." in kind else f"builtins.{kind}")
    return TaskError(exception_class_path=path, traceback=attempt.traceback or attempt.error or "")


def local(moment: datetime) -> datetime:
    """A time as the project wants it: aware with USE_TZ, else naive in its own zone."""
    return moment if settings.USE_TZ else timezone.make_naive(moment)


def _call_of(details: JobDetails) -> dict[str, Any] | None:
    """The stored call, if the job is one of this backend's."""
    found: Any = loads(details.payload)
    is_ours = isinstance(found, dict) and found.keys() == {"args", "kwargs", "backend"}
    return found if is_ours else None


def _task_of(app: DjangoApp, details: JobDetails, alias: str) -> Any:
    task = _declared(app, details.task)
    deferred = details.due_at is not None and not details.claims
    after = local(instant(details.due_at or 0)) if deferred else None
    try:
        return task.using(priority=details.priority, queue_name=details.queue, run_after=after, backend=alias)
    except InvalidTask:  # for example, the settings do not allow its queue any more
        return task


def _declared(app: DjangoApp, name: str) -> Any:
    """The task of Django's that a job is of; its module is imported if need be."""
    if name not in app.tasks:
        with suppress(ImportError):
            import_module(name.rpartition(".")[0])
    task = getattr(getattr(app.tasks.get(name), "function", None), "django_task", None)
    if task is None:
        raise TaskResultDoesNotExist(f"{name} is not a task any more")
    return task
