"""The fast path, broken in one place at a time: the settle in one statement, what it assumes, the remembered plan."""

from __future__ import annotations

from typing import Any

from penstock.database.cursor_dialect import ByCursor
from penstock.pipelines.advance import fast_path, finish, run_modes
from penstock.pipelines.advance.fast_path import _Known
from penstock.runtime.pump.pump import Pump
from tests.simulation import dialect
from tests.simulation.mutants import Code, Instead, Mutant, Sql
from tests.simulation.wire import Wire


def _nothing(*_: Any, **__: Any) -> None:
    """Nothing is asked."""


FAST = {"fast": 1.0}
DEAF = """
        try:
            self.end()
        except sqlite3.Error:
            self.undo()
"""
JOBS: dict[str, Mutant] = {
    "fast: a success without the fence": Mutant(
        48,
        Sql(dialect, "SUCCEED", " AND token = :token AND status = 'running'", ""),
        Code(
            dialect.WiredSqlite.succeed,
            '"executions", history,',
            '"executions", history, ignore_duplicates=True,',
        ),
        loss=0.1,
        freeze=0.03,
        linger=0.2,
        trouble=220,
        **FAST,
    ),
    "fast: a success although it was cancelled": Mutant(
        45, Sql(dialect, "SUCCEED", " AND NOT cancel_requested", ""), **FAST
    ),
    "fast: lost claims go unnoticed": Mutant(
        31,
        Code(dialect.WiredSqlite.succeed, "tx.optimistic and len(done) < len(rows)", "False"),
        loss=0.1,
        freeze=0.03,
        trouble=220,
        **FAST,
    ),
    "fast: a claim is handed over whatever became of its commit": Mutant(
        32, Code(Wire.sync, "        self.end()", DEAF), commit=0.15, **FAST
    ),
}
LIMITS: dict[str, Mutant] = {
    "fast: a claim that could not be completed is still thought to be held": Mutant(
        32, Code(Pump._claim_alone, "self.source.forget(held)", "pass"), statement=0.05, commit=0.15, **FAST
    ),
}
RUNS: dict[str, Mutant] = {
    "fast: nothing that is assumed is checked": Mutant(4, Instead(ByCursor, "assume", _nothing), **FAST),
    "fast: the mode of the run is not looked at": Mutant(
        116,
        Sql(run_modes, "ONE_UNCHANGED", " AND mode = 'running'\n  AND paused_at IS NULL", ""),
        Sql(run_modes, "UNCHANGED", " AND mode = 'running'\n  AND paused_at IS NULL", ""),
        **FAST,
    ),
    "fast: a run ends whatever follows it": Mutant(
        4, Sql(finish, "NOTHING_FOLLOWS", "NOT EXISTS", "1 = 1 OR EXISTS"), **FAST
    ),
    "fast: a run ends well whatever has failed": Mutant(
        29, Sql(finish, "SUCCEED", " AND failed = 0", ""), **FAST
    ),
    "fast: the next step is given nothing": Mutant(
        46, Code(_Known.output, "return self._output", "return None"), **FAST
    ),
    "fast: a remembered plan is taken twice": Mutant(
        10, Code(fast_path.steps_after, "for step in cached.steps", "for step in cached.steps * 2"), **FAST
    ),
    "fast: a remembered plan is forgotten": Mutant(
        10, Code(fast_path.steps_after, "for step in cached.steps", "for step in cached.steps[1:]"), **FAST
    ),
}
