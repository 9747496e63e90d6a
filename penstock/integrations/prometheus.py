"""Prometheus by its own client library: this process's numbers in a registry that the application serves already.

    collect(app)                                   # in the default registry; or collect(app, registry)

The counting is that of `penstock.telemetry.metrics`; the library does the rest: formats, registries, push gateways. A
worker of the command line needs none of it: `penstock worker --metrics-port` serves its children's numbers by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.errors import ConfigurationError
from penstock.telemetry.metrics import Metrics, families

try:
    from prometheus_client import REGISTRY, CollectorRegistry
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ConfigurationError("this needs Prometheus's library: pip install prometheus-client") from error

if TYPE_CHECKING:
    from penstock.app import Penstock


def collect(app: Penstock, registry: CollectorRegistry = REGISTRY) -> MetricsCollector:
    """Count from now on what this process does with the app, and have the registry collect it.

    Call it where the app is made, and once for a registry.
    """
    collector = MetricsCollector(Metrics(app.events))
    registry.register(collector)
    return collector


class MetricsCollector(Collector):
    """The numbers of one process, in the library's own types."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics

    def collect(self) -> Iterator[Metric]:
        for family in families(self.metrics.read()):
            # The library adds _total to the names of counters by itself.
            metric = Metric(family.name.removesuffix("_total"), family.meaning, family.kind)
            for suffix, labels, value in family.samples:
                metric.add_sample(f"{family.name}{suffix}", dict(labels), value)
            yield metric
