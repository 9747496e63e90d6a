"""integrations/opentelemetry: OpenTelemetry by its own SDK: spans over processes, links and trees, metrics, and
nothing where there is nothing.
"""

import asyncio
import json
import threading
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")

from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from penstock import Penstock, Snooze, wait_for
from penstock.integrations.opentelemetry import instrument
from penstock.runtime.worker import Worker
from penstock.telemetry.tracing import Tracing
from penstock.testing import drain, travel
from tests.conformance.embedded import beside_a_worker
from tests.conformance.reconcile.cloud import Cloud, Volume
from tests.waiting import eventually, until
from tests.workers import Workers

SHOP = '''
import json, os, time

from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter, SpanExportResult

from penstock import Penstock, current
from penstock.integrations.opentelemetry import instrument


class Collector(SpanExporter):
    """One file for all processes, as a collector would see them."""

    def export(self, spans):
        with open(os.environ["SPANS"], "a") as out:
            for span in spans:
                told = {
                    "name": span.name, "trace": span.context.trace_id, "span": span.context.span_id,
                    "parent": span.parent and span.parent.span_id, "pid": os.getpid(), "kind": span.kind.name,
                    "error": span.attributes.get("error.type"), "status": span.status.status_code.name,
                }
                out.write(json.dumps(told) + "\\n")
        return SpanExportResult.SUCCESS


class Numbers(MetricExporter):
    """A file of its own for each process."""

    def export(self, metrics_data, timeout_millis=10_000, **kwargs):
        with open(f"{os.environ['SPANS']}.{os.getpid()}", "w") as out:
            out.write(metrics_data.to_json())
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis=10_000):
        return True

    def shutdown(self, timeout_millis=30_000, **kwargs): ...


provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(Collector(), schedule_delay_millis=100))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("shop")
app = Penstock(executor_processes=1)
reader = PeriodicExportingMetricReader(Numbers(), export_interval_millis=600_000)
instrument(app, nested=True, meter_provider=MeterProvider([reader]))


def inside(name):
    with tracer.start_as_current_span(name):
        return trace.get_current_span().get_span_context().trace_id


@app.task(name="on_loop")
async def on_loop() -> str:
    await in_thread.enqueue_async()
    return str(inside("SELECT on_loop"))


@app.task(name="in_thread")
def in_thread() -> str:
    in_process.enqueue()
    return str(inside("SELECT in_thread"))


@app.task(name="in_process", executor="process")
def in_process() -> str:
    endless.enqueue()
    return str(inside("SELECT in_process"))


@app.task(name="endless", executor="process", timeout=0.5, retries=0)
def endless() -> None:
    time.sleep(600)


@app.task(name="begin")
def begin() -> None: ...


if __name__ == "__main__":
    with tracer.start_as_current_span("POST /orders"):
        on_loop.enqueue()
    provider.force_flush()
'''


@pytest.mark.process
@pytest.mark.one_database
def test_one_trace_over_producer_worker_threads_and_processes(worker_process: Workers) -> None:
    spans = worker_process.folder / "spans"
    env = {"SPANS": str(spans)}
    worker_process.write_module(SHOP)
    assert worker_process.python("shop.py", env=env).wait() == 0
    worker = worker_process("--processes", "1", env=env)

    def seen() -> list[dict[str, Any]]:
        return [json.loads(line) for line in spans.read_text().splitlines()] if spans.exists() else []

    wanted = {"POST /orders"}
    for task in ("on_loop", "in_thread", "in_process"):
        wanted |= {f"send {task}", f"process {task}", f"SELECT {task}"}
    wanted |= {"send endless", "process endless"}
    eventually(lambda: wanted <= {span["name"] for span in seen()}, 60)
    assert worker.stop() == 0
    found = {span["name"]: span for span in seen()}
    assert found.keys() == wanted
    assert len({span["trace"] for span in found.values()}) == 1
    chain = ["POST /orders"]
    for task in ("on_loop", "in_thread", "in_process"):
        chain += [f"send {task}", f"process {task}"]
        assert found[f"SELECT {task}"]["parent"] == found[f"process {task}"]["span"]
    for parent, child in pairwise(chain):
        assert found[child]["parent"] == found[parent]["span"], child
    killed = found["process endless"]
    assert (killed["status"], killed["error"]) == ("ERROR", "TimeoutError")
    assert killed["parent"] == found["send endless"]["span"]
    counted = spans.with_name(f"{spans.name}.{found['process in_process']['pid']}").read_text()
    assert "messaging.process.duration" in counted
    pids = [found[name]["pid"] for name in ("POST /orders", "process on_loop", "process in_process")]
    assert len(set(pids)) == 3
    assert found["process on_loop"]["pid"] == found["process in_thread"]["pid"]


class Watched:
    """An app with a provider of its own that keeps all spans, and a reader of its metrics."""

    def __init__(self, app: Penstock, nested: bool = False) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = provider.get_tracer("test")
        meters = MeterProvider([self.reader])
        instrument(app, nested=nested, tracer_provider=provider, meter_provider=meters)

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def metrics(self) -> dict[str, list[tuple[dict[str, Any], Any]]]:
        read: Any = self.reader.get_metrics_data()
        return {
            metric.name: [
                (dict(point.attributes), getattr(point, "value", None) or point.count)
                for point in metric.data.data_points
            ]
            for scope in read.resource_metrics[0].scope_metrics
            for metric in scope.metrics
        }


def test_links_by_default_and_retries_are_spans_of_their_own(app: Penstock) -> None:
    watched = Watched(app)

    @app.task(name="work", queue="q")
    def work(number: int) -> Snooze | None:
        if number == 1:
            raise ValueError("no")
        return Snooze(5) if number == 2 else None

    with watched.tracer.start_as_current_span("request") as request:
        work.enqueue(1)
        work.enqueue_many([(2,), (3,)])
        with app.database.engine.begin() as connection:
            work.options(connection=connection).enqueue(4)
    drain(app)
    with travel(app, 60):
        drain(app, limit=2)
    sent, processed = watched.spans("send work"), watched.spans("process work")
    assert (len(sent), len(processed)) == (3, 6)
    trace_id = request.get_span_context().trace_id
    assert {span.context.trace_id for span in sent} == {trace_id}
    by_id = {span.context.span_id: span for span in sent}
    for span in processed:
        (link,) = span.links
        assert link.context.span_id in by_id
        assert span.context.trace_id != trace_id
        assert span.parent is None
    told: list[dict[str, Any]] = [dict(span.attributes or {}) for span in processed]
    assert {each["messaging.destination.name"] for each in told} == {"q"}
    assert {each["messaging.operation.type"] for each in told} == {"process"}
    outcomes = sorted(each["penstock.outcome"] for each in told)
    assert outcomes == ["errored", "errored", "snoozed", "snoozed", "succeeded", "succeeded"]
    failed = next(span for span in processed if not span.status.is_ok and span.status.description)
    assert failed.status.description == "ValueError: no"
    assert "raise ValueError" in str(dict(failed.events[0].attributes or {})["exception.stacktrace"])
    (many,) = [span for span in sent if "messaging.batch.message_count" in (span.attributes or {})]
    assert (many.attributes or {})["messaging.batch.message_count"] == 2
    counted = watched.metrics()
    assert sum(value for _, value in counted["messaging.client.sent.messages"]) == 4
    assert sum(value for _, value in counted["messaging.client.consumed.messages"]) == 6
    assert {about.get("error.type") for about, _ in counted["messaging.process.duration"]} == {
        None,
        "ValueError",
    }
    assert sum(value for _, value in counted["messaging.client.operation.duration"]) == 3


def test_a_run_is_one_tree_with_child_runs_and_callbacks_and_after_a_signal(app: Penstock) -> None:
    watched = Watched(app)

    @app.task(name="step")
    def step(number: int) -> int:
        return number + 1

    @app.task(name="ended")
    def ended(run: Any) -> None: ...

    @app.pipeline(name="child")
    def child(number: int) -> Any:
        return step(number)

    @app.pipeline(name="parent", on_success=ended)
    def parent(number: int) -> Any:
        return step(child(wait_for("approve")))

    with watched.tracer.start_as_current_span("request"):
        run = parent.options(delay=5).trigger(1)
    with travel(app, 10):
        drain(app)
        with watched.tracer.start_as_current_span("click") as click:
            asyncio.run(run.signal_async("approve", 7))
        drain(app)
    assert run.status == "succeeded"
    (root,) = watched.spans("trigger parent")
    (signal,) = watched.spans("signal approve")
    assert [link.context.span_id for link in signal.links] == [root.context.span_id]
    assert signal.parent is not None
    assert signal.parent.span_id == click.get_span_context().span_id
    steps = watched.spans("process step") + watched.spans("process ended")
    assert len(steps) == 3
    nested = [
        span for span in steps if span.parent is not None and span.parent.span_id == root.context.span_id
    ]
    assert {span.name for span in nested} == {"process step"}
    assert len(nested) == 2
    (callback,) = watched.spans("process ended")
    assert [link.context.span_id for link in callback.links] == [root.context.span_id]


@pytest.mark.parametrize("early", [False, True])
def test_the_steps_right_after_a_wait_link_to_the_signal(
    make_app: Callable[..., Penstock], early: bool
) -> None:
    app = make_app(secret="a secret of more than thirty-two letters")
    watched = Watched(app)

    @app.task(name="before")
    def before() -> list[int]:
        return [0, 1]

    @app.task(name="after")
    def after(answer: str) -> str:
        return answer

    @app.task(name="same")
    def same(number: int) -> int:
        return number

    @app.task(name="each")
    def each(number: int, answer: str) -> int:
        return number

    @app.pipeline(name="asked")
    def asked() -> Any:
        numbers = before()
        said = after(wait_for("general", after=[numbers]))
        number = same.map(numbers)
        return [said, each(number, wait_for("own", after=[number])).collect()]

    def answer() -> None:
        with watched.tracer.start_as_current_span("click"):
            run.signal("general", "yes")
            run.signal("own", "a", path=(0,))
            app.resume(run.token("own", path=(1,)), "b")

    with watched.tracer.start_as_current_span("request"):
        run = asked.trigger()
    if early:
        answer()
    drain(app)
    if not early:
        answer()
        drain(app)
    assert run.status == "succeeded", run.steps()
    (root,) = watched.spans("trigger asked")
    given = [*watched.spans("signal general"), *watched.spans("signal own")]
    signals = {span.context.span_id: span.name for span in given}
    assert sorted(signals.values()) == ["signal general", "signal own", "signal own"]
    (said,) = watched.spans("process after")
    assert [signals.get(link.context.span_id) for link in said.links] == ["signal general"]
    assert said.parent is not None
    assert said.parent.span_id == root.context.span_id
    linked = [span for span in watched.spans("process each") if span.links]
    assert len({link.context.span_id for span in linked for link in span.links}) == 2
    assert {signals[link.context.span_id] for span in linked for link in span.links} == {"signal own"}
    assert not watched.spans("process before")[0].links


def test_each_tick_and_each_row_begins_a_trace_of_its_own(app: Penstock) -> None:
    watched = Watched(app)
    cloud = Cloud(app)

    @app.task(name="tick")
    def tick() -> None: ...

    @app.reconciler(Volume, where=Volume.status == "submitted", name="visit")
    def visit(item: Any) -> None: ...

    tick.schedule(every=60, name="each minute")
    cloud.add(Volume, {"id": 1})
    drain(app)
    with travel(app, 61):
        drain(app)
    with travel(app, 122):
        drain(app)
    ticks = watched.spans("process tick")
    assert len(ticks) == 2
    assert len({span.context.trace_id for span in ticks}) == 2
    assert {(span.attributes or {})["penstock.schedule"] for span in ticks} == {"each minute"}
    assert watched.spans("reconcile visit")
    assert "penstock.reconcile.duration" in watched.metrics()


def test_a_run_of_a_schedule_is_one_tree(app: Penstock) -> None:
    watched = Watched(app)

    @app.task(name="step")
    def step() -> None: ...

    @app.pipeline(name="nightly")
    def nightly() -> Any:
        return step.options(after=[step()])()

    nightly.schedule(every=60, name="each minute")
    drain(app)
    with travel(app, 61):
        drain(app)
    with travel(app, 122):
        drain(app)
    triggers = {span.context.span_id: span.context.trace_id for span in watched.spans("trigger nightly")}
    assert len(set(triggers.values())) == 2
    steps = watched.spans("process step")
    assert len(steps) == 4
    assert {span.parent.span_id if span.parent else 0 for span in steps} == set(triggers)
    assert {(span.attributes or {})["penstock.schedule"] for span in steps} == {"each minute"}


def test_what_a_caller_asks_of_a_schedule_is_linked_to_the_caller(app: Penstock) -> None:
    watched = Watched(app)

    @app.task(name="step")
    def step() -> None: ...

    @app.pipeline(name="nightly")
    def nightly() -> Any:
        return step()

    hourly = step.schedule("@hourly", name="of the task")
    runs = nightly.schedule("@hourly", name="of the pipeline")
    with watched.tracer.start_as_current_span("request") as request:
        hourly.trigger()
        runs.trigger()
        now = hourly.next_at
        assert now is not None
        for one in (hourly, runs):
            assert one.backfill(now - timedelta(hours=3), now - timedelta(hours=1)) == 3
    drain(app)
    parent = request.get_span_context().span_id
    sent = {name: watched.spans(name) for name in ("send step", "trigger nightly", "backfill of the task")}
    for name, spans in sent.items():
        asked = [span for span in spans if span.parent is not None and span.parent.span_id == parent]
        assert len(asked) == 1, name
    (sent_job,), (backfill,) = sent["send step"], sent["backfill of the task"]
    (backfill_of_runs,) = watched.spans("backfill of the pipeline")
    links = [link.context.span_id for span in watched.spans("process step") for link in span.links]
    assert sorted(links) == sorted([sent_job.context.span_id, *[backfill.context.span_id] * 3])
    made_up = [span for span in sent["trigger nightly"] if span.parent is None]
    assert [[link.context.span_id for link in span.links] for span in made_up] == [
        [backfill_of_runs.context.span_id]
    ] * 3


def test_a_timeout_is_an_error_of_its_span(app: Penstock) -> None:
    watched = Watched(app)
    may_end = threading.Event()

    @app.task(name="on_loop", timeout=0.05, retries=0)
    async def on_loop() -> None:
        await asyncio.sleep(600)

    @app.task(name="in_thread", timeout=0.05, retries=0)
    def in_thread() -> None:
        may_end.wait(60)

    async def main(_: Worker) -> None:
        jobs = [await task.enqueue_async() for task in (on_loop, in_thread)]
        await until(lambda: all(job.status == "failed" for job in jobs))
        may_end.set()
        await until(lambda: bool(watched.spans("process in_thread")))

    beside_a_worker(app, main)
    for name in ("process on_loop", "process in_thread"):
        (span,) = watched.spans(name)
        told = dict(span.attributes or {})
        assert (told["penstock.outcome"], told["error.type"]) == ("timed_out", "TimeoutError")
        assert span.status.status_code is trace.StatusCode.ERROR
    measured = watched.metrics()["messaging.process.duration"]
    assert {about.get("error.type") for about, _ in measured} == {"TimeoutError"}


def test_the_older_door_still_makes_spans(app: Penstock) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with pytest.warns(DeprecationWarning, match="instrument"):
        Tracing(app.events, provider.get_tracer("test"))

    @app.task(name="work")
    def work() -> bool:
        return trace.get_current_span().get_span_context().is_valid

    work.enqueue()
    drain(app)
    (span,) = exporter.get_finished_spans()
    assert (span.name, (span.attributes or {})["penstock.outcome"]) == ("work attempt", "succeeded")
