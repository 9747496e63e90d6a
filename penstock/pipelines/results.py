"""A run's result: put together from the outputs of its steps when somebody asks. Stored only if the run was stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.database.transaction import Transaction
from penstock.pipelines import stored
from penstock.pipelines.definition import Kind
from penstock.pipelines.desk import Desk
from penstock.pipelines.expressions import DictOf, Expr, ListOf, Output
from penstock.pipelines.inputs import result_of, value_of
from penstock.pipelines.paths import TOP
from penstock.pipelines.runs import RunView
from penstock.pipelines.stored import Values, fetch
from penstock.pipelines.wiring import Wiring
from penstock.values import tags
from penstock.values.jsontext import dumps


def raw_result(desk: Desk, tx: Transaction, run: RunView, values: Values | None = None) -> object:
    """The raw value of a run that has ended well."""
    values = values or Values()
    fetch(desk, tx, values, [(run.id, result_of(run.wiring))])
    return value_of(run.wiring, run.wiring.definition.result, TOP, values.of(run))


def ask(tx: Transaction, run: RunView) -> Callable[[], Values] | None:
    """Send for what the result is made from, if that is little: perhaps the run has ended."""
    return stored.ask(tx, run.id, result_of(run.wiring))


def result_text(desk: Desk, tx: Transaction, run: RunView, values: Values | None = None) -> str:
    return dumps(raw_result(desk, tx, run, values))


def natural_result(desk: Desk, run: RunView, raw: object) -> Any:
    """The value as the annotations of the tasks say that it is made from."""
    return _natural(desk, run.wiring, run.wiring.definition.result, raw)


def _natural(desk: Desk, wiring: Wiring, expr: Expr, raw: object) -> object:
    """What is missing is None, whatever is annotated: a step has failed, and may."""
    match expr:
        case Output(key) if raw is not None and not tags.is_missing(raw):
            node = wiring.places[key].node
            if node.kind is Kind.TASK:
                return _decoded(desk, node.target, raw)
            if node.kind is Kind.COLLECT and isinstance(raw, list):
                return [_natural(desk, wiring, node.args[0], item) for item in raw]
        case ListOf(items) if isinstance(raw, list):
            return [_natural(desk, wiring, item, value) for item, value in zip(items, raw, strict=True)]
        case DictOf(items) if isinstance(raw, dict) and raw.keys() == {name for name, _ in items}:
            return {name: _natural(desk, wiring, item, raw[name]) for name, item in items}
    return tags.read(raw)


def _decoded(desk: Desk, task: str, raw: object) -> object:
    found = desk.host.find_task(task)
    return tags.read(raw) if found is None else found.codec.decode_result(dumps(raw))
