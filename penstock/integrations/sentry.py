"""Sentry: errors with the job they belong to, spans of enqueues and handlers, and check-ins of schedules.

    sentry_sdk.init(dsn=..., traces_sample_rate=1.0)
    report_to_sentry(app)

Errors that a handler raises are captured around it. Timeouts and crashes are captured when the attempt is settled, or
when the job is taken back from a dead process: the handler may not be there any more. A check-in has the id of its job
or run, so that each process can go on with it; it ends when the job or run is terminal, after all retries.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any

from penstock.async_bridge import one_thread
from penstock.errors import ConfigurationError, PenstockError
from penstock.middleware import HandlerCall, Publication
from penstock.queue import job_records
from penstock.queue.jobs import SCHEDULE_HEADER, headers_of
from penstock.schedules import rows
from penstock.schedules.definition import ScheduleDefinition
from penstock.telemetry.events import AttemptSettled, JobCrashed, RunEnded, TicksDecided
from penstock.values.status import JobStatus, OutcomeKind, RunStatus

try:
    import sentry_sdk
    from sentry_sdk.crons import capture_checkin
except ImportError as error:
    raise ConfigurationError("reporting to Sentry needs its SDK: pip install 'penstock[sentry]'") from error

if TYPE_CHECKING:
    from penstock.app import Penstock

TRACE, BAGGAGE = "sentry-trace", "sentry-baggage"
ORIGIN = "auto.queue.penstock"
LONGEST_SLUG = 50
UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60))
FLUSH = 2.0
STOPPED = (OutcomeKind.TIMED_OUT, OutcomeKind.CRASHED)


def report_to_sentry(
    app: Penstock, *, ignore: tuple[type[BaseException], ...] = (), check_ins: bool = True
) -> SentryReports:
    """Report errors and durations of handlers of this app.

    `ignore`: exceptions that are not reported. `check_ins`: each schedule is a cron monitor. Call it where the app is
    made, in the module that workers and handler processes import, and once.
    """
    reports = SentryReports(app, ignore, check_ins)
    app.enqueue_middleware(reports.publish)
    app.middleware(reports.process)
    app.events.on(AttemptSettled, reports.attempt_settled)
    app.events.on(JobCrashed, reports.job_crashed)
    if check_ins:
        app.events.on(TicksDecided, reports.ticks_decided)
        app.events.on(RunEnded, reports.run_ended)
    return reports


class SentryReports:
    """The reports of one app."""

    def __init__(self, app: Penstock, ignore: tuple[type[BaseException], ...], check_ins: bool) -> None:
        self.app = app
        self.ignore = ignore
        self.check_ins = check_ins
        self._read: dict[str, ScheduleDefinition] = {}
        """Schedules that this code does not declare, as they were read last."""
        self._beginning: dict[str, Future[None]] = {}
        """By job: its check-in is being begun in a thread, and is not to be ended before."""

    # around enqueues

    def publish(self, publication: Publication) -> Iterator[None]:
        """A span `queue.publish` in the caller's trace, which goes on in the handler."""
        if publication.kind in ("schedule", "signal"):
            yield
            return
        with sentry_sdk.start_span(op="queue.publish", name=publication.name, origin=ORIGIN) as span:
            traced, baggage = sentry_sdk.get_traceparent(), sentry_sdk.get_baggage()
            publication.headers |= {TRACE: traced} if traced else {}
            publication.headers |= {BAGGAGE: baggage} if baggage else {}
            span.set_data("messaging.system", "penstock")
            span.set_data("messaging.destination.name", publication.queue or publication.name)
            if publication.count > 1:
                span.set_data("messaging.batch.message_count", publication.count)
            yield
            if len(publication.ids) == 1:
                span.set_data("messaging.message.id", publication.ids[0])

    # around handlers

    def process(self, call: HandlerCall) -> Iterator[None]:
        """A transaction of its own with a span `queue.process`, and the error with the job around it."""
        sent = {TRACE: call.headers.get(TRACE, ""), "baggage": call.headers.get(BAGGAGE, "")}
        self._begin_check_in(call)
        with sentry_sdk.isolation_scope() as scope:
            _describe(scope, call)
            transaction = sentry_sdk.continue_trace(
                sent, op="queue.process", name=call.task, source="task", origin=ORIGIN
            )
            with sentry_sdk.start_transaction(transaction) as whole:
                _tell_message(whole, call)
                try:
                    yield
                    whole.set_status("ok")
                except Exception as error:
                    whole.set_status("internal_error")
                    if not isinstance(error, self.ignore):
                        sentry_sdk.capture_exception(error)
                    raise
                finally:
                    if call.timed_out:
                        whole.set_status("deadline_exceeded")
        _flush_in_handler_process()

    # after handlers

    def attempt_settled(self, event: AttemptSettled) -> None:
        """Capture a timeout, or the death of a handler's process; end the check-in of a job that is over."""
        if event.outcome in STOPPED:
            about = {
                "job": event.job_id,
                "queue": event.queue,
                "attempt": event.generation,
                "run": event.run_id,
            }
            kind = TimeoutError if event.outcome == OutcomeKind.TIMED_OUT else None
            self._capture(event.task, kind, event.error, about)
        if event.run_id is None and JobStatus(event.status).terminal:
            self._end_check_in(event.headers, event.job_id, event.status == JobStatus.SUCCEEDED)

    def job_crashed(self, event: JobCrashed) -> None:
        """The same for a job whose worker died; this process has taken it back."""
        about = {"job": event.job_id, "process": event.process, "status": event.status}
        self._capture(event.task, None, "the process that held this job died", about)
        found = self.app.database.read(job_records.details, event.job_id)
        if found is not None and found.run_id is None and JobStatus(event.status).terminal:
            self._end_check_in(headers_of(found.options), event.job_id, succeeded=False)

    def _capture(
        self, task: str, kind: type[BaseException] | None, words: str | None, about: dict[str, Any]
    ) -> None:
        if kind is not None and issubclass(kind, self.ignore):
            return
        name = "Crashed" if kind is None else kind.__name__
        known = {"task": task, **{name: value for name, value in about.items() if value is not None}}
        event: Any = {
            "level": "error",
            "exception": {"values": [{"type": name, "value": words or name}]},
            "transaction": task,
            "tags": {"penstock.task": task},
            "contexts": {"penstock": known},
        }
        sentry_sdk.capture_event(event)

    # check-ins

    def _begin_check_in(self, call: HandlerCall) -> None:
        """Of a job that a schedule has made; again with each attempt, which changes nothing."""
        name = call.headers.get(SCHEDULE_HEADER)
        if not self.check_ins or name is None or call.run_id is not None:
            return
        if self.app.declared.get(name) or self._read.get(name) or not _on_a_loop():
            self._begin(name, call.id)
            return
        # The database is asked what the schedule is like; the event loop is not to wait for that.
        thread = one_thread("check-in")
        self._beginning[call.id] = thread.submit(self._begin, name, call.id)
        thread.shutdown(wait=False)

    def _begin(self, name: str, id: str) -> None:
        try:
            found = self._read.get(name) or self._definition(name)
        except PenstockError:  # the database is away: the job's end will tell what the schedule is like
            found = None
        _check_in(name, id, "in_progress", found)

    def _end_check_in(self, headers: Mapping[str, str], id: str, succeeded: bool) -> None:
        name = headers.get(SCHEDULE_HEADER)
        if not self.check_ins or name is None:
            return
        if (beginning := self._beginning.pop(id, None)) is not None:
            wait([beginning], FLUSH)
        _check_in(name, id, "ok" if succeeded else "error", self._definition(name))

    def ticks_decided(self, event: TicksDecided) -> None:
        """Begin the check-ins of runs that a schedule has started."""
        found = self._definition(event.schedule)
        for id in event.runs:
            _check_in(event.schedule, id, "in_progress", found)

    def run_ended(self, event: RunEnded) -> None:
        if event.scheduled:
            headers = self.app.engine.run_headers.read(event.run_id)
            self._end_check_in(headers, event.run_id, event.status == RunStatus.SUCCEEDED)

    def _definition(self, name: str) -> ScheduleDefinition | None:
        """The schedule as this code declares it, else as its row says."""
        if name in self.app.declared:
            return self.app.declared[name]
        row = self.app.database.read(rows.named, name)
        if row is None:
            return self._read.pop(name, None)
        self._read[name] = row.defined
        return row.defined


def _on_a_loop() -> bool:
    try:
        return asyncio.get_running_loop() is not None
    except RuntimeError:
        return False


def _check_in(name: str, id: str, status: str, schedule: ScheduleDefinition | None) -> None:
    config: Any = None if schedule is None else monitor_config(schedule)
    capture_checkin(slug_of(name), id.replace("-", ""), status, monitor_config=config)


def monitor_config(schedule: ScheduleDefinition) -> dict[str, Any] | None:
    """A schedule, as Sentry describes one; None for intervals that are no whole minutes."""
    if schedule.cron is not None:
        return {"schedule": {"type": "crontab", "value": schedule.cron}, "timezone": schedule.zone}
    seconds = (schedule.every or 0) // 1_000_000
    for unit, length in UNITS:
        if seconds and seconds % length == 0:
            when = {"type": "interval", "value": seconds // length, "unit": unit}
            return {"schedule": when, "timezone": schedule.zone}
    return None


def slug_of(name: str) -> str:
    """A name as Sentry accepts it: small letters, digits and dashes."""
    return re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-")[:LONGEST_SLUG] or "schedule"


def _describe(scope: Any, call: HandlerCall) -> None:
    scope.set_transaction_name(call.task, source="task")
    if call.item is not None:
        scope.set_tag("penstock.reconciler", call.task)
        scope.set_context("penstock", {"reconciler": call.task, "row": call.id, "attempt": call.attempt})
        return
    scope.set_tag("penstock.task", call.task)
    scope.set_tag("penstock.queue", call.queue)
    about = {
        "job": call.id,
        "task": call.task,
        "queue": call.queue,
        "attempt": call.attempt,
        "run": call.run_id,
    }
    scope.set_context("penstock", {name: value for name, value in about.items() if value is not None})


def _tell_message(span: Any, call: HandlerCall) -> None:
    if call.job is None:
        return
    span.set_data("messaging.system", "penstock")
    span.set_data("messaging.message.id", call.id)
    span.set_data("messaging.destination.name", call.queue)
    span.set_data("messaging.message.retry.count", call.job.retry_count)
    if call.attempt == 1:
        # The first six bytes of an id are when the job was made, in milliseconds.
        made = int(call.id.replace("-", "")[:12], 16)
        span.set_data("messaging.message.receive.latency", max(0, int(time.time() * 1000) - made))


def _flush_in_handler_process() -> None:
    """A process of `executor="process"` may be killed at any time after its job: its reports leave before."""
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and processes.parent_process() is not None:
        sentry_sdk.flush(FLUSH)
