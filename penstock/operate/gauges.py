"""The state of all queues as metrics, for whoever collects them from one place."""

from __future__ import annotations

from penstock.operate.overview import Overview
from penstock.telemetry.exposition import Family, expose, labelled

STATES = ("available", "limited", "scheduled", "running", "failed")


def gauges(seen: Overview) -> str:
    """Queue lengths, lags and live processes, in the text format that Prometheus reads."""
    lengths = [
        ("", labelled({"queue": queue.queue, "status": state}), float(getattr(queue, state)))
        for queue in seen.queues
        for state in STATES
    ]
    lags = [
        ("", labelled({"queue": queue.queue}), queue.lag) for queue in seen.queues if queue.lag is not None
    ]
    alive = [("", labelled({"role": role}), float(count)) for role, count in sorted(seen.processes.items())]
    return expose(
        [
            Family(
                "penstock_queue_jobs", "gauge", f"Jobs by status, counted up to {seen.count_limit}.", lengths
            ),
            Family("penstock_queue_lag_seconds", "gauge", "How long the oldest ready job has waited.", lags),
            Family("penstock_processes", "gauge", "Live processes by role.", alive),
        ]
    )
