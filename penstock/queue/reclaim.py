"""Reclaim: take back the work of processes that are dead. Invariants 10 and 11.

Two facts in the database decide, each by itself: a process whose heartbeat is too old loses its row, and a claim whose
process has no row is taken back. Both are safe from many hosts at once and may be repeated. A process that was only
frozen finds its claims gone: its tokens match no row any more.

Each process says in its row for how long it may be silent. So nobody is judged by the settings of another, as when a
deploy changes them and old and new processes run side by side.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic_core import from_json

from penstock.database.dialect import Row
from penstock.database.transaction import Transaction
from penstock.queue import slots
from penstock.queue.claim import FORGET_RECEIPTS
from penstock.queue.jobs import Ended, Follow, nothing_follows, tier_of
from penstock.values.outcome import decide_crash
from penstock.values.status import JobStatus, OutcomeKind, Reason

CLAIMS_PER_TURN = 20

LOOK = """
SELECT (SELECT MIN(heartbeat_at + COALESCE(reap_after, :silence)) FROM {processes} WHERE id <> :me) - {now},
  EXISTS (SELECT 1 FROM {claims} c WHERE NOT EXISTS (SELECT 1 FROM {processes} p WHERE p.id = c.process_id))
"""
SILENT = """
SELECT id FROM {processes} WHERE heartbeat_at + COALESCE(reap_after, :silence) < {now} AND id <> :me {lock_skip}
"""
REMOVE_SILENT = """
DELETE FROM {processes} WHERE id {among:ids:uuid} AND heartbeat_at + COALESCE(reap_after, :silence) < {now}
"""
REMOVE = "DELETE FROM {processes} WHERE id = :id"
ORPHANED = """
SELECT token, process_id, job_ids FROM {claims} c
WHERE NOT EXISTS (SELECT 1 FROM {processes} p WHERE p.id = c.process_id)
ORDER BY token LIMIT :limit {lock_skip}
"""
LOCK_HELD = """
SELECT job_id, token, crash_count, generation, claimed_at, cancel_requested, process_id FROM {job_states} {by_key}
WHERE job_id {among:ids:uuid} AND status = 'running' ORDER BY job_id {lock_skip}
"""
HOLDING = "SELECT job_id, token FROM {job_states} WHERE job_id {among:ids:uuid} AND status = 'running'"
DESCRIBE = """
SELECT id, task, queue, priority, max_crashes, run_id, node, path FROM {jobs} WHERE id {among:ids:uuid}
"""
CRASH = """
UPDATE {job_states} {by_key} SET status = :status, token = NULL, process_id = NULL, reason = :reason,
  crash_count = crash_count + 1, finished_at = CASE WHEN :final = 1 THEN {now} END
WHERE job_id {among:ids:uuid}
"""
FORGET_CANCELLATIONS = """
DELETE FROM {cancellations} WHERE process_id {among:dead:uuid}
  AND NOT EXISTS (SELECT 1 FROM {processes} p WHERE p.id = process_id)
"""


@dataclass(frozen=True, slots=True)
class Crashed:
    """A job whose holder died, and what becomes of it."""

    job_id: str
    process_id: str
    task: str
    status: JobStatus
    delay: float
    reason: Reason | None


def look(tx: Transaction, silence: float, me: str) -> tuple[float | None, bool]:
    """When somebody will have been silent for too long, in seconds; and whether anything is held by nobody.

    `silence` is for those who have not said how long that is.
    """
    row = tx.row(LOOK, silence=int(silence * 1_000_000), me=me)
    assert row is not None
    return None if row[0] is None else float(row[0]) / 1_000_000, bool(row[1])


def reap_silent(
    tx: Transaction, silence: float, me: str, may_judge: Callable[[], bool] = lambda: True
) -> list[str]:
    """Remove processes not heard of for too long by the database's clock; never our own.

    `may_judge` is asked when the database has answered: that may have taken so long that nobody could be heard.
    """
    tx.stage("reap")
    micros = int(silence * 1_000_000)
    silent = [str(row[0]) for row in tx.rows(SILENT, silence=micros, me=me)]
    if not may_judge():
        return []
    if silent:
        tx.run(REMOVE_SILENT, ids=silent, silence=micros)
        tx.run(FORGET_CANCELLATIONS, dead=silent)
    return silent


def remove_process(tx: Transaction, process: str) -> bool:
    """Remove a process that is known to be gone: it said so itself, or the operating system did."""
    tx.stage("reap")
    return tx.count(REMOVE, id=process) > 0


def reclaim(tx: Transaction, follow: Follow = nothing_follows, limit: int = CLAIMS_PER_TURN) -> list[Crashed]:
    """Take back what dead processes held: each attempt becomes `crashed`, each job available, later, or failed."""
    tx.stage("reclaim")
    orphaned = tx.rows(ORPHANED, limit=limit)
    if not orphaned:
        return []
    tokens = {token for token, _, _ in orphaned}
    ids = sorted({job_id for _, _, job_ids in orphaned for job_id in from_json(job_ids)})
    # A row that somebody has locked (a holder frozen in the middle of its settle) is left for the next round,
    # and its receipt with it: one such row must not keep all the others waiting.
    holding = {job_id: token for job_id, token in tx.rows(HOLDING, ids=ids) if token in tokens} if ids else {}
    held = [row for row in tx.rows(LOCK_HELD, ids=sorted(holding)) if row[1] in tokens] if holding else []
    crashed = _crash(tx, held, follow) if held else []
    locked = {holding[job_id] for job_id in holding.keys() - {row[0] for row in held}}
    if tokens - locked:
        tx.run(FORGET_RECEIPTS, tokens=sorted(tokens - locked))
    tx.run(FORGET_CANCELLATIONS, dead=sorted({str(process) for _, process, _ in orphaned}))
    return crashed


def _crash(tx: Transaction, held: list[Row], follow: Follow) -> list[Crashed]:
    described = {str(row[0]): row[1:] for row in tx.rows(DESCRIBE, ids=[row[0] for row in held])}
    _record(tx, held)
    crashed: list[Crashed] = []
    ended, rows = [], []
    for job_id, _token, crashes, _generation, _claimed_at, cancelled, process in held:
        task, queue, priority, max_crashes, run_id, node, path = described[job_id]
        status, delay, reason = decide_crash(crashes + 1, max_crashes)
        if cancelled:
            status, delay, reason = JobStatus.CANCELLED, 0.0, Reason.CANCELLED
        # Suspects come back one by one, so that the innocent get past the one that kills its process.
        delay *= 1 + len(crashed) / len(held)
        crashed.append(Crashed(job_id, process, task, status, delay, reason))
        rows.append(
            {
                "job_id": job_id,
                "task": task,
                "queue": queue,
                "tier": tier_of(priority),
                "reason": reason.value if reason else None,
                "wait": int(delay * 1_000_000),
            }
        )
        if run_id is not None and status.terminal:
            error = "the process that ran it died"
            ended.append(Ended(job_id, str(run_id), node, path or "", status, reason, None, error))
    _move(tx, crashed, rows)
    if ended:
        follow(tx, ended)
    slots.vacate(tx, [job.job_id for job in crashed])
    return crashed


def _record(tx: Transaction, held: list[Row]) -> None:
    rows = [
        {
            "job_id": job_id,
            "generation": generation,
            "process_id": process,
            "started_at": claimed_at,
            "outcome": OutcomeKind.CRASHED.value,
            "error_type": "Crashed",
            "error": "the process that held this job died",
        }
        for job_id, _token, _crashes, generation, claimed_at, _cancelled, process in held
    ]
    tx.insert("executions", rows, finished_at="{now}")


def _move(tx: Transaction, crashed: Sequence[Crashed], rows: Sequence[dict[str, object]]) -> None:
    groups: dict[tuple[JobStatus, Reason | None], list[int]] = defaultdict(list)
    for index, job in enumerate(crashed):
        groups[job.status, job.reason].append(index)
    for (status, reason), indexes in sorted(groups.items(), key=str):
        ids = [crashed[index].job_id for index in indexes]
        tx.run(CRASH, status=status.value, reason=reason, final=int(status.terminal), ids=ids)
        places = [rows[index] for index in indexes]
        match status:
            case JobStatus.AVAILABLE:
                tx.insert("availabilities", places)
            case JobStatus.SCHEDULED:
                tx.insert("scheduled", places, due_at="{now} + :wait")
            case JobStatus.FAILED:
                tx.insert("dead_letters", places, ignore_duplicates=True, failed_at="{now}")
            case _:
                pass
