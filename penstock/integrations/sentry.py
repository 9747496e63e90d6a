"""Sentry: errors with the job they belong to, spans of enqueues and handlers, and check-ins of schedules.

sentry_sdk.init(dsn=..., traces_sample_rate=1.0)
report_to_sentry(app)
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigurationError
from penstock.middleware import HandlerCall, Publication
from penstock.queue.jobs import SCHEDULE_HEADER
from penstock.schedules.definition import PIPELINE, ScheduleDefinition
from penstock.telemetry.events import RunEnded
from penstock.values.status import RunStatus

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


def report_to_sentry(
    app: Penstock, *, ignore: tuple[type[BaseException], ...] = (), check_ins: bool = True
) -> SentryReports:
    """Report what goes wrong in handlers of this app, and what takes how long.

    `ignore`: exceptions that are not reported. `check_ins`: each schedule is a cron monitor. Call it where the app is
    made, in the module that workers and handler processes import, and once.
    """
    reports = SentryReports(app, ignore, check_ins)
    app.enqueue_middleware(reports.publish)
    app.middleware(reports.process)
    if check_ins:
        app.events.on(RunEnded, reports.run_ended)
    return reports


class SentryReports:
    """The reports of one app."""

    def __init__(self, app: Penstock, ignore: tuple[type[BaseException], ...], check_ins: bool) -> None:
        self.app = app
        self.ignore = ignore
        self.check_ins = check_ins

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
        began, failed = time.monotonic(), False
        check_in = self._begin_check_in(call)
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
                    failed = True
                    whole.set_status("internal_error")
                    if not isinstance(error, self.ignore):
                        sentry_sdk.capture_exception(error)
                    raise
                finally:
                    if check_in is not None:
                        check_in("error" if failed else "ok", time.monotonic() - began)
        _flush_in_handler_process()

    # check-ins

    def _begin_check_in(self, call: HandlerCall) -> Callable[[str, float], None] | None:
        """Of a job that a schedule has made. A run ends when its last step does: see `run_ended`."""
        name = call.headers.get(SCHEDULE_HEADER)
        if not self.check_ins or name is None or call.run_id is not None:
            return None
        monitor, config = slug_of(name), self._config(name)
        id = capture_checkin(monitor, status="in_progress", monitor_config=config)

        def end(status: str, seconds: float) -> None:
            capture_checkin(monitor, id, status, seconds, config)

        return end

    def run_ended(self, event: RunEnded) -> None:
        kinds = {(one.kind, one.target) for one in self.app.declared.values()}
        if (PIPELINE, event.pipeline) not in kinds:
            return
        name = self.app.engine.run_headers.read(event.run_id).get(SCHEDULE_HEADER)
        if name is not None:
            status = "ok" if event.status == RunStatus.SUCCEEDED else "error"
            capture_checkin(slug_of(name), status=status, monitor_config=self._config(name))

    def _config(self, name: str) -> Any:
        """The schedule as a monitor; None for one that this code does not declare, or that Sentry cannot watch."""
        found = self.app.declared.get(name)
        return None if found is None else monitor_config(found)


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
