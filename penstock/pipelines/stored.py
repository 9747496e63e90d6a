"""Values of steps, fetched for many readers at once: outputs where they are, in executions; nothing is copied."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from penstock.database.dialect import Row
from penstock.database.transaction import Transaction
from penstock.pipelines.desk import Desk
from penstock.pipelines.inputs import Cell, Needs
from penstock.pipelines.paths import Path, path_of, path_text
from penstock.pipelines.runs import RunView
from penstock.values.jsontext import loads
from penstock.values.tags import MISSING

OUTPUTS = """
SELECT j.run_id, j.node, j.path, e.output FROM {jobs} j
JOIN {executions} e ON e.job_id = j.id AND e.outcome = 'succeeded'
WHERE j.run_id {among:runs:uuid} AND j.node {among:nodes:text} AND j.path {among:paths:text}
"""
OUTPUTS_BELOW = """
SELECT j.run_id, j.node, j.path, e.output FROM {jobs} j
JOIN {executions} e ON e.job_id = j.id AND e.outcome = 'succeeded'
WHERE j.run_id = :run AND j.node = :node AND j.path >= :first AND j.path < :last
"""
MARKS = """
SELECT run_id, node, path, winner, width FROM {joins}
WHERE run_id {among:runs:uuid} AND node {among:nodes:text} AND path {among:paths:text}
"""
MARKS_BELOW = """
SELECT run_id, node, path, winner, width FROM {joins}
WHERE run_id = :run AND node = :node AND path >= :first AND path < :last
"""
AFTER_DOT = "/"
"""The character after the one that parts the indexes of a path."""
AFTER_HEX = "g"
FEW = 8

Where = tuple[str, str, Path]
"""A run, a node in it, and a path."""


@dataclass(slots=True)
class Values:
    """What is known of outputs and joins. None is the output of what did not succeed; its value is missing."""

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


def fetch(desk: Desk, tx: Transaction, values: Values, wanted: Sequence[tuple[str, Needs]]) -> None:
    """Read what these runs need and is not known yet: one query for steps that are alike, whatever their number."""
    recent = desk.trace(tx).outputs
    outputs: list[Where] = []
    marks: list[Where] = []
    for run, needs in wanted:
        for cell in needs.outputs:
            if cell.below:
                _read_below(tx, OUTPUTS_BELOW, run, cell, values)
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
    _read(tx, OUTPUTS, outputs, values)
    _read(tx, MARKS, marks, values)


def ask(tx: Transaction, run: str, needs: Needs) -> Callable[[], Values] | None:
    """Send for what a run needs; whoever calls what is returned waits for it. None: it is more than a few outputs."""
    if needs.joins or len(needs.outputs) > FEW or any(cell.below for cell in needs.outputs):
        return None
    places = [(run, cell.node, cell.path) for cell in needs.outputs]
    asked = [
        tx.ahead(OUTPUTS, runs=runs, nodes=nodes, paths=[path_text(path) for path in paths])
        for runs, nodes, paths in _blocks(places)
    ]

    def values() -> Values:
        found = Values()
        for rows in asked:
            _keep(found, rows())
        return found

    return values


def _read(tx: Transaction, template: str, places: Sequence[Where], values: Values) -> None:
    for runs, nodes, paths in _blocks(places):
        rows = tx.rows(template, runs=runs, nodes=nodes, paths=[path_text(path) for path in paths])
        _keep(values, rows)


def _read_below(tx: Transaction, template: str, run: str, cell: Cell, values: Values) -> None:
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
    """The places as (runs, nodes, paths), all with all, so that little is read that nobody asked for."""
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
