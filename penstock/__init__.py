"""Penstock: durable pipelines on the database you already have."""

from penstock.app import Penstock
from penstock.context import current
from penstock.values.outcome import Cancel, Snooze
from penstock.values.retry import Retry

__all__ = ["Cancel", "Penstock", "Retry", "Snooze", "current"]
__version__ = "0.1.0"
