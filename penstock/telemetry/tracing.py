"""Tracing: a span for every attempt, through OpenTelemetry if that is installed.

    from penstock.telemetry.tracing import Tracing

    tracing = Tracing(app.events)

Spans are made from the same events as logs and metrics: after the attempt, with its true start and end. They carry
the job's id, task, queue, attempt, outcome and error. A producer's trace is not continued in the handler.
"""

from __future__ import annotations

import importlib
import time
from typing import Any

from penstock.errors import ConfigurationError
from penstock.telemetry.events import AttemptSettled, Stream

GOOD = ("succeeded", "snoozed", "released", "cancelled")


class Tracing:
    """Makes spans of attempts until it is stopped. `tracer`: one of yours; else the global provider's."""

    def __init__(self, stream: Stream, tracer: Any = None) -> None:
        self._trace = _opentelemetry()
        self.tracer = tracer or self._trace.get_tracer("penstock")
        self.stop = stream.on(AttemptSettled, self._settled)

    def _settled(self, event: AttemptSettled) -> None:
        end = time.time_ns()
        span = self.tracer.start_span(
            f"{event.task} attempt",
            kind=self._trace.SpanKind.CONSUMER,
            start_time=end - int(event.seconds * 1e9),
            attributes={
                "penstock.job.id": event.job_id,
                "penstock.task": event.task,
                "penstock.queue": event.queue,
                "penstock.attempt": event.generation,
                "penstock.outcome": event.outcome,
                "penstock.status": event.status,
            },
        )
        if event.outcome not in GOOD:
            status = self._trace.Status(self._trace.StatusCode.ERROR, event.error or event.outcome)
            span.set_status(status)
        span.end(end_time=end)


def _opentelemetry() -> Any:
    try:
        return importlib.import_module("opentelemetry.trace")
    except ImportError as error:
        raise ConfigurationError("tracing needs OpenTelemetry: pip install opentelemetry-api") from error
