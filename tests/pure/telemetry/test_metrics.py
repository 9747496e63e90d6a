"""telemetry/metrics: Metrics: counted from events, exposed as Prometheus reads them."""

import json
import os
import signal
import sys

import pytest

from penstock.errors import ConfigurationError
from penstock.telemetry.events import (
    AttemptSettled,
    ChildEnded,
    JobsClaimed,
    JobsEnqueued,
    Stream,
    TroubleBegan,
)
from penstock.telemetry.metric_values import SharedNumbers, add_up
from penstock.telemetry.metrics import COUNTERS, HISTOGRAMS, Metrics, families
from penstock.telemetry.prometheus_text import Family, expose
from penstock.telemetry.tracing import Tracing
from tests.waiting import eventually


def settled(outcome: str = "succeeded", status: str = "succeeded", seconds: float = 0.02) -> AttemptSettled:
    return AttemptSettled("j1", "shop.pay", "mail", 2, outcome, status, None, seconds, None)


def test_what_happens_is_counted() -> None:
    stream = Stream()
    metrics = Metrics(stream)
    stream.emit(JobsEnqueued("shop.pay", "mail", 3))
    stream.emit(JobsEnqueued("shop.pay", "mail", 2))
    stream.emit(JobsClaimed("p1", 5, 0.004))
    stream.emit(settled())
    stream.emit(settled("errored", "scheduled"))
    stream.emit(TroubleBegan("pump", "x"))
    stream.emit(ChildEnded(1, 0, -9, False, 1.0))
    lines = metrics.text().splitlines()
    assert 'penstock_jobs_enqueued_total{queue="mail",task="shop.pay"} 5' in lines
    assert "penstock_jobs_claimed_total 5" in lines
    assert 'penstock_attempts_total{outcome="errored",queue="mail",task="shop.pay"} 1' in lines
    assert 'penstock_jobs_ended_total{queue="mail",status="succeeded",task="shop.pay"} 1' in lines
    assert 'penstock_troubles_total{loop="pump"} 1' in lines
    assert 'penstock_children_ended_total{expected="False"} 1' in lines
    assert "# TYPE penstock_attempts_total counter" in lines


def test_times_go_into_buckets_that_only_grow() -> None:
    stream = Stream()
    metrics = Metrics(stream)
    for seconds in (0.0005, 0.02, 0.02, 99999.0):
        stream.emit(settled(seconds=seconds))
    lines = metrics.text().splitlines()
    found = [line for line in lines if line.startswith("penstock_attempt_seconds_bucket")]
    counts = [int(line.rpartition(" ")[2]) for line in found]
    assert counts == sorted(counts)
    assert found[0] == 'penstock_attempt_seconds_bucket{task="shop.pay",le="0.001"} 1'
    assert found[-1] == 'penstock_attempt_seconds_bucket{task="shop.pay",le="+Inf"} 4'
    assert 'penstock_attempt_seconds_count{task="shop.pay"} 4' in lines


def test_without_metrics_nothing_is_asked_for() -> None:
    stream = Stream()
    metrics = Metrics(stream)
    assert stream.wants(AttemptSettled)
    metrics.stop()
    assert not stream.wants(AttemptSettled)


def test_labels_are_escaped() -> None:
    text = expose([Family("m", "gauge", "x", [("", (("task", 'a"b\\c\nd'),), 1.5)])])
    assert text.splitlines()[-1] == 'm{task="a\\"b\\\\c\\nd"} 1.5'
    assert expose([]) == ""


def test_tracing_without_opentelemetry_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with (
        pytest.warns(DeprecationWarning, match="instrument"),
        pytest.raises(ConfigurationError, match="pip install opentelemetry-api"),
    ):
        Tracing(Stream())


def test_shared_numbers_outlive_the_process_that_counted() -> None:
    """A writer that is killed in the middle of counting leaves every number whole."""
    shared = SharedNumbers()
    shared.add("before the fork", 1)
    child = os.fork()
    if child == 0:
        metrics = Metrics(stream := Stream(), shared)
        while True:
            stream.emit(settled())
            metrics.put("turned", 2.5)
    name = json.dumps(
        ["attempts_total", "", [["outcome", "succeeded"], ["queue", "mail"], ["task", "shop.pay"]]]
    )
    eventually(lambda: shared.read().get(name, 0.0) > 1000)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    found = shared.read()
    assert (found["before the fork"], found["turned"]) == (1.0, 2.5)
    total = found[name]
    assert total == int(total)
    (counter,) = [
        f for f in families(add_up({name: total}, {name: total})) if f.name == "penstock_attempts_total"
    ]
    assert [value for _, _, value in counter.samples] == [2 * total]
    shared.clear()
    assert shared.read() == {}
    shared.add("next", 1)
    assert shared.read() == {"next": 1.0}


def test_shared_numbers_that_do_not_fit_are_left_out() -> None:
    shared = SharedNumbers(room=4096)
    for number in range(200):
        shared.add(f"key {number}", 1)
    shared.add("key 0", 1)
    assert shared.is_full
    assert shared.read()["key 0"] == 2
    assert 100 < len(shared.read()) < 200


def test_the_parser_of_prometheus_reads_everything() -> None:
    parser = pytest.importorskip("prometheus_client.parser", reason="prometheus-client is not installed")
    stream = Stream()
    metrics = Metrics(stream)
    stream.emit(JobsEnqueued('a"b\\c\nd', "mail", 3))
    stream.emit(JobsClaimed("p1", 5, 0.004))
    read = {family.name: family for family in parser.text_string_to_metric_families(metrics.text())}
    (sample,) = read["penstock_jobs_enqueued"].samples
    assert (sample.labels["task"], sample.value) == ('a"b\\c\nd', 3)
    assert read["penstock_claim_seconds"].type == "histogram"
    assert len(read) == len(COUNTERS) + len(HISTOGRAMS)
