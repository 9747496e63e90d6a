"""Halting runs for which nothing can be planned (see `troubles`). Needs nothing of their definitions.

It is done again whenever one of their steps ends, until none is left: whoever ends the last of them, by the lock on the
run's row, ends the run.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.database.transaction import Transaction
from penstock.errors import AdvancementFailed
from penstock.pipelines import runs
from penstock.pipelines.apply import Application
from penstock.pipelines.changes import RunMode
from penstock.pipelines.definition import Definition
from penstock.pipelines.runs import RunView
from penstock.pipelines.wiring import Wiring, wiring_of

UNFINISHED = """
SELECT 1 FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id
WHERE j.run_id = :run AND s.status IN ('available', 'scheduled', 'running', 'waiting') LIMIT 1
"""
FORGET_EXPANDS = "DELETE FROM {advancements} WHERE run_id = :run"


def abandon(application: Application, ids: Sequence[str]) -> None:
    """Nothing of these runs will start; each ends as halted when nothing of it is left."""
    for id in ids:
        run = _view(application, id)
        if run is None:
            continue
        application.runs[id] = run
        change = application.change(run)
        change.mode, change.abandoned = RunMode.HALTED, True
        application.tx.run(FORGET_EXPANDS, run=id)


def nothing_is_left(tx: Transaction, run: str) -> bool:
    """Every step that there is has ended. Its row is locked, so the last two to end see each other."""
    return not tx.rows(UNFINISHED, run=run)


def _view(application: Application, id: str) -> RunView | None:
    desk, tx = application.desk, application.tx
    try:
        return runs.views(desk, tx, [id]).get(id)
    except AdvancementFailed:
        row = tx.row("SELECT pipeline, definition, args, mode FROM {runs} WHERE id = :id", id=id)
        if row is None:
            return None
        pipeline, definition, args, mode = row
        return RunView(id, pipeline, definition, _empty(pipeline), args, RunMode(mode))


def _empty(pipeline: str) -> Wiring:
    """Stands for a definition that cannot be read: no steps, nobody to call back."""
    return wiring_of(Definition(pipeline, (), ()).text)
