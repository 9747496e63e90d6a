"""Carries context variables from the code that enqueues to the handler: a tenant, a user, a language.

TENANT: ContextVar[str | None] = ContextVar("tenant", default=None)
carry(app, tenant=TENANT)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from penstock.app import Penstock
from penstock.errors import ConfigurationError
from penstock.middleware import HandlerCall, Publication


def carry(
    app: Penstock, *, check: Callable[[HandlerCall], None] | None = None, **variables: ContextVar[Any]
) -> None:
    """Store the values of these variables with each job and run, and set them around its handler.

    Values are texts; a variable without a value, or with None, is not stored, and not set. `check` is called before
    the handler with the variables set, and may refuse the call by raising.
    """
    for name, variable in variables.items():
        if not isinstance(variable, ContextVar):
            raise ConfigurationError(f"carry({name}={variable!r}): give a ContextVar")
    app.enqueue_middleware(CarriedValues(variables).store)
    app.middleware(CarriedValues(variables, check).restore)


class CarriedValues:
    """The variables of one `carry(...)`, stored at the enqueue and set again around the handler."""

    def __init__(
        self, variables: dict[str, ContextVar[Any]], check: Callable[[HandlerCall], None] | None = None
    ) -> None:
        self.variables = variables
        self.check = check

    def store(self, publication: Publication) -> Iterator[None]:
        for name, variable in self.variables.items():
            value = variable.get(None)
            if value is None:
                continue
            if not isinstance(value, str):
                raise ConfigurationError(
                    f"carry({name}=...): its value is {value!r}, and only texts are carried. Store an id"
                )
            publication.headers[name] = value
        yield

    def restore(self, call: HandlerCall) -> Iterator[None]:
        set_here = [
            (variable, variable.set(call.headers[name]))
            for name, variable in self.variables.items()
            if name in call.headers
        ]
        if self.check is not None:
            self.check(call)
        try:
            yield
        finally:
            for variable, token in set_here:
                variable.reset(token)
