"""A run's result: put together from the outputs of its steps when somebody asks. Stored only if the run was stopped."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from penstock.database.transaction import Transaction
from penstock.errors import PenstockError
from penstock.pipelines import stored
from penstock.pipelines.definition import Kind, Node
from penstock.pipelines.desk import Desk
from penstock.pipelines.expressions import DictOf, Expr, ListOf, Output, Param
from penstock.pipelines.inputs import Stored, result_of, value_of
from penstock.pipelines.paths import TOP, Path
from penstock.pipelines.runs import RunView
from penstock.pipelines.stored import Values, fetch
from penstock.pipelines.tokens import winners
from penstock.pipelines.wiring import Wiring, wire
from penstock.values import tags
from penstock.values.jsontext import dumps, loads

DEEPEST = 20
"""Pipelines may be children of themselves."""


def raw_result(desk: Desk, tx: Transaction, run: RunView, values: Values | None = None) -> object:
    """The raw value of a run that has ended well."""
    return value_of(run.wiring, run.wiring.definition.result, TOP, _values(desk, tx, run, values))


def ask(tx: Transaction, run: RunView) -> Callable[[], Values] | None:
    """Send for what the result is made from, if that is little: perhaps the run has ended."""
    return stored.ask(tx, run.id, result_of(run.wiring))


def result_text(desk: Desk, tx: Transaction, run: RunView, values: Values | None = None) -> str:
    return dumps(raw_result(desk, tx, run, values))


def natural_result(desk: Desk, tx: Transaction, run: RunView, values: Values | None = None) -> Any:
    """The value as the annotations of the tasks say that it is made from."""
    known = _values(desk, tx, run, values)
    result = run.wiring.definition.result
    raw = value_of(run.wiring, result, TOP, known)
    return _Natural(desk, run.wiring, run.pipeline, known).read(result, TOP, raw)


def reader(desk: Desk, wiring: Wiring, pipeline: str) -> Callable[[str, str], Any]:
    """Reads what a step of a node has stored, as the annotation says; plainly where it does not fit (any more)."""
    natural = _Natural(desk, wiring, pipeline, None)

    def read(node: str, text: str) -> object:
        raw = loads(text)
        with suppress(PenstockError):
            return natural.read(Output(node), TOP, raw) if node in wiring.places else tags.read(raw)
        return tags.read(raw)

    return read


def _values(desk: Desk, tx: Transaction, run: RunView, values: Values | None) -> Stored:
    values = values or Values()
    fetch(desk, tx, values, [(run.id, result_of(run.wiring))])
    return values.of(run)


@dataclass(frozen=True, slots=True)
class _Natural:
    """Gives raw values the types of the tasks that they come from."""

    desk: Desk
    wiring: Wiring
    pipeline: str
    stored: Stored | None
    """What is known of the run; of a child run, whose value is all that we have, nothing."""
    generation: int = 0

    def read(self, expr: Expr, path: Path, raw: object) -> object:
        """What is missing is None, whatever is annotated: a step has failed, and may."""
        match expr:
            case Output(key) if raw is not None and not tags.is_missing(raw):
                node = self.wiring.places[key].node
                return self._output(node, path[: node.depth], raw)
            case Param(name):
                return self._param(name, raw)
            case ListOf(items) if isinstance(raw, list):
                return [self.read(item, path, value) for item, value in zip(items, raw, strict=True)]
            case DictOf(items) if isinstance(raw, dict) and raw.keys() == {name for name, _ in items}:
                return {name: self.read(item, path, raw[name]) for name, item in items}
        return tags.read(raw)

    def _output(self, node: Node, path: Path, raw: object) -> object:
        match node.kind:
            case Kind.TASK:
                task = self.desk.host.find_task(node.target)
                return tags.read(raw) if task is None else task.codec.decode_result(dumps(raw))
            case Kind.COLLECT if isinstance(raw, list):
                return [self.read(node.args[0], (*path, index), item) for index, item in enumerate(raw)]
            case Kind.FIRST | Kind.MERGE:
                return self._chosen(node, path, raw)
            case Kind.PASS:
                return self.read(node.args[0], path, raw)
            case Kind.CHILD:
                return self._child(node.target, raw)
        return tags.read(raw)

    def _chosen(self, node: Node, path: Path, raw: object) -> object:
        """As the step says whose value it is."""
        winner = None if self.stored is None else self.stored.winner(node.key, path)
        if winner is None:
            return tags.read(raw)
        if node.quorum > 1 and isinstance(raw, list):
            keys = [node.reads[number] for number in winners(winner, node.quorum)]
            return [self.read(Output(key), path, value) for key, value in zip(keys, raw, strict=True)]
        return self.read(Output(winner), path, raw)

    def _param(self, name: str, raw: object) -> object:
        pipeline = self.desk.host.find_pipeline(self.pipeline)
        if pipeline is not None and name in pipeline.codec.parameters:
            with suppress(PenstockError):  # it takes something else by now
                return pipeline.codec.decode_value_for(name, raw)
        return tags.read(raw)

    def _child(self, name: str, raw: object) -> object:
        """As the app says now: which definition the child run had is not known here."""
        pipeline = self.desk.host.find_pipeline(name)
        if pipeline is not None and self.generation < DEEPEST:
            with suppress(PenstockError, ValueError):
                definition = pipeline.definition
                wiring = self.desk.wirings.get(definition.hash) or wire(definition)
                child = _Natural(self.desk, wiring, name, None, self.generation + 1)
                return child.read(definition.result, TOP, raw)
        return tags.read(raw)
