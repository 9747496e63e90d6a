"""A supervisor's children in the database: who they are, and what happens to their work when they are gone.

A child is known by the mark it was given at its birth, which stays the same when it registers anew; a pid
may be used again. The operating system has said that the child is dead before anything here is called: that
is the proof on which its claims are ended. Invariants 10 and 11.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic_core import from_json

from penstock.database.dialect import Row
from penstock.database.transaction import Transaction
from penstock.queue import release
from penstock.values.jsontext import loads
from penstock.values.status import OutcomeKind

CHILDREN = """
SELECT id, pid, details, {now} - heartbeat_at, EXISTS (SELECT 1 FROM {claims} c WHERE c.process_id = p.id)
FROM {processes} p WHERE supervisor_id = :supervisor
"""
REMOVE = "DELETE FROM {processes} WHERE id {among:ids:uuid}"
FORGET_CANCELLATIONS = "DELETE FROM {cancellations} WHERE process_id {among:ids:uuid}"
CLAIMS = "SELECT token, job_ids FROM {claims} WHERE process_id {among:ids:uuid} ORDER BY token {lock}"
HELD = """
SELECT job_id, token, generation, claimed_at, process_id FROM {job_states}
WHERE job_id {among:ids:uuid} AND status = 'running' AND NOT cancel_requested ORDER BY job_id {lock}
"""


@dataclass(frozen=True, slots=True)
class ChildRow:
    """A child's process row, for how many seconds nothing was heard of it, and whether it holds any work."""

    id: str
    pid: int
    birth: str
    silence: float
    holds: bool


def children(tx: Transaction, supervisor: str) -> list[ChildRow]:
    """All process rows of a supervisor's children."""
    tx.stage("children")
    rows = tx.rows(CHILDREN, supervisor=supervisor)
    return [
        ChildRow(str(id), pid, _birth(details), age / 1_000_000, bool(holds))
        for id, pid, details, age, holds in rows
    ]


def bury(tx: Transaction, supervisor: str, birth: str) -> list[str]:
    """Remove the rows of a child that is dead: from now on its claims are orphans. The ids removed."""
    ids = [child.id for child in children(tx, supervisor) if child.birth == birth]
    tx.stage("bury")
    if ids:
        tx.run(REMOVE, ids=ids)
    return ids


def see_off(tx: Transaction, supervisor: str, birth: str) -> list[str]:
    """Bury a child that was told to stop; what it still held is given back. The jobs."""
    return leave(tx, bury(tx, supervisor, birth))


def leave(tx: Transaction, processes: Sequence[str]) -> list[str]:
    """Remove processes that stop on purpose; what they still hold is given back and spends nothing. The jobs."""
    tx.stage("leave")
    if not processes:
        return []
    tx.run(REMOVE, ids=processes)
    tx.run(FORGET_CANCELLATIONS, ids=processes)
    claims = tx.rows(CLAIMS, ids=processes)
    jobs = sorted({job_id for _, job_ids in claims for job_id in from_json(job_ids)})
    tokens = {token for token, _ in claims}
    held = [row for row in tx.rows(HELD, ids=jobs) if row[1] in tokens] if jobs else []
    if not held:
        return []
    _record(tx, held)
    # The receipts stay for the reaper: a job whose cancellation was asked for is still under one of them.
    return release.release(tx, [(str(row[0]), row[1]) for row in held]).given_back


def _record(tx: Transaction, held: Sequence[Row]) -> None:
    rows = [
        {
            "job_id": job_id,
            "generation": generation,
            "process_id": process,
            "started_at": claimed_at,
            "outcome": OutcomeKind.RELEASED.value,
        }
        for job_id, _token, generation, claimed_at, process in held
    ]
    tx.insert("executions", rows, finished_at="{now}")


def _birth(details: str) -> str:
    found = loads(details)
    return str(found.get("birth", "")) if isinstance(found, dict) else ""
