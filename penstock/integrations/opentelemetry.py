"""OpenTelemetry: one trace over the code that enqueues and the handlers that follow, and metrics through its API.

    from penstock.integrations.opentelemetry import instrument

    instrument(app)

Spans and metrics go by OpenTelemetry's conventions for messaging. An enqueue is a producer's span, `send <task>` or
`trigger <pipeline>`, whose context is stored with the jobs; a batch has one span and one context. Each attempt is a
consumer's span, `process <task>`, current inside the handler, wherever that runs. It links to the producer's span, or
with `nested=True` it is a child of it. Steps of a run are always children of the span that triggered the run, so that a
run is one tree, also if a schedule has started it; the steps right after a wait also link to the span of the signal
that ended it. A visit of a reconciler's row is a span `reconcile <name>`.
"""

from __future__ import annotations

import sys
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from penstock.app import Penstock
from penstock.errors import ConfigurationError
from penstock.middleware import HandlerCall, Publication
from penstock.queue.jobs import SCHEDULE_HEADER
from penstock.telemetry.events import AttemptSettled
from penstock.values.outcome import Cancel, Snooze, StopRun
from penstock.values.status import OutcomeKind

try:
    from opentelemetry import baggage, metrics, propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.metrics import Meter, MeterProvider
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer, TracerProvider
except ImportError as error:
    raise ConfigurationError("tracing needs OpenTelemetry: pip install 'penstock[otel]'") from error

NAME = "penstock"
OPERATION, KIND = "messaging.operation.name", "messaging.operation.type"
DESTINATION, MESSAGE = "messaging.destination.name", "messaging.message.id"
BATCH = "messaging.batch.message_count"
FLUSH_MILLIS = 5000
OPERATIONS = {"run": "trigger", "signal": "signal", "backfill": "backfill"}
STOPPED = (OutcomeKind.TIMED_OUT, OutcomeKind.CRASHED)
REMEMBERED = 10_000

Attributes = dict[str, str | int | bool]


def instrument(
    app: Penstock,
    *,
    nested: bool = False,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> Instrumentation:
    """Trace and count what this app enqueues and runs. Providers: those given, else the global ones.

    Call it where the app is made, in the module that workers and handler processes import, and once.
    """
    tracer = trace.get_tracer(NAME, tracer_provider=tracer_provider)
    meter = metrics.get_meter(NAME, meter_provider=meter_provider)
    made = Instrumentation(tracer, meter, nested, (tracer_provider, meter_provider))
    app.enqueue_middleware(made.publish)
    app.tick_middlewares = (*app.tick_middlewares, made.publish)
    app.middleware(made.process)
    app.events.on(AttemptSettled, partial(made.settled, app))
    return made


class Instrumentation:
    """The spans and metrics of one app."""

    def __init__(
        self,
        tracer: Tracer,
        meter: Meter,
        nested: bool = False,
        providers: tuple[TracerProvider | None, MeterProvider | None] = (None, None),
    ) -> None:
        self.tracer = tracer
        self.nested = nested
        self._providers = providers
        self._begun: OrderedDict[tuple[str, int], None] = OrderedDict()
        """Attempts whose handlers were called in this process, the latest of them."""
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Jobs and runs that were enqueued or triggered."
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Attempts of jobs that were begun."
        )
        self._sending = meter.create_histogram(
            "messaging.client.operation.duration", "s", "How long an enqueue or a trigger took."
        )
        self._processing = meter.create_histogram(
            "messaging.process.duration", "s", "How long a handler took."
        )
        self._reconciling = meter.create_histogram(
            "penstock.reconcile.duration", "s", "How long a visit of a reconciler's row took."
        )

    # around enqueues

    def publish(self, publication: Publication) -> Iterator[None]:
        """The span of an enqueue or a trigger. A schedule is none: each of its ticks begins a trace of its own.

        Of a run that a schedule starts, the span is made in the worker; it links to the backfill that has asked for it.
        """
        if publication.kind == "schedule":
            yield
            return
        operation = OPERATIONS.get(publication.kind, "send")
        about = _sending_of(publication, operation)
        began, error = time.monotonic(), None
        name = f"{operation} {publication.name}"
        try:
            with self.tracer.start_as_current_span(
                name, kind=SpanKind.PRODUCER, attributes=about, links=_links_to(publication.run_headers)
            ) as span:
                propagate.inject(publication.headers)
                yield
                if len(publication.ids) == 1:
                    span.set_attribute(MESSAGE, publication.ids[0])
        except BaseException as raised:
            error = raised
            raise
        finally:
            told = _measured(about, error)
            self._sending.record(time.monotonic() - began, told)
            self._sent.add(publication.count, told)

    # around handlers

    def process(self, call: HandlerCall) -> Iterator[None]:
        """The span of an attempt, or of a visit of a row."""
        began, error = time.monotonic(), None
        about = _row(call) if call.item is not None else _job(call)
        self._note_begun(call)
        try:
            with self._span(call, about) as span:
                try:
                    yield
                    span.set_attribute("penstock.outcome", _outcome(call.result))
                except BaseException as raised:
                    error = raised
                    _tell_error(span, raised)
                    raise
                finally:
                    if call.timed_out:
                        error = TimeoutError(f"{call.task} took longer than its timeout")
                        _tell_end(span, "timed_out", "TimeoutError", str(error))
        finally:
            self._measure(call, time.monotonic() - began, _measured(about, error))
            self._flush_in_handler_process()

    def _note_begun(self, call: HandlerCall) -> None:
        if call.job is not None:
            self._begun[call.id, call.attempt] = None
            if len(self._begun) > REMEMBERED:
                self._begun.popitem(last=False)

    def settled(self, app: Penstock, event: AttemptSettled) -> None:
        """Write the span of an attempt whose handler process was killed before it could end the span."""
        known = event.headers
        if (event.job_id, event.generation) in self._begun or event.outcome not in STOPPED:
            return
        if event.run_id is not None:
            known = app.engine.run_headers.read(event.run_id)
        call = HandlerCall(
            event.job_id,
            event.task,
            event.generation,
            {},
            queue=event.queue,
            run_id=event.run_id,
            headers=known,
        )
        context, links = self._place(call)
        ended = time.time_ns()
        span = self.tracer.start_span(
            f"process {event.task}",
            context=context,
            kind=SpanKind.CONSUMER,
            attributes=_job(call),
            links=links,
            start_time=ended - int(event.seconds * 1_000_000_000),
        )
        kind = "TimeoutError" if event.outcome == OutcomeKind.TIMED_OUT else event.error_type or "Crashed"
        _tell_end(span, event.outcome, kind, event.error or kind)
        span.end(ended)
        self._measure(call, event.seconds, {**_measured(_job(call), None), "error.type": kind})

    def _place(self, call: HandlerCall) -> tuple[Context, list[Link]]:
        """The context that the span of an attempt begins in, and its links."""
        sent = propagate.extract(call.headers, context=Context())
        producer = trace.get_current_span(sent).get_span_context()
        nested = producer.is_valid and (self.nested or call.run_id is not None)
        links = [Link(producer)] if producer.is_valid and not nested else []
        return (sent if nested else _without_span(sent)), links

    @contextmanager
    def _span(self, call: HandlerCall, about: Attributes) -> Iterator[Span]:
        context, links = self._place(call)
        links += [link for headers in call.signal_headers for link in _links_to(headers)]
        kind = SpanKind.CONSUMER if call.item is None else SpanKind.INTERNAL
        with self.tracer.start_as_current_span(
            f"{'process' if call.item is None else 'reconcile'} {call.task}",
            context=context,
            kind=kind,
            attributes=about,
            links=links,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            yield span

    def _measure(self, call: HandlerCall, seconds: float, told: Attributes) -> None:
        if call.item is not None:
            self._reconciling.record(seconds, told)
            return
        self._processing.record(seconds, told)
        self._consumed.add(1, told)

    def _flush_in_handler_process(self) -> None:
        """A process of `executor="process"` may be killed at any time after its job: its spans leave before."""
        processes = sys.modules.get("multiprocessing.process")
        if processes is None or processes.parent_process() is None:
            return
        spans, numbers = self._providers
        for provider in (spans or trace.get_tracer_provider(), numbers or metrics.get_meter_provider()):
            flush = getattr(provider, "force_flush", None)
            if flush is not None:
                flush(FLUSH_MILLIS)


def _sending_of(publication: Publication, operation: str) -> Attributes:
    about: Attributes = {"messaging.system": NAME, OPERATION: operation, KIND: "send"}
    kinds = {"run": "penstock.pipeline", "signal": "penstock.signal", "backfill": "penstock.schedule"}
    about[kinds.get(publication.kind, "penstock.task")] = publication.name
    if publication.run_id is not None:
        about["penstock.run.id"] = publication.run_id
    about[DESTINATION] = publication.queue or publication.name
    if publication.count > 1:
        about[BATCH] = publication.count
    return about


def _links_to(headers: Mapping[str, str]) -> list[Link]:
    """A link to the span whose context is in these headers, if it is there."""
    found = trace.get_current_span(propagate.extract(headers, context=Context())).get_span_context()
    return [Link(found)] if found.is_valid else []


def _job(call: HandlerCall) -> Attributes:
    about: Attributes = {
        "messaging.system": NAME,
        OPERATION: "process",
        KIND: "process",
        DESTINATION: call.queue or "",
        MESSAGE: call.id,
        "penstock.task": call.task,
        "penstock.attempt": call.attempt,
    }
    if call.run_id is not None:
        about["penstock.run.id"] = call.run_id
    if SCHEDULE_HEADER in call.headers:
        about["penstock.schedule"] = call.headers[SCHEDULE_HEADER]
    return about


def _row(call: HandlerCall) -> Attributes:
    return {"penstock.reconciler": call.task, "penstock.row": call.id, "penstock.attempt": call.attempt}


def _outcome(result: object) -> str:
    if isinstance(result, Snooze):
        return "snoozed"
    return "cancelled" if isinstance(result, Cancel) else "succeeded"


def _tell_error(span: Span, error: BaseException) -> None:
    if isinstance(error, StopRun):
        span.set_attribute("penstock.outcome", "succeeded")
    elif isinstance(error, Exception):
        span.set_attribute("penstock.outcome", "errored")
        span.set_attribute("error.type", type(error).__qualname__)
        span.record_exception(error)
        span.set_status(Status(StatusCode.ERROR, f"{type(error).__qualname__}: {error}"))
    else:
        span.set_attribute("penstock.outcome", "interrupted")  # a cancel, a stop of the worker


def _tell_end(span: Span, outcome: str, kind: str, words: str) -> None:
    span.set_attribute("penstock.outcome", outcome)
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, words))


MEASURED = (
    "messaging.system",
    OPERATION,
    DESTINATION,
    "penstock.task",
    "penstock.pipeline",
    "penstock.reconciler",
)
"""Attributes that metrics have; others would have a new value for each job."""


def _measured(about: Mapping[str, str | int | bool], error: BaseException | None) -> Attributes:
    told = {name: about[name] for name in MEASURED if name in about}
    if isinstance(error, Exception):
        told["error.type"] = type(error).__qualname__
    return told


def _without_span(sent: Context) -> Context:
    """The baggage of the producer, and no parent: the span begins a trace of its own."""
    context = Context()
    for name, value in baggage.get_all(sent).items():
        context = baggage.set_baggage(name, value, context)
    return context
