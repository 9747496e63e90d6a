"""The queries about runs that travel with a settle: how each run goes on, asked or presumed.

What is presumed is checked by a statement whose answer the worker does not wait for. Where it is not so, the
transaction fails, nothing of it remains, and the pump settles once more without presuming anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.database.transaction import Transaction
from penstock.pipelines.advance.state import Mode
from penstock.queue.jobs import Claim

RUN_MODES = """
SELECT id, mode, paused_at, definition, EXISTS (SELECT 1 FROM {processes} WHERE id = :process) FROM {runs}
WHERE id {among:ids:uuid}
"""
# Apart from the statement that locks the states of the steps, and after it: only so the definition is the one that
# counts until the end of the transaction. And a process that lost its row was declared dead: it must claim nothing.
REGISTERED = "EXISTS (SELECT 1 FROM {processes} WHERE id = :process)"
UNCHANGED = f"""
(SELECT COUNT(*) FROM {{runs}} WHERE id {{among:ids:uuid}} AND definition = :definition AND mode = 'running'
  AND paused_at IS NULL) = :expected AND {REGISTERED}
"""
ONE_UNCHANGED = f"""
EXISTS (SELECT 1 FROM {{runs}} WHERE id = :id AND definition = :definition AND mode = 'running'
  AND paused_at IS NULL) AND {REGISTERED}
"""


class SettledRuns:
    """Answers a settle about the runs of its steps."""

    def ask(
        self, tx: Transaction, ids: Sequence[str], process: str | None
    ) -> Callable[[], tuple[dict[str, object], bool]]:
        rows = tx.send_ahead(RUN_MODES, ids=ids, process=process)

        def answer() -> tuple[dict[str, object], bool]:
            found: dict[str, object] = {}
            registered = False
            for run, mode, paused, definition, is_there in rows():
                found[run] = Mode(mode, paused is not None, definition)
                registered = bool(is_there)
            return found, registered

        return answer

    def assume(self, tx: Transaction, claims: Sequence[Claim], process: str | None) -> dict[str, object]:
        runs = {claim.run_id: claim.definition or "" for claim in claims if claim.run_id is not None}
        if not runs:
            return {}
        tx.stage("presume")
        if len(runs) == 1:
            ((id, definition),) = runs.items()
            tx.assume(ONE_UNCHANGED, id=id, definition=definition, process=process)
        else:
            for definition in sorted(set(runs.values())):
                ids = [run for run, known in runs.items() if known == definition]
                tx.assume(UNCHANGED, ids=ids, definition=definition, expected=len(ids), process=process)
        return {run: Mode("running", False, definition) for run, definition in runs.items()}
