"""A collapse that takes an iterator: the elements are read in chunks while the handler goes through them.

A parameter annotated `Iterable[...]` or `Iterator[...]` that is given all elements of an expand gets them one after
the other, in element order, and no more than a chunk of them is held at a time. Every other parameter gets a list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from penstock.database.engine import Database
from penstock.database.transaction import Transaction
from penstock.pipelines.definition import Kind
from penstock.pipelines.desk import Desk
from penstock.pipelines.expressions import Expr, Output
from penstock.pipelines.inputs import Needs, Stored, inputs_of, spread, value_of
from penstock.pipelines.paths import Path, path_of, path_text
from penstock.pipelines.runs import RunView
from penstock.pipelines.stored import OUTPUTS_BELOW
from penstock.values.jsontext import loads
from penstock.values.streams import RawStream
from penstock.values.tags import MISSING

CHUNK = 1000


class Streamed(NamedTuple):
    """A collect whose elements are read by and by, and the step they are the outputs of."""

    collect: str
    step: str


class StepStream(RawStream):
    """The outputs of one step for all elements; missing where there is none."""

    def __init__(self, database: Database, run: str, step: str, path: Path, width: int) -> None:
        self.database = database
        self.run = run
        self.step = step
        self.path = path
        self.width = width

    def __iter__(self) -> Iterator[object]:
        for start in range(0, self.width, CHUNK):
            stop = min(start + CHUNK, self.width)
            found = self.database.read(self._chunk, start, stop)
            for index in range(start, stop):
                text = found.get(index)
                yield MISSING if text is None else loads(text)

    def _chunk(self, tx: Transaction, start: int, stop: int) -> dict[int, str]:
        first, last = path_text((*self.path, start)), path_text((*self.path, stop))
        rows = tx.rows(OUTPUTS_BELOW, run=self.run, node=self.step, first=first, last=last)
        return {path_of(path)[-1]: output for _, _, path, output in rows}


def streamed(desk: Desk, run: RunView, node: str) -> Mapping[int | str, Streamed]:
    """The parameters of a step, by position or name, that are given their elements by and by."""
    place = run.wiring.places[node].node
    task = desk.host.find_task(place.target) if place.kind is Kind.TASK else None
    if task is None or task.executor == "process":
        return {}
    given: list[tuple[int | str, Expr]] = [*enumerate(place.args), *place.kwargs]
    return {
        where: found
        for where, expr in given
        if (found := _elements(run, expr)) is not None and task.codec.takes_stream(where)
    }


def needs_of(run: RunView, node: str, path: Path, streams: Mapping[int | str, Streamed]) -> Needs:
    """What is to be fetched beforehand: all but the elements that are read later."""
    needs = inputs_of(run.wiring, node, path)
    later = {stream.step for stream in streams.values()}
    outputs = tuple([cell for cell in needs.outputs if not (cell.below and cell.node in later)])
    return Needs(outputs, needs.joins) if later else needs


def arguments_of(
    desk: Desk,
    run: RunView,
    node: str,
    path: Path,
    stored: Stored,
    element: object,
    streams: Mapping[int | str, Streamed],
) -> tuple[list[object], dict[str, object]]:
    """The arguments of a step some of whose parameters take their elements by and by."""

    def value(where: int | str, expr: Expr) -> object:
        stream = streams.get(where)
        if stream is None:
            return value_of(run.wiring, expr, path, stored, element)
        inside = path[: run.wiring.places[stream.collect].node.depth]
        width = stored.width(stream.collect, inside) or 0
        return StepStream(desk.host.database, run.id, stream.step, inside, width)

    place = run.wiring.places[node].node
    args = [value(where, expr) for where, expr in enumerate(place.args)]
    return spread(place, args, {name: value(name, expr) for name, expr in place.kwargs})


def _elements(run: RunView, expr: Expr) -> Streamed | None:
    if not isinstance(expr, Output):
        return None
    collect = run.wiring.places[expr.node].node
    if collect.kind is not Kind.COLLECT or not isinstance(collect.args[0], Output):
        return None
    inner = run.wiring.places[collect.args[0].node].node
    simple = inner.kind.is_step and inner.depth == collect.depth + 1
    return Streamed(collect.key, inner.key) if simple else None
