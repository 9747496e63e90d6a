"""Sends a row to a handler process, and its result and changes back, as pickled plain values.

Tables and models do not travel. A model is named by where it is imported, a Core table by its name in the metadata
of the reconciler's tables; each process has its own.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping
from typing import Any

from sqlalchemy import ClauseElement, Table

from penstock.errors import DefinitionError
from penstock.reconcile.item import Changes, Held, Item
from penstock.reconcile.outcome import check_returned
from penstock.reconcile.reconciler import Reconciler
from penstock.reconcile.table import Target, recognize
from penstock.values.outcome import Snooze

ADVICE = 'executor="process" takes rows and results that can be pickled'


def pack_item(reconciler: Reconciler, item: Item) -> bytes:
    """In the worker: the row and its related rows, as they were read."""
    locks = {lock: number for number, lock in enumerate(reconciler.locks)}
    held = [(locks[one.lock], one.key, dict(one.target.values_of(one.row))) for one in item.held]
    try:
        return pickle.dumps((item.claim, dict(item.target.values_of(item.row)), held))
    except Exception as error:
        raise DefinitionError(
            f"{item!r} cannot be sent to a process of its own: {error}. {ADVICE}"
        ) from error


def unpack_item(reconciler: Reconciler, packed: bytes) -> Item:
    """In the handler process: make the item. The worker renews the lease, and kills this process if it is lost."""
    claim, values, related = pickle.loads(packed)
    held = tuple(_held(reconciler, *each) for each in related)
    target = reconciler.target
    return Item(reconciler.name, target, target.rebuilt(values), claim, held, math.inf)


def _held(reconciler: Reconciler, number: int, key: Any, values: Mapping[str, Any]) -> Held:
    lock = reconciler.locks[number]
    target = lock.target()
    row = target.rebuilt(values)
    return Held(lock, target, key, row, target.kept(row))


def pack_answer(reconciler: Reconciler, item: Item, value: object) -> bytes:
    """In the handler process: pack the returned value, and the changes on the item."""
    check_returned(item, value)
    if isinstance(value, Snooze):
        value = Snooze(float(value.seconds))
    elif isinstance(value, Mapping):
        value = dict(value)
        _refuse_expressions(value)
    changes = item.changes
    _refuse_expressions(changes.main)
    for *_, values in changes.updates:
        _refuse_expressions(values)
    for _, values in changes.inserts:
        _refuse_expressions(values)
    updates = [(_name(reconciler, target), key, values) for target, key, values in changes.updates]
    inserts = [(_name(reconciler, target), values) for target, values in changes.inserts]
    deletes = [(_name(reconciler, target), key) for target, key in changes.deletes]
    try:
        return pickle.dumps((value, changes.main, changes.deletes_main, updates, inserts, deletes))
    except Exception as error:
        raise DefinitionError(f"the result for {item!r} cannot be sent back: {error}. {ADVICE}") from error


def unpack_answer(reconciler: Reconciler, item: Item, packed: bytes) -> object:
    """In the worker: returns the handler's value; the changes are put on the item."""
    value, main, deletes_main, updates, inserts, deletes = pickle.loads(packed)
    item.changes = Changes(
        main,
        deletes_main,
        [(_target(reconciler, name), key, values) for name, key, values in updates],
        [(_target(reconciler, name), values) for name, values in inserts],
        [(_target(reconciler, name), key) for name, key in deletes],
    )
    return value


def _refuse_expressions(values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        if isinstance(value, ClauseElement) or hasattr(type(value), "__clause_element__"):
            raise DefinitionError(
                f'{name}: a handler with executor="process" returns values, no SQL expressions: they belong to the '
                "tables of its own process. Compute the value, or use NOW; or run the handler in a thread"
            )


def _name(reconciler: Reconciler, target: Target) -> Any:
    """A model, which pickle takes by its address, or the name of a Core table."""
    if not isinstance(target.entity, Table):
        return target.entity
    if _tables(reconciler).get(target.name) is not target.table:
        raise DefinitionError(
            f'{target.name}: a handler with executor="process" writes to tables in the metadata of the reconciled one'
        )
    return target.name


def _target(reconciler: Reconciler, name: Any) -> Target:
    return recognize(_tables(reconciler)[name] if isinstance(name, str) else name)


def _tables(reconciler: Reconciler) -> Mapping[str, Table]:
    targets = [reconciler.target, *(lock.target() for lock in reconciler.locks)]
    return {name: table for target in targets for name, table in target.table.metadata.tables.items()}
