"""Penstock: durable pipelines on the database you already have."""

from penstock.app import Penstock
from penstock.context import current, stop_run
from penstock.pipelines.fluent import flow
from penstock.pipelines.graph import barrier, first, switch, wait_for
from penstock.reconcile.columns import Reconcilable
from penstock.reconcile.locks import Children, Shared
from penstock.reconcile.now import NOW
from penstock.values.limits import Concurrency, Rate
from penstock.values.outcome import Cancel, Snooze
from penstock.values.retry import Retry

__all__ = [  # noqa: RUF022 - in plain order
    "Cancel",
    "Children",
    "Concurrency",
    "NOW",
    "Penstock",
    "Rate",
    "Reconcilable",
    "Retry",
    "Shared",
    "Snooze",
    "barrier",
    "current",
    "first",
    "flow",
    "stop_run",
    "switch",
    "wait_for",
]
__version__ = "0.1.0"
