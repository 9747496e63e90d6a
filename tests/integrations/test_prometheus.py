"""integrations/prometheus: what a registry serves is what was counted."""

from typing import Any

import pytest

pytest.importorskip("prometheus_client", reason="prometheus-client is not installed")

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.openmetrics import exposition
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from penstock import Penstock
from penstock.integrations.prometheus import collect
from penstock.testing import drain


@pytest.mark.one_database
def test_a_registry_serves_penstocks_numbers_beside_the_applications_own(app: Penstock) -> None:
    registry = CollectorRegistry()
    Counter("requests", "Of the application.", registry=registry).inc()
    collector = collect(app, registry)

    @app.task(name='strange "name"\n', queue="mail")
    def work() -> None: ...

    work.enqueue_many([()] * 3)
    drain(app)
    labels = {"task": 'strange "name"\n', "queue": "mail"}
    assert registry.get_sample_value("penstock_jobs_enqueued_total", labels) == 3
    assert registry.get_sample_value("penstock_attempts_total", {**labels, "outcome": "succeeded"}) == 3
    assert registry.get_sample_value("penstock_attempt_seconds_count", {"task": labels["task"]}) == 3
    assert registry.get_sample_value("requests_total") == 1
    openmetrics: Any = exposition
    texts = (generate_latest(registry), parse), (openmetrics.generate_latest(registry), parse_openmetrics)
    for text, read in texts:
        found = {sample.name: sample.value for family in read(text.decode()) for sample in family.samples}
        assert found["penstock_jobs_enqueued_total"] == 3
    ours = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse(collector.metrics.text())
        for sample in family.samples
    }
    served = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in collector.collect()
        for sample in family.samples
    }
    assert served == ours
