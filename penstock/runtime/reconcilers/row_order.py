"""A visit of a row in a handler process: the order that the worker sends, and its execution there."""

from __future__ import annotations

import asyncio
import inspect
import os
from functools import lru_cache
from typing import Any, NamedTuple

from penstock.errors import DefinitionError
from penstock.middleware import Middleware
from penstock.reconcile.item import Item
from penstock.reconcile.outcome import raised as failure_of
from penstock.reconcile.reconciler import Reconciler
from penstock.reconcile.transfer import pack_answer, pack_item, unpack_item
from penstock.runtime.executors.call import end_copy
from penstock.runtime.executors.function_address import FunctionAddress, find_middleware
from penstock.runtime.executors.process_child import AppRecipe, Child, import_failed
from penstock.values.outcome import Raised, Rejected, raised
from penstock.values.typed_json.annotations import waited_for


class RowAnswer(NamedTuple):
    """The handler returned: its value and its changes, as `pack_answer` packs them."""

    packed: bytes


class RowOrder(NamedTuple):
    """The row that a handler process is sent, and where its reconciler and its middleware are found."""

    reconciler: str
    address: FunctionAddress
    middleware: list[FunctionAddress]
    packed: bytes

    @classmethod
    def of(cls, reconciler: Reconciler, item: Item) -> RowOrder:
        middleware = [FunctionAddress.of(each) for each in reconciler.middleware]
        address = FunctionAddress.of(reconciler.function)
        return cls(reconciler.name, address, middleware, pack_item(reconciler, item))

    def run(self, child: Child) -> RowAnswer | Raised | Rejected:
        try:
            reconciler = _find(child.home, self.reconciler, self.address)
            middleware = find_middleware(self.reconciler, reconciler.middleware, self.middleware)
            item = unpack_item(reconciler, self.packed)
        except BaseException as error:
            return import_failed(error)
        child.begin()
        return _visited(reconciler, item, middleware)


def _visited(reconciler: Reconciler, item: Item, middleware: tuple[Middleware, ...]) -> RowAnswer | Raised:
    """Call the handler; always returns an answer, unless the handler ends the process, which the worker notices."""
    us = os.getpid()
    try:
        value = reconciler.visit(item, middleware)
        if inspect.isawaitable(value):
            value = asyncio.run(waited_for(value))
        return RowAnswer(pack_answer(reconciler, item, value))
    except BaseException as error:
        try:
            return Raised(failure_of(item, error))
        except BaseException as broken:  # even `isinstance` may run code of the error's class
            return raised(broken)
    finally:
        end_copy(us, reconciler.name)


@lru_cache
def _find(home: AppRecipe, name: str, address: FunctionAddress) -> Reconciler:
    home.app.set_up_process()
    kind: Any = home.app
    for each in list(vars(address.imported_module()).values()):
        if isinstance(each, Reconciler) and each.name == name:
            return each
        if isinstance(each, kind) and name in each.reconcilers:
            return each.reconcilers[name]  # type: ignore[no-any-return]
    raise DefinitionError(
        f'{name}: a reconciler with executor="process" is imported by a fresh process, and {address.module} declares '
        "none of that name. Declare it at the top of the module of its function."
    )
