"""Values of steps, fetched for many readers at once: outputs where they are, in executions; nothing is copied."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from penstock.database.dialect import Row
from penstock.database.transaction import Transaction
from penstock.errors import PenstockError
from penstock.pipelines.advance.join_rows import AFTER_DOT, AFTER_HEX
from penstock.pipelines.advance.run_rows import RunView
from penstock.pipelines.advance.state import EngineState
from penstock.pipelines.model.definition import Node, NodeKind
from penstock.pipelines.model.expressions import (
    TOP,
    DictOf,
    Expr,
    ListOf,
    Output,
    Param,
    Path,
    path_of,
    path_text,
)
from penstock.pipelines.model.wiring import Wiring, wire
from penstock.pipelines.plan.inputs import FetchedInputs, InputQuery, OutputRef, result_of, value_of
from penstock.pipelines.plan.tokens import winners
from penstock.values.typed_json import tags
from penstock.values.typed_json.json_text import dumps, loads
from penstock.values.typed_json.tags import MISSING

OUTPUTS = """
SELECT j.run_id, j.node, j.path, e.output FROM {jobs} j
JOIN {executions} e {by_key} ON e.job_id = j.id AND e.outcome = 'succeeded'
WHERE j.run_id {among:runs:uuid} AND j.node {among:nodes:text} AND j.path {among:paths:text}
"""
OUTPUTS_BELOW = """
SELECT j.run_id, j.node, j.path, e.output FROM {jobs} j
JOIN {executions} e {by_key} ON e.job_id = j.id AND e.outcome = 'succeeded'
WHERE j.run_id = :run AND j.node = :node AND j.path >= :first AND j.path < :last
"""
# The same for PostgreSQL, one look-up after the other: a join by the jobs' ids makes the order of their primary key
# worth something, and then all jobs are read in that order, if there were few when the plan was made.
OUTPUTS_EACH = """
SELECT j.run_id, j.node, j.path, e.output
FROM unnest(CAST(:runs AS uuid[])) AS run(id), unnest(CAST(:nodes AS text[])) AS wanted(node),
  unnest(CAST(:paths AS text[])) AS place(path)
CROSS JOIN LATERAL (
  SELECT id, run_id, node, path FROM {jobs}
  WHERE run_id = run.id AND node = wanted.node AND path = place.path OFFSET 0) j
CROSS JOIN LATERAL (SELECT output FROM {executions} WHERE job_id = j.id AND outcome = 'succeeded' OFFSET 0) e
"""
OUTPUTS_BELOW_EACH = """
SELECT j.run_id, j.node, j.path, e.output FROM (
  SELECT id, run_id, node, path FROM {jobs}
  WHERE run_id = CAST(:run AS uuid) AND node = :node AND path >= :first AND path < :last OFFSET 0) j
CROSS JOIN LATERAL (SELECT output FROM {executions} WHERE job_id = j.id AND outcome = 'succeeded' OFFSET 0) e
"""
MARKS = """
SELECT run_id, node, path, winner, width FROM {joins}
WHERE run_id {among:runs:uuid} AND node {among:nodes:text} AND path {among:paths:text}
"""
MARKS_BELOW = """
SELECT run_id, node, path, winner, width FROM {joins}
WHERE run_id = :run AND node = :node AND path >= :first AND path < :last
"""
FEW = 8

Where = tuple[str, str, Path]
"""A run, a node in it, and a path."""


@dataclass(slots=True)
class Values:
    """Outputs and joins read so far. The output of a step that did not succeed is None; its value is missing."""

    outputs: dict[Where, str | None] = field(default_factory=dict)
    marks: dict[Where, tuple[str | None, int | None]] = field(default_factory=dict)
    _parsed: dict[Where, object] = field(default_factory=dict)

    def of(self, run: RunView) -> RunValues:
        return RunValues(self, run)

    def output(self, where: Where) -> object:
        text = self.outputs.get(where)
        if text is None:
            return MISSING
        if where not in self._parsed:
            self._parsed[where] = loads(text)
        return self._parsed[where]


@dataclass(frozen=True, slots=True)
class RunValues:
    """The values of one run, as `inputs` wants to see them."""

    values: Values
    run: RunView

    def param(self, name: str) -> object:
        return self.run.param(name)

    def output(self, node: str, path: Path) -> object:
        return self.values.output((self.run.id, node, path))

    def succeeded(self, node: str, path: Path) -> bool:
        return self.values.outputs.get((self.run.id, node, path)) is not None

    def winner(self, node: str, path: Path) -> str | None:
        return self.values.marks.get((self.run.id, node, path), (None, None))[0]

    def width(self, node: str, path: Path) -> int | None:
        return self.values.marks.get((self.run.id, node, path), (None, None))[1]


def fetch(
    engine_state: EngineState, tx: Transaction, values: Values, wanted: Sequence[tuple[str, InputQuery]]
) -> None:
    """Read what these runs need and is not known yet: one query for steps that are alike, whatever their number."""
    recent = engine_state.trace(tx).outputs
    outputs: list[Where] = []
    marks: list[Where] = []
    below = OUTPUTS_BELOW_EACH if tx.dialect.lateral else OUTPUTS_BELOW
    for run, needs in wanted:
        for cell in needs.outputs:
            if cell.below:
                _read_below(tx, below, run, cell, values)
            elif (run, cell.node, path_text(cell.path)) in recent:
                where = (run, cell.node, cell.path)
                values.outputs[where] = recent[run, cell.node, path_text(cell.path)]
            elif (run, cell.node, cell.path) not in values.outputs:
                outputs.append((run, cell.node, cell.path))
        for cell in needs.joins:
            if cell.below:
                _read_below(tx, MARKS_BELOW, run, cell, values)
            elif (run, cell.node, cell.path) not in values.marks:
                marks.append((run, cell.node, cell.path))
    _read(tx, _outputs(tx), outputs, values)
    _read(tx, MARKS, marks, values)


def ask(tx: Transaction, run: str, needs: InputQuery) -> Callable[[], Values] | None:
    """Query the outputs that a run needs; the function that is returned waits for them. None if there are too many."""
    if needs.joins or len(needs.outputs) > FEW or any(cell.below for cell in needs.outputs):
        return None
    places = [(run, cell.node, cell.path) for cell in needs.outputs]
    asked = [
        tx.send_ahead(_outputs(tx), runs=runs, nodes=nodes, paths=[path_text(path) for path in paths])
        for runs, nodes, paths in _blocks(places)
    ]

    def values() -> Values:
        found = Values()
        for rows in asked:
            _keep(found, rows())
        return found

    return values


def _outputs(tx: Transaction) -> str:
    return OUTPUTS_EACH if tx.dialect.lateral else OUTPUTS


def _read(tx: Transaction, template: str, places: Sequence[Where], values: Values) -> None:
    for runs, nodes, paths in _blocks(places):
        rows = tx.rows(template, runs=runs, nodes=nodes, paths=[path_text(path) for path in paths])
        _keep(values, rows)


def _read_below(tx: Transaction, template: str, run: str, cell: OutputRef, values: Values) -> None:
    prefix = path_text(cell.path)
    first, last = (f"{prefix}.", f"{prefix}{AFTER_DOT}") if prefix else ("0", AFTER_HEX)
    _keep(values, tx.rows(template, run=run, node=cell.node, first=first, last=last))


def _keep(values: Values, rows: Iterable[Row]) -> None:
    for run, node, path, *found in rows:
        where = (str(run), str(node), path_of(str(path)))
        if len(found) == 1:
            values.outputs[where] = found[0]
        else:
            values.marks[where] = (found[0], found[1])


def _blocks(places: Sequence[Where]) -> list[tuple[list[str], list[str], list[Path]]]:
    """The places as (runs, nodes, paths), all with all, so that few rows are read that were not asked for."""
    by_node: dict[str, dict[str, list[Path]]] = defaultdict(lambda: defaultdict(list))
    for run, node, path in sorted(set(places)):
        by_node[node][run].append(path)
    blocks: dict[tuple[tuple[str, ...], tuple[Path, ...]], list[str]] = defaultdict(list)
    for node, by_run in by_node.items():
        kinds: dict[tuple[Path, ...], list[str]] = defaultdict(list)
        for run, at in by_run.items():
            kinds[tuple(at)].append(run)
        for paths, runs in kinds.items():
            blocks[tuple(runs), paths].append(node)
    return [(list(runs), nodes, list(paths)) for (runs, paths), nodes in blocks.items()]


# A run's result: put together from the outputs of its steps when a caller asks. Stored only if the run was stopped.

DEEPEST = 20
"""Pipelines may be children of themselves."""


def raw_result(
    engine_state: EngineState, tx: Transaction, run: RunView, values: Values | None = None
) -> object:
    """The raw value of a run that has ended well."""
    return value_of(run.wiring, run.wiring.definition.result, TOP, _values(engine_state, tx, run, values))


def ask_results(tx: Transaction, run: RunView) -> Callable[[], Values] | None:
    """Send for what the result is made from, if that is little: perhaps the run has ended."""
    return ask(tx, run.id, result_of(run.wiring))


def result_text(
    engine_state: EngineState, tx: Transaction, run: RunView, values: Values | None = None
) -> str:
    return dumps(raw_result(engine_state, tx, run, values))


def natural_result(
    engine_state: EngineState, tx: Transaction, run: RunView, values: Values | None = None
) -> Any:
    """The value as the annotations of the tasks say that it is made from."""
    known = _values(engine_state, tx, run, values)
    result = run.wiring.definition.result
    raw = value_of(run.wiring, result, TOP, known)
    return _Natural(engine_state, run.wiring, run.pipeline, known).read(result, TOP, raw)


def reader(engine_state: EngineState, wiring: Wiring, pipeline: str) -> Callable[[str, str], Any]:
    """Reads what a step of a node has stored, as the annotation says; plainly where it does not fit (any more)."""
    natural = _Natural(engine_state, wiring, pipeline, None)

    def read(node: str, text: str) -> object:
        raw = loads(text)
        with suppress(PenstockError):
            return natural.read(Output(node), TOP, raw) if node in wiring.places else tags.read(raw)
        return tags.read(raw)

    return read


def _values(engine_state: EngineState, tx: Transaction, run: RunView, values: Values | None) -> FetchedInputs:
    values = values or Values()
    fetch(engine_state, tx, values, [(run.id, result_of(run.wiring))])
    return values.of(run)


@dataclass(frozen=True, slots=True)
class _Natural:
    """Gives raw values the types of the tasks that they come from."""

    engine_state: EngineState
    wiring: Wiring
    pipeline: str
    stored: FetchedInputs | None
    """The values read for the run; None for a child run, of which only the value is known."""
    generation: int = 0

    def read(self, expr: Expr, path: Path, raw: object) -> object:
        """Convert a stored value to its annotated type. A missing value is None: a step may fail."""
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
            case NodeKind.TASK:
                task = self.engine_state.host.find_task(node.target)
                return tags.read(raw) if task is None else task.codec.decode_result(dumps(raw))
            case NodeKind.COLLECT if isinstance(raw, list):
                return [self.read(node.args[0], (*path, index), item) for index, item in enumerate(raw)]
            case NodeKind.FIRST | NodeKind.MERGE:
                return self._chosen(node, path, raw)
            case NodeKind.PASS:
                return self.read(node.args[0], path, raw)
            case NodeKind.CHILD:
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
        pipeline = self.engine_state.host.find_pipeline(self.pipeline)
        if pipeline is not None and name in pipeline.codec.parameters:
            with suppress(PenstockError):  # it takes something else by now
                return pipeline.codec.decode_value_for(name, raw)
        return tags.read(raw)

    def _child(self, name: str, raw: object) -> object:
        """As the app says now: which definition the child run had is not known here."""
        pipeline = self.engine_state.host.find_pipeline(name)
        if pipeline is not None and self.generation < DEEPEST:
            with suppress(PenstockError, ValueError):
                definition = pipeline.definition
                wiring = self.engine_state.wirings.get(definition.hash) or wire(definition)
                child = _Natural(self.engine_state, wiring, name, None, self.generation + 1)
                return child.read(definition.result, TOP, raw)
        return tags.read(raw)
