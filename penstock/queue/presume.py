"""What a settle may presume, so that what follows from it is written without waiting for answers.

A statement on the way makes sure of it, and fails where it is not so; then nothing of the transaction remains, and it
is done once more without presuming anything (see the pump). For the database that settles successes by one statement.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.database.transaction import Transaction
from penstock.queue.jobs import Claim

# Apart from the statement that locks the states of the steps, and after it: only so the definition is the one that
# counts until the end of the transaction. And who has lost its row is taken for dead, and must not hold anything more.
AS_PRESUMED = """
SELECT 1 / (CASE WHEN count(*) = :expected AND EXISTS (SELECT 1 FROM {processes} WHERE id = CAST(:process AS uuid))
  THEN 1 ELSE 0 END)
FROM unnest(CAST(:ids AS uuid[]), CAST(:definitions AS text[])) AS known(id, definition)
JOIN {runs} r ON r.id = known.id AND r.definition = known.definition
WHERE r.mode = 'running' AND r.paused_at IS NULL
"""


AS_PRESUMED_OF_ONE = """
SELECT 1 / (CASE WHEN EXISTS (SELECT 1 FROM {runs} WHERE id = CAST(:id AS uuid) AND definition = :definition
    AND mode = 'running' AND paused_at IS NULL)
  AND EXISTS (SELECT 1 FROM {processes} WHERE id = CAST(:process AS uuid)) THEN 1 ELSE 0 END)
"""


def runs_go_on(
    tx: Transaction, claims: Sequence[Claim], process: str | None
) -> dict[str, tuple[str, bool, str]]:
    """The runs of these claims are as they were when the claims were made: their modes, pauses and definitions."""
    runs = {claim.run_id: claim.definition or "" for claim in claims if claim.run_id is not None}
    if runs:
        tx.stage("presume")
    if len(runs) == 1:
        ((id, definition),) = runs.items()
        tx.run(AS_PRESUMED_OF_ONE, id=id, definition=definition, process=process)
    elif runs:
        known = {"ids": list(runs), "definitions": list(runs.values())}
        tx.run(AS_PRESUMED, **known, expected=len(runs), process=process)
    return {run: ("running", False, definition) for run, definition in runs.items()}
