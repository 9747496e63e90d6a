"""Where a fresh process finds a handler and its middleware: they are imported there, never pickled."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.errors import DefinitionError
from penstock.middleware import Middleware, checked_middleware


class FunctionAddress(NamedTuple):
    """The module of a function, and its name there."""

    module: str
    name: str
    is_more: bool
    """True if the handler is a decorated or bound version of the importable function."""

    @classmethod
    def of(cls, function: Any) -> FunctionAddress:
        name = getattr(function, "__qualname__", f"<{type(function).__name__}>")
        return cls(function.__module__, name, is_more(function))

    def imported_module(self) -> Any:
        return sys.modules.get(self.module) or importlib.import_module(self.module)

    def found(self) -> Any:
        """The thing under this name, as its module has it; None if there is no such thing to import."""
        found = None if "<" in self.name else self.imported_module()
        for part in self.name.split("."):
            found = getattr(found, part, None)
        return found


def is_more(function: Any) -> bool:
    bound = inspect.ismethod(function) and not isinstance(function.__self__, type)
    return bound or hasattr(function, "__wrapped__")


def find_middleware(
    handler: str, known: tuple[Middleware, ...], addresses: Sequence[FunctionAddress]
) -> tuple[Middleware, ...]:
    """The middleware as the parent has it: what goes around the handler here, if that is the same."""
    if [FunctionAddress.of(each) for each in known] == addresses:
        return known
    return tuple([_find_one(handler, known, each) for each in addresses])


def _find_one(handler: str, known: tuple[Middleware, ...], address: FunctionAddress) -> Middleware:
    """The middleware that goes around this handler here, or one that can be imported."""
    for each in known:
        if FunctionAddress.of(each) == address:
            return each
    found = address.found()
    if found is None:
        raise DefinitionError(
            f'{handler}: a handler with executor="process" runs in a fresh process, where its middleware '
            f"{address.name} is not found. Declare it at the top of a module that the module of the handler imports."
        )
    return checked_middleware(found)
