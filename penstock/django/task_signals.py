"""Sends `task_finished` for every job of `django.tasks` that has ended, once its end is committed.

The worker that settles the job tells of it; of a job whose last worker died, the process that takes it back; of one
that is cancelled while it waits, the process that cancels it. A result that is refused, because the claim was lost, is
not told. A process that dies right after the commit sends no signal: the result says how the job ended.

In a worker, receivers run in a thread of their own, in the order of the ends, so that the thread that records ends does
not wait for them. If many wait to be told, it helps: a slow receiver makes the worker slower, not larger.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from typing import Any

from django.db import close_old_connections

from penstock.async_bridge import one_thread
from penstock.context import CurrentJob
from penstock.django.application import DjangoApp
from penstock.django.task_results import backend_of, read_history, result_of
from penstock.django.tasks_api import TaskResultDoesNotExist, task_finished
from penstock.telemetry.events import AttemptSettled, ClaimLost, JobCrashed, JobsCancelled, ProcessStopped
from penstock.values.fork_safety import register_reset_after_fork
from penstock.values.status import JobStatus

MOST_WAITING = 100
LAST_WAIT = 5.0
"""Seconds that a worker which stops waits for receivers."""


@cache
def tell_ends(app: DjangoApp) -> TaskEnds:
    """Listen to the ends of an app's jobs from now on, once."""
    ends = TaskEnds(app)
    app.events.on(AttemptSettled, ends.settled)
    app.events.on(ClaimLost, ends.lost)
    app.events.on(JobCrashed, ends.crashed)
    app.events.on(JobsCancelled, ends.cancelled)
    app.events.on(ProcessStopped, ends.stopped)
    return ends


class TaskEnds:
    """The ends of one app's jobs."""

    def __init__(self, app: DjangoApp) -> None:
        self.app = app
        self._raised: dict[str, Exception] = {}
        """By job: what its function raised just now. Receivers find it as the exception that is being handled."""
        self._sending = SendingThread()

    @contextmanager
    def noting(self, job: CurrentJob) -> Iterator[None]:
        """Around the function: keep what it raises until its end is told, or turns out not to be the end."""
        try:
            yield
        except Exception as error:
            if not (
                job.timed_out or job.lease_lost
            ):  # then its end was told before, or is not its own to tell
                self._raised[job.id] = error
            raise

    def settled(self, event: AttemptSettled) -> None:
        raised = self._raised.pop(event.job_id, None)
        if event.run_id is None and JobStatus(event.status).terminal and self._sender(event.task) is not None:
            self._tell_later(event.job_id, raised)

    def lost(self, event: ClaimLost) -> None:
        self._raised.pop(event.job_id, None)

    def crashed(self, event: JobCrashed) -> None:
        if JobStatus(event.status).terminal and self._sender(event.task) is not None:
            self._tell_later(event.job_id)

    def cancelled(self, event: JobsCancelled) -> None:
        for id in event.job_ids:
            self._tell_later(id)

    def stopped(self, _event: ProcessStopped) -> None:
        self._sending.finish(LAST_WAIT)

    def _tell_later(self, id: str, raised: Exception | None = None) -> None:
        """Without a worker in this process, the caller sees to it: `drain` in a test, a view that cancels."""
        if self.app.worker_loops:
            self._sending.do(self._tell, id, raised)
        else:
            self._tell(id, raised)

    def _tell(self, id: str, raised: Exception | None) -> None:
        """Send the signal, if the job is of a task of Django's. Receivers may use connections of Django's."""
        close_old_connections()
        try:
            history = read_history(self.app, id)
            alias, sender = backend_of(history.details), self._sender(history.details.task)
            if alias is not None and sender is not None:
                _send(sender, result_of(self.app, id, history, alias), raised)
        except TaskResultDoesNotExist:
            return
        finally:
            close_old_connections()

    def _sender(self, task: str) -> type | None:
        """The backend that a task was declared by; None: it is no task of Django's."""
        declared = self.app.tasks.get(task)
        return getattr(getattr(declared, "function", None), "django_sender", None)


def _send(sender: type, result: Any, raised: Exception | None) -> None:
    if raised is None:
        task_finished.send_robust(sender, task_result=result)
        return
    try:
        raise raised
    except Exception:
        task_finished.send_robust(sender, task_result=result)


class SendingThread:
    """One thread that sends signals, one after the other. If many wait already, the caller sends its own."""

    def __init__(self) -> None:
        self.reset_after_fork()
        register_reset_after_fork(self)

    def reset_after_fork(self) -> None:
        self._lock = threading.Lock()
        self._thread: ThreadPoolExecutor | None = None
        self._waiting: set[Future[None]] = set()

    def do(self, work: Callable[..., None], *args: Any) -> None:
        future: Future[None] | None = None
        with self._lock:
            if len(self._waiting) < MOST_WAITING:
                self._thread = self._thread or one_thread("signals")
                future = self._thread.submit(work, *args)
                self._waiting.add(future)
        if future is None:
            work(*args)
        else:
            future.add_done_callback(self._done)

    def _done(self, future: Future[None]) -> None:
        with self._lock:
            self._waiting.discard(future)

    def finish(self, seconds: float) -> None:
        """Wait for what was begun; the thread ends."""
        with self._lock:
            waiting, thread, self._thread = set(self._waiting), self._thread, None
        wait(waiting, seconds)
        if thread is not None:
            thread.shutdown(wait=False)
