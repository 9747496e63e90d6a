"""Moves a run that is under way to another definition. Decision 014 says which transactions can meet here.

A transaction that advances a run holds a step of it that has not ended, or a large expand, and reads the definition
only after that. So this locks all of them, and looks again until there are no others; then nothing of the run moves.
What is there is compared (see `compatibility`), and the one statement that decides writes the run's row. Steps, joins
and timers are left as they are: they are the same in both definitions, or nothing is written.
"""

from __future__ import annotations

from penstock.database.transaction import Transaction
from penstock.errors import ActionRefused, DefinitionsDiffer
from penstock.pipelines.advance import timers
from penstock.pipelines.advance.read import COUNTS
from penstock.pipelines.advance.run_rows import wiring_for
from penstock.pipelines.advance.state import EngineState
from penstock.pipelines.lifecycle import start
from penstock.pipelines.model.compatibility import StoredState, obstacles
from penstock.pipelines.model.diff import Current
from penstock.pipelines.model.wiring import wiring_of
from penstock.queue import audit
from penstock.values.status import JobStatus, RunStatus

CHUNK = 500

EXPANDS = "SELECT id, node FROM {advancements} WHERE run_id = :run ORDER BY id {lock}"
OPEN = """
SELECT j.id FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id
WHERE j.run_id = :run AND s.status IN ('available', 'scheduled', 'running', 'waiting')
"""
LOCK_STEPS = "SELECT job_id FROM {job_states} {by_key} WHERE job_id {among:ids:uuid} ORDER BY job_id {lock}"
LOCK_RUN = "SELECT pipeline, definition, args, status, mode, started_at FROM {runs} WHERE id = :id {lock}"
JOINS = "SELECT node, fired, COUNT(*) FROM {joins} WHERE run_id = :run GROUP BY node, fired"
MOVE = "UPDATE {runs} SET definition = :definition, args = :args WHERE id = :id"

SEVERAL_WRITERS = (
    "a run cannot be moved on a cluster with several writers (Galera, Group Replication): nothing would hold it still "
    "on the other nodes. Let it end with its own definition, or cancel it and trigger another one"
)
ACTIVE = (RunStatus.PENDING, RunStatus.RUNNING, RunStatus.PAUSED)


def migrate(engine_state: EngineState, tx: Transaction, run: str, current: Current) -> bool:
    """Have the run go on with this definition. False: it does already. Refused: `DefinitionsDiffer`."""
    tx.stage("migrate_run")
    if tx.dialect.locks_on_one_node:
        raise ActionRefused(SEVERAL_WRITERS)
    wanted = current.definition
    expanding = _hold_still(tx, run)
    row = tx.row(LOCK_RUN, id=run)
    if row is None:
        raise ActionRefused(f"there is no run {run}; it may have been pruned")
    pipeline, definition, args, status, mode, started_at = row
    if status not in ACTIVE or mode != "running":
        raise ActionRefused(f"run {run} is {status}: only a run that goes on can be moved; see revive")
    if definition == wanted.hash:
        return False
    if pipeline != wanted.name:
        raise ActionRefused(f"run {run} is one of {pipeline}, not of {wanted.name}")
    start.store(engine_state, tx, {wanted.hash: wanted})
    old, new = wiring_for(engine_state, tx, definition), wiring_of(wanted.text)
    given, lacking = current.arguments(str(args))
    present = _present(tx, run, expanding, begun=status != RunStatus.PENDING)
    found = [*obstacles(old, new, present), *lacking]
    if found:
        raise DefinitionsDiffer(run, found)
    tx.run(MOVE, id=run, definition=wanted.hash, args=given)
    audit.of_run(tx, "migrate", run, before=definition, after=wanted.hash)
    if wanted.deadline not in (None, old.definition.deadline) and started_at is not None:
        due = int(started_at) + int((wanted.deadline or 0.0) * 1_000_000)
        timers.set(tx, timers.DEADLINE, run, at=due)
    return True


def _hold_still(tx: Transaction, run: str) -> set[str]:
    """Lock every row from which the run could advance, until no further one appears; returns the expands under way."""
    held: set[str] = set()
    known: dict[str, str] = {}
    while True:
        expands = {str(id): str(node) for id, node in tx.rows(EXPANDS, run=run)}
        fresh = sorted({str(id) for (id,) in tx.rows(OPEN, run=run)} - held)
        if not fresh and expands.keys() <= known.keys():
            return set(expands.values())
        known |= expands
        for first in range(0, len(fresh), CHUNK):
            some = fresh[first : first + CHUNK]
            tx.rows(LOCK_STEPS, ids=some)
            held.update(some)


def _present(tx: Transaction, run: str, expanding: set[str], begun: bool) -> StoredState:
    steps: dict[str, bool] = {}
    for node, status, _ in tx.rows(COUNTS, run=run):
        steps[str(node)] = steps.get(str(node), False) or JobStatus.stored(status).terminal
    joins: dict[str, bool] = {}
    for node, fired, _ in tx.rows(JOINS, run=run):
        joins[str(node)] = joins.get(str(node), False) or bool(fired)
    return StoredState(begun, steps, joins, frozenset(expanding))
