"""Penstock: durable pipelines on the database you already have."""

import typing as _typing
from importlib import import_module as _import_module

from penstock.values.lazy_import import Lazy as _Lazy

if _typing.TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.context import current, stop_run
    from penstock.pipelines.define.fluent import flow
    from penstock.pipelines.define.graph import barrier, first, switch, wait_for
    from penstock.reconcile.columns import NOW, Reconcilable
    from penstock.reconcile.item import Item
    from penstock.reconcile.locks import Children, Shared
    from penstock.step_calls import StepValue
    from penstock.values.limits import Concurrency, Rate
    from penstock.values.outcome import Cancel, Snooze
    from penstock.values.retry import Retry

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
    "Cancel": "values.outcome",
    "Children": "reconcile.locks",
    "Concurrency": "values.limits",
    "Item": "reconcile.item",
    "NOW": "reconcile.columns",
    "Penstock": "app",
    "Rate": "values.limits",
    "Reconcilable": "reconcile.columns",
    "Retry": "values.retry",
    "Shared": "reconcile.locks",
    "Snooze": "values.outcome",
    "StepValue": "step_calls",
    "barrier": "pipelines.define.graph",
    "current": "context",
    "first": "pipelines.define.graph",
    "flow": "pipelines.define.fluent",
    "stop_run": "context",
    "switch": "pipelines.define.graph",
    "wait_for": "pipelines.define.graph",
}
"""Public names with their modules, which are imported at the first use of the name: only programs with SQLAlchemy
models need some of them, and the command line can handle Ctrl-C before it imports the others."""


def __getattr__(name: str) -> _typing.Any:
    if name == "errors":  # a program that has only said `import penstock` may catch them
        return _import_module("penstock.errors")
    if name not in _WHEN_ASKED_FOR:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(_Lazy(f"penstock.{_WHEN_ASKED_FOR[name]}"), name)
    return found


def __dir__() -> list[str]:
    return [*globals(), *_WHEN_ASKED_FOR]
