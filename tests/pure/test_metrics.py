"""Metrics: counted from events, exposed as Prometheus reads them."""

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
from penstock.telemetry.metrics import Metrics
from penstock.telemetry.prometheus_text import Family, expose
from penstock.telemetry.tracing import Tracing


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
