"""Rows of signals: given to all waits of a name in a run, or to the one at a path. Written under the run's lock.

A wait takes the signal for its own element before the one for all. A caller that acts on the absence of a signal holds
the lock on the run's row while it looks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from penstock.database.transaction import Transaction
from penstock.errors import ActionRefused
from penstock.pipelines.advance import timers
from penstock.pipelines.advance.run_rows import RunView, views
from penstock.pipelines.advance.state import EngineState
from penstock.pipelines.model.definition import Node, NodeKind
from penstock.pipelines.model.expressions import TOP, Path, path_text
from penstock.values.parse import nearest
from penstock.values.typed_json.json_text import dumps

ALL = "SELECT run_id, name, value FROM {signals} WHERE run_id {among:ids:uuid}"
OF_ELEMENTS = """
SELECT run_id, name, path, value FROM {element_signals} WHERE run_id {among:ids:uuid} AND path {among:paths:text}
"""
KNOWN = "SELECT value FROM {signals} WHERE run_id = :run AND name = :name"
KNOWN_AT = "SELECT value FROM {element_signals} WHERE run_id = :run AND name = :name AND path = :path"

HEADERS = "SELECT run_id, name, headers FROM {signals} WHERE run_id {among:ids:uuid}"
HEADERS_AT = """
SELECT run_id, name, path, headers FROM {element_signals} WHERE run_id {among:ids:uuid} AND path {among:paths:text}
"""


class UnknownSignal(ActionRefused):
    """No step of the run waits for a signal of this name."""


Given = dict[tuple[str, str, str], str]
"""Values by run, signal and path; the path of a signal for all is empty."""


def given(tx: Transaction, runs: Sequence[str], paths: Iterable[str]) -> Given:
    """Read the signals given to these runs: to all waits, and to the elements at these paths."""
    found: Given = {(run, name, ""): value for run, name, value in tx.rows(ALL, ids=sorted(runs))}
    inside = sorted({path for path in paths if path})
    if inside:
        rows = tx.rows(OF_ELEMENTS, ids=sorted(runs), paths=inside)
        found |= {(run, name, path): value for run, name, path, value in rows}
    return found


def find(tx: Transaction, run: str, name: str, path: str) -> str | None:
    """Read the signal that a wait at this path has been given."""
    row = tx.row(KNOWN_AT, run=run, name=name, path=path) if path else None
    row = row or tx.row(KNOWN, run=run, name=name)
    return None if row is None else str(row[0])


def headers_before(tx: Transaction, steps: Sequence[tuple[RunView, str, Path]]) -> dict[int, tuple[str, ...]]:
    """The headers of the signals that ended the waits right before steps, by the number of the step in the list."""
    asked = [
        (number, run.id, wait.target, path_text(path[: wait.depth]))
        for number, (run, node, path) in enumerate(steps)
        for wait in run.wiring.definition.waits_before(node)
    ]
    if not asked:
        return {}
    runs, paths = sorted({run for _, run, _, _ in asked}), sorted({path for *_, path in asked if path})
    found = {(str(run), name, ""): text for run, name, text in tx.rows(HEADERS, ids=runs)}
    for run, name, path, text in tx.rows(HEADERS_AT, ids=runs, paths=paths) if paths else ():
        found[str(run), name, path] = text
    given: dict[int, tuple[str, ...]] = {}
    for number, run, name, path in asked:
        text = found.get((run, name, path)) or found.get((run, name, ""))
        if text:
            given[number] = (*given.get(number, ()), str(text))
    return given


def write(
    tx: Transaction, run: str, name: str, value: str, path: Path, headers: Mapping[str, str] | None = None
) -> None:
    """Give a signal, and have it delivered."""
    told = dumps(dict(headers)) if headers else None
    signal = {"run_id": run, "name": name, "value": value, "headers": told}
    if path:
        tx.insert("element_signals", [signal | {"path": path_text(path)}], signalled_at="{now}")
        timers.set(tx, timers.ELEMENT_SIGNAL, run, data=dumps([name, path_text(path)]))
    else:
        tx.insert("signals", [signal], signalled_at="{now}")
        timers.set(tx, timers.SIGNAL, run, data=name)


def waits_for(engine_state: EngineState, tx: Transaction, run: str, name: str) -> list[Node]:
    """The waits of a run's definition for this signal; a run that is gone has none."""
    found = views(engine_state, tx, [run]).get(run)
    nodes = found.wiring.definition.nodes if found is not None else ()
    return [node for node in nodes if node.kind is NodeKind.WAIT and node.target == name]


def check_place(engine_state: EngineState, tx: Transaction, run: str, name: object, path: Path) -> None:
    """Refuse a signal that no step will ever wait for."""
    found = views(engine_state, tx, [run]).get(run)
    if found is None:
        raise ActionRefused(f"there is no run {run}; it may have been pruned")
    names = {node.target for node in found.wiring.definition.nodes if node.kind is NodeKind.WAIT}
    if not isinstance(name, str) or name not in names:
        others = f"; it waits for {', '.join(sorted(names))}" if names else ", nor for any other signal"
        raise UnknownSignal(f"no step of run {run} waits for {name!r}{others}{nearest(str(name), names)}")
    depths = {node.depth for node in waits_for(engine_state, tx, run, name)}
    if path and len(path) not in depths:
        wanted = " or ".join(str(depth) for depth in sorted(depths))
        wanted += " expand" if depths == {1} else " expands"
        raise ActionRefused(
            f"path={path!r}: the waits for {name!r} are inside {wanted}, and a path has an index for each"
        )


def read_path(path: object) -> Path:
    """A path as users give it; None and the empty path stand for all waits of the name."""
    if path is None:
        return TOP
    if isinstance(path, list | tuple) and all(type(index) is int and index >= 0 for index in path):
        return tuple(path)
    raise ActionRefused(f"path={path!r}: give the index in each expand, outermost first, such as (3,)")
