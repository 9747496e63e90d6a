"""Which stored outputs a step reads, and its arguments once they are there.

Values of nodes that take no job are not stored: they are put together from the outputs of the steps behind
them. A collect needs its width, a first and a merge their winner; both are in their join's row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, cast

from penstock.pipelines.model.definition import Node, NodeKind
from penstock.pipelines.model.expressions import (
    TOP,
    Expr,
    Leaf,
    Output,
    Param,
    Path,
    StepFailed,
    evaluate,
    outputs_in,
)
from penstock.pipelines.model.wiring import Wiring
from penstock.pipelines.plan.tokens import winners
from penstock.values.typed_json.parameters import KEYWORDS, REST
from penstock.values.typed_json.tags import MISSING


@dataclass(frozen=True, slots=True)
class OutputRef:
    """Rows to read of one node: the one at this path or, if `below`, all whose paths begin with it."""

    node: str
    path: Path
    below: bool = False


@dataclass(frozen=True, slots=True)
class InputQuery:
    """A list of what to fetch: outputs of steps, rows of joins."""

    outputs: tuple[OutputRef, ...] = ()
    joins: tuple[OutputRef, ...] = ()


class FetchedInputs(Protocol):
    """Values that were fetched. The value of a step that was skipped, or failed and was ignored, is `MISSING`."""

    def param(self, name: str) -> object: ...

    def output(self, node: str, path: Path) -> object: ...

    def succeeded(self, node: str, path: Path) -> bool: ...

    def winner(self, node: str, path: Path) -> str | None: ...

    def width(self, node: str, path: Path) -> int | None: ...


def inputs_of(wiring: Wiring, node: str, path: Path) -> InputQuery:
    """Name the outputs from which the arguments of a step, or the value of a switch or an expand, are made."""
    reader = _Reader(wiring)
    for expr in _expressions(wiring.places[node].node):
        reader.read(expr, path)
    return reader.needs()


def result_of(wiring: Wiring) -> InputQuery:
    """Name the outputs from which the run's result is made."""
    reader = _Reader(wiring)
    reader.read(wiring.definition.result, TOP)
    return reader.needs()


def arguments(
    wiring: Wiring, node: str, path: Path, stored: FetchedInputs, element: object = None
) -> tuple[list[object], dict[str, object]]:
    """The raw arguments of a step; `element` is the one its expand gave it, if it is an entry."""
    place = wiring.places[node].node
    args = [value_of(wiring, expr, path, stored, element) for expr in place.args]
    kwargs = {name: value_of(wiring, expr, path, stored, element) for name, expr in place.kwargs}
    return spread(place, args, kwargs)


def spread(
    place: Node, args: list[object], kwargs: dict[str, object]
) -> tuple[list[object], dict[str, object]]:
    """The arguments, with the run's values for `*args` and `**kwargs` of its first step unpacked."""
    last = place.args[-1] if place.args else None
    if isinstance(last, Param) and last.name == REST:
        args += cast("list[object]", args.pop())
    if KEYWORDS in kwargs:
        kwargs |= cast("dict[str, object]", kwargs.pop(KEYWORDS))
    return args, kwargs


def asked_value(wiring: Wiring, node: str, path: Path, stored: FetchedInputs) -> object:
    """The raw value that a switch decides on, or an expand runs over."""
    return value_of(wiring, wiring.places[node].node.args[0], path, stored)


def value_of(wiring: Wiring, expr: Expr, path: Path, stored: FetchedInputs, element: object = None) -> object:
    """The raw value of an expression, as seen from a path."""

    def leaf(found: Leaf) -> object:
        match found:
            case Param(name):
                return stored.param(name)
            case Output(key):
                return _node_value(wiring, wiring.places[key].node, path, stored)
            case StepFailed(key):
                return not stored.succeeded(key, path[: wiring.places[key].node.depth])
        return element

    return evaluate(expr, leaf)


def _node_value(wiring: Wiring, node: Node, path: Path, stored: FetchedInputs) -> object:
    path = path[: node.depth]
    match node.kind:
        case NodeKind.COLLECT:
            width = stored.width(node.key, path)
            if width is None:
                return MISSING
            return [value_of(wiring, node.args[0], (*path, index), stored) for index in range(width)]
        case NodeKind.FIRST | NodeKind.MERGE:
            winner = stored.winner(node.key, path)
            if winner is not None and node.quorum > 1:
                chosen = [node.reads[number] for number in winners(winner, node.quorum)]
                enough = len(chosen) == node.quorum
                return [value_of(wiring, Output(key), path, stored) for key in chosen] if enough else MISSING
            return MISSING if winner is None else value_of(wiring, Output(winner), path, stored)
        case NodeKind.PASS:
            return value_of(wiring, node.args[0], path, stored)
        case NodeKind.BARRIER:
            return None
    return stored.output(node.key, path)


class _Reader:
    """Collects cells, following nodes that have no output of their own."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._outputs: dict[OutputRef, None] = {}
        self._joins: dict[OutputRef, None] = {}

    def needs(self) -> InputQuery:
        return InputQuery(tuple(self._outputs), tuple(self._joins))

    def read(self, expr: Expr, path: Path) -> None:
        for key in outputs_in(expr):
            node = self._wiring.places[key].node
            cell = OutputRef(key, path[: node.depth], below=node.depth > len(path))
            if node.kind.is_step:
                self._outputs[cell] = None
                continue
            if node.kind in _REMEMBERED:
                self._joins[cell] = None
            for inner in node.args:
                # Read at the path of the node itself: the elements below a collect are not those of its reader.
                self.read(inner, cell.path)


_REMEMBERED = frozenset({NodeKind.COLLECT, NodeKind.FIRST, NodeKind.MERGE})


def _expressions(node: Node) -> Iterator[Expr]:
    yield from node.args
    for _, expr in node.kwargs:
        yield expr
