"""Give claims back: work that was never started, or that this process holds without knowing it. Spends nothing."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_core import from_json

from penstock.database.transaction import Transaction
from penstock.queue import slots
from penstock.queue.jobs import tier_of

LOCK_HELD = """
SELECT job_id, token FROM {job_states} {by_key}
WHERE job_id {among:ids:uuid} AND status = 'running' ORDER BY job_id {lock}
"""
DESCRIBE = "SELECT id, task, queue, priority FROM {jobs} WHERE id {among:ids:uuid}"
RELEASE = """
UPDATE {job_states} {by_key} SET status = 'available', token = NULL, process_id = NULL
WHERE job_id {among:ids:uuid}
"""
FORGET_CLAIMS = "DELETE FROM {claims} WHERE token {among:tokens:int}"
# Once our process row is gone, everything under it is an orphan and the reaper's business.
OWN_CLAIMS = """
SELECT token, job_ids FROM {claims}
WHERE process_id = :process AND EXISTS (SELECT 1 FROM {processes} WHERE id = :process)
ORDER BY token {lock}
"""


def release(
    tx: Transaction, held: Sequence[tuple[str, int]], finished_tokens: Sequence[int] = ()
) -> list[str]:
    """Make these (job, token) available again where the token still stands; the jobs given back."""
    tx.stage("release")
    tokens = dict(held)
    rows = tx.rows(LOCK_HELD, ids=sorted(tokens)) if tokens else []
    ids = [job_id for job_id, token in rows if tokens[job_id] == token]
    if ids:
        tx.run(RELEASE, ids=ids)
        places = [
            {"job_id": job_id, "task": task, "queue": queue, "tier": tier_of(priority)}
            for job_id, task, queue, priority in tx.rows(DESCRIBE, ids=ids)
        ]
        tx.insert("availabilities", places)
        slots.vacate(tx, ids)
    if finished_tokens:
        tx.run(FORGET_CLAIMS, tokens=finished_tokens)
    return ids


def release_unknown(tx: Transaction, process: str, known_tokens: Sequence[int]) -> list[str]:
    """Give back claims that were committed while their answer was lost: held by us, known to nobody here."""
    tx.stage("release_unknown")
    known = set(known_tokens)
    unknown = [
        (token, job_ids) for token, job_ids in tx.rows(OWN_CLAIMS, process=process) if token not in known
    ]
    held = [(job_id, token) for token, job_ids in unknown for job_id in from_json(job_ids)]
    return release(tx, held, [token for token, _ in unknown]) if unknown else []
