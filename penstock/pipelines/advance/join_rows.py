"""The rows of joins: how many tokens are still to come, and what has come. Invariants 5 and 6.

A join's row is locked, changed and read in one go, so of all transactions that bring tokens exactly one sees
the last one arrive. Rows are taken node by node in the order of the definition, within a node by (run, path): every
transaction locks joins in the same order, and a join that fires only ever leads to later ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.database.transaction import Transaction
from penstock.pipelines.model.expressions import Path, path_of, path_text
from penstock.pipelines.model.wiring import NodeWiring
from penstock.pipelines.plan.tokens import JoinState, Tally, due

LOCK = """
SELECT run_id, path, still_open, blocked, pruned, winner, fired, width FROM {joins} {by_key}
WHERE run_id {among:runs:uuid} AND node = :node AND path {among:paths:text} ORDER BY run_id, node, path {lock}
"""
UPDATE = """
UPDATE {joins} {by_key} SET still_open = :still_open, blocked = :blocked, pruned = :pruned, winner = :winner,
  fired = :fired
WHERE run_id = :run AND node = :node AND path {among:paths:text}
"""

STATES = """
SELECT run_id, path, blocked, pruned, winner FROM {joins}
WHERE run_id {among:runs:uuid} AND node = :node AND path {among:paths:text} AND fired
"""
WAITING = """
SELECT path, blocked, pruned, winner FROM {joins}
WHERE run_id = :run AND node = :node AND path >= :first AND path < :last ORDER BY path LIMIT :limit
"""
REMOVE = "DELETE FROM {joins} WHERE run_id = :run AND node = :node AND path {among:paths:text}"
AFTER_DOT = "/"
"""The character after the one that parts the indexes of a path."""
AFTER_HEX = "g"

At = tuple[str, Path]
"""A run, and a path in it."""


@dataclass(slots=True)
class Arrival:
    """Tokens on their way to a join. `count` is how many decide it, None if its row is there already."""

    tokens: int
    tally: Tally
    count: int | None


class Fired(NamedTuple):
    """A join that these arrivals have decided."""

    run: str
    path: Path
    tally: Tally
    width: int | None


class _JoinRow(NamedTuple):
    still_open: int
    blocked: int
    pruned: int
    winner: str | None
    fired: bool


def write(tx: Transaction, rows: Sequence[Mapping[str, object]]) -> None:
    """Joins that are created with their state: those over an expand's elements, and those decided at once."""
    tx.insert("joins", rows)


def waiting_row(run: str, node: str, path: Path, tally: Tally) -> dict[str, object]:
    """The row of an element that waits at a door which is not open yet."""
    counts = {"blocked": tally.blocked, "pruned": tally.pruned}
    return row(run, node, path, 1, winner=tally.winner) | counts


def row(
    run: str, node: str, path: Path, tokens: int, *, winner: str | None = None, width: int | None = None
) -> dict[str, object]:
    return {
        "run_id": run,
        "node": node,
        "path": path_text(path),
        "still_open": tokens,
        "blocked": 0,
        "pruned": 0,
        "winner": winner,
        "fired": tokens == 0,
        "width": width,
    }


def arrive(tx: Transaction, place: NodeWiring, arrivals: Mapping[At, Arrival]) -> list[Fired]:
    """Add tokens to the joins of one node; those that are decided by it."""
    fresh = [
        row(run, place.node.key, path, arrival.count)
        for (run, path), arrival in sorted(arrivals.items())
        if arrival.count is not None
    ]
    tx.insert("joins", fresh, ignore_duplicates=True)
    fired: list[Fired] = []
    found = 0
    changed: dict[tuple[str, _JoinRow], list[str]] = defaultdict(list)
    for runs, paths in _blocks(arrivals):
        texts = [path_text(path) for path in paths]
        for run, text, *stored, width in tx.rows(LOCK, runs=runs, node=place.node.key, paths=texts):
            found += 1
            path = path_of(text)
            before = _JoinRow(*stored)
            after, decided = _added(place, before, arrivals[run, path])
            changed[run, after].append(text)
            if decided:
                tally = Tally(after.blocked, after.pruned, after.winner)
                fired.append(Fired(run, path, tally, width))
    if found < len(arrivals):
        raise LookupError(f"tokens for joins of {place.node.key} that do not exist: {list(arrivals)[:3]}")
    for (run, state), texts in changed.items():
        tx.run(UPDATE, run=run, node=place.node.key, paths=texts, **state._asdict())
    return fired


def fired_among(tx: Transaction, node: str, at: Iterable[At]) -> dict[At, Tally]:
    """Those of the joins of one node that have fired, with what had come to them."""
    found: dict[At, Tally] = {}
    for runs, paths in _blocks(at):
        rows = tx.rows(STATES, runs=runs, node=node, paths=[path_text(path) for path in paths])
        found |= {(str(run), path_of(text)): Tally(*tally) for run, text, *tally in rows}
    return found


def waiting_at(tx: Transaction, run: str, node: str, path: Path, limit: int) -> dict[Path, Tally]:
    """The elements that wait at a door, in their order: the rows below the door's own."""
    prefix = path_text(path)
    first, last = (f"{prefix}.", f"{prefix}{AFTER_DOT}") if prefix else ("0", AFTER_HEX)
    rows = tx.rows(WAITING, run=run, node=node, first=first, last=last, limit=limit)
    return {path_of(text): Tally(*tally) for text, *tally in rows}


def remove(tx: Transaction, run: str, node: str, paths: Iterable[Path]) -> None:
    tx.run(REMOVE, run=run, node=node, paths=[path_text(path) for path in paths])


def _added(place: NodeWiring, before: _JoinRow, arrival: Arrival) -> tuple[_JoinRow, bool]:
    tally = Tally(before.blocked, before.pruned, before.winner).plus(arrival.tally)
    left = before.still_open - arrival.tokens
    decided = due(place, JoinState(left, tally, bool(before.fired)))
    return _JoinRow(left, tally.blocked, tally.pruned, tally.winner, bool(before.fired) or decided), decided


def _blocks(at: Iterable[At]) -> list[tuple[list[str], list[Path]]]:
    """The places as (runs, paths), all with all: one block where that is possible, else one per run."""
    by_run: dict[str, list[Path]] = defaultdict(list)
    for run, path in sorted(at):
        by_run[run].append(path)
    kinds = {tuple(paths) for paths in by_run.values()}
    if len(kinds) == 1:
        return [(list(by_run), list(kinds.pop()))]
    return [([run], paths) for run, paths in by_run.items()]
