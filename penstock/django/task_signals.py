"""Sends `task_finished` for jobs whose function cannot send it: after timeouts, crashes and cancellations.

A task that ran out of time or was cancelled while it ran is told by the worker that settles it; one whose last worker
died, by the process that takes the job back; one that is cancelled while it waits, by the process that cancels it. All
of them are told after the commit. A process that dies right after it sends no signal: the result says how it ended.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from django.db import close_old_connections

from penstock.django.application import DjangoApp
from penstock.django.task_results import backend_of, read_history, result_of
from penstock.django.tasks_api import TaskResultDoesNotExist, task_finished
from penstock.telemetry.events import AttemptSettled, JobCrashed, JobsCancelled
from penstock.values.status import JobStatus, OutcomeKind, Reason

UNTOLD = (OutcomeKind.TIMED_OUT, OutcomeKind.CANCELLED, OutcomeKind.CRASHED)


@cache
def tell_ends(app: DjangoApp) -> None:
    """Listen to the ends of an app's jobs from now on, once."""
    ends = TaskEnds(app)
    app.events.on(AttemptSettled, ends.settled)
    app.events.on(JobCrashed, ends.crashed)
    app.events.on(JobsCancelled, ends.cancelled)


class TaskEnds:
    """The ends of one app's jobs."""

    def __init__(self, app: DjangoApp) -> None:
        self.app = app

    def settled(self, event: AttemptSettled) -> None:
        untold = event.outcome in UNTOLD or event.reason == Reason.UNKNOWN_TASK
        if untold and JobStatus(event.status).terminal and event.run_id is None:
            self._tell(event.job_id)

    def crashed(self, event: JobCrashed) -> None:
        if JobStatus(event.status).terminal:
            self._tell(event.job_id)

    def cancelled(self, event: JobsCancelled) -> None:
        for id in event.job_ids:
            self._tell(id)

    def _tell(self, id: str) -> None:
        """Send the signal, if the job is of a task of Django's. Receivers may use connections of Django's."""
        close_old_connections()
        try:
            history = read_history(self.app, id)
            alias = backend_of(history.details)
            declared: Any = self.app.tasks.get(history.details.task)
            sender = getattr(getattr(declared, "function", None), "django_sender", None)
            if alias is not None and sender is not None:
                result = result_of(self.app, id, history, alias)
                task_finished.send_robust(sender, task_result=result)
        except TaskResultDoesNotExist:
            return
        finally:
            close_old_connections()
