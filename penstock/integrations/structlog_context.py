"""structlog: the job that runs is bound around each handler, so that every line of it says which job it is."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.app import Penstock
from penstock.errors import ConfigurationError
from penstock.middleware import HandlerCall

try:
    from structlog.contextvars import bound_contextvars
except ImportError as error:
    raise ConfigurationError("this binds context of structlog: pip install structlog") from error


def bind_context(app: Penstock) -> None:
    """Bind `job`, `task`, `queue` and `attempt`, of a step also `run`; of a row `reconciler` and `row`."""
    app.middleware(bound)


def bound(call: HandlerCall) -> Iterator[None]:
    if call.item is not None:
        fields: dict[str, object] = {"reconciler": call.task, "row": call.id}
    else:
        fields = {"job": call.id, "task": call.task, "queue": call.queue}
        fields |= {} if call.run_id is None else {"run": call.run_id}
    with bound_contextvars(**fields, attempt=call.attempt):
        yield
