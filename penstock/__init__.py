"""Penstock: durable pipelines on the database you already have."""

import typing as _typing

from penstock.app import Penstock
from penstock.context import current, stop_run
from penstock.step_calls import StepValue
from penstock.values.lazy_import import Lazy as _Lazy
from penstock.values.limits import Concurrency, Rate
from penstock.values.outcome import Cancel, Snooze
from penstock.values.retry import Retry

if _typing.TYPE_CHECKING:
    from penstock.pipelines.define.fluent import flow
    from penstock.pipelines.define.graph import barrier, first, switch, wait_for
    from penstock.reconcile.columns import NOW, Reconcilable
    from penstock.reconcile.item import Item
    from penstock.reconcile.locks import Children, Shared

__all__ = [  # noqa: RUF022 - in plain order
    "Cancel",
    "Children",
    "Concurrency",
    "Item",
    "NOW",
    "Penstock",
    "Rate",
    "Reconcilable",
    "Retry",
    "Shared",
    "Snooze",
    "StepValue",
    "barrier",
    "current",
    "first",
    "flow",
    "stop_run",
    "switch",
    "wait_for",
]
__version__ = "0.1.0"

_WHEN_ASKED_FOR = {
    "Children": "reconcile.locks",
    "Item": "reconcile.item",
    "NOW": "reconcile.columns",
    "Reconcilable": "reconcile.columns",
    "Shared": "reconcile.locks",
    "barrier": "pipelines.define.graph",
    "first": "pipelines.define.graph",
    "flow": "pipelines.define.fluent",
    "switch": "pipelines.define.graph",
    "wait_for": "pipelines.define.graph",
}
"""Names that are imported at their first use, with their modules: only programs with pipelines or SQLAlchemy models
need them."""


def __getattr__(name: str) -> _typing.Any:
    if name not in _WHEN_ASKED_FOR:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(_Lazy(f"penstock.{_WHEN_ASKED_FOR[name]}"), name)
    return found


def __dir__() -> list[str]:
    return [*globals(), *_WHEN_ASKED_FOR]
