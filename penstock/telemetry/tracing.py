"""The older tracing: a span for every attempt, made after it from its event.

Use `penstock.integrations.opentelemetry.instrument(app)` instead: there the span is current inside the handler, and the
producer's trace goes on.
"""

from __future__ import annotations

import importlib
import time
import warnings
from typing import Any

from penstock.errors import ConfigurationError
from penstock.telemetry.events import AttemptSettled, Stream

GOOD = ("succeeded", "snoozed", "released", "cancelled")


class Tracing:
    """Makes spans of attempts until it is stopped. `tracer`: one of yours; else the global provider's."""

    def __init__(self, stream: Stream, tracer: Any = None) -> None:
        warnings.warn(
            "Tracing(app.events) makes spans after the fact: use penstock.integrations.opentelemetry.instrument(app)",
            DeprecationWarning,
            stacklevel=2,
        )
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
