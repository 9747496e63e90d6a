"""Elements that wait at a door which has opened, a chunk per transaction (see `expand` and `doors`).

The caller holds the door's row in `advancements`. Each element that goes on has its row at the door removed in the same
transaction, so each goes on once, in whichever process. None is added meanwhile: one that comes later finds it open.
"""

from __future__ import annotations

from penstock.database.transaction import Transaction
from penstock.pipelines.advance import join_rows
from penstock.pipelines.advance.advance import Advance
from penstock.pipelines.advance.finish import finish
from penstock.pipelines.advance.run_rows import RunView
from penstock.pipelines.advance.state import EngineState
from penstock.pipelines.model.expressions import Path


def admit_some(
    engine_state: EngineState, tx: Transaction, run: RunView, door: str, path: Path, limit: int
) -> bool:
    """Let a chunk go on, and write what follows; False: those were the last."""
    waiting = join_rows.waiting_at(tx, run.id, door, path, limit)
    opened = join_rows.fired_among(tx, door, [(run.id, path)]).get((run.id, path))
    if not waiting or opened is None:
        return False
    join_rows.remove(tx, run.id, door, waiting)
    application = Advance(engine_state, tx)
    application.runs[run.id] = run
    for at, tally in waiting.items():
        application.admit(run, door, at, tally.plus(opened))
    finish(application)
    return len(waiting) == limit
