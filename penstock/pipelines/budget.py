"""How many steps a run may have in all (`max_steps`). Only expands make more than the definition shows.

When an expand begins, all steps that its elements will have are reserved, on the run's row. Planning reads that number
without a lock and refuses what is too much; the row, locked last as ever, decides: expands at the same moment may each
have seen room for themselves, and then the run is halted. Runs without the limit are not concerned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.database.transaction import Transaction
from penstock.pipelines.changes import Fan
from penstock.pipelines.runs import RunView

RESERVED = "SELECT id, reserved FROM {runs} WHERE id {among:ids:uuid}"


class Change(Protocol):
    """What is to be written to a run's row."""

    reserved: int


def look(tx: Transaction, runs: Sequence[RunView]) -> None:
    """Read what was reserved by those of these runs that have a limit, once a transaction."""
    limited = {run.id: run for run in runs if _limit(run) is not None and run.reserved is None}
    if limited:
        for id, reserved in tx.rows(RESERVED, ids=sorted(limited)):
            limited[str(id)].reserved = int(reserved or 0)


def reserve(run: RunView, change: Callable[[RunView], Change], fan: Fan) -> None:
    """An expand begins: its steps are spoken for."""
    if _limit(run) is not None:
        steps = fan.width * run.wiring.inside(fan.node)
        run.reserved = (run.reserved or 0) + steps
        change(run).reserved += steps


def is_exceeded(run: RunView, reserved: int | None) -> bool:
    most = _limit(run)
    return most is not None and (reserved or 0) + run.wiring.inside(None) > most


def _limit(run: RunView) -> int | None:
    return run.wiring.definition.max_steps
