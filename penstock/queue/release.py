"""Give claims back: work that was never started, or that this process holds without knowing it. Spends nothing.

A job whose cancellation was requested meanwhile is not given back but ends as cancelled: the request was addressed to
this process, and the next claimer of the job would not hear of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.database.dialect import Row
from penstock.database.transaction import Transaction
from penstock.queue import states
from penstock.queue.claim import FORGET_RECEIPTS
from penstock.queue.jobs import Attempt, Claim, Follow, jobs_of_receipt, nothing_follows, tier_of
from penstock.queue.limits import slots
from penstock.queue.settle import settle
from penstock.values.outcome import Outcome
from penstock.values.status import JobStatus, OutcomeKind, Reason

DESCRIBE = "SELECT id, task, queue, priority, run_id, node, path FROM {jobs} WHERE id {among:ids:uuid}"
# Once our process row is gone, everything under it is an orphan and the reaper's business.
OWN_CLAIMS = """
SELECT token, job_ids FROM {claims}
WHERE process_id = :process AND EXISTS (SELECT 1 FROM {processes} WHERE id = :process)
ORDER BY token {lock}
"""


class ReleaseReport(NamedTuple):
    """The jobs that were given back, and those that were to be cancelled and have ended so."""

    given_back: list[str]
    cancelled: list[str]


def release(
    tx: Transaction,
    held: Sequence[tuple[str, int]],
    finished_tokens: Sequence[int] = (),
    follow: Follow = nothing_follows,
) -> ReleaseReport:
    """Make these (job, token) available again where the token still stands."""
    tx.stage("release")
    tokens = dict(held)
    running = states.lock_running(tx, sorted(tokens))
    ours = {job.job_id: job for job in running if tokens[job.job_id] == job.token}
    described = tx.rows(DESCRIBE, ids=sorted(ours)) if ours else []
    back = [row for row in described if not ours[str(row[0])].cancel_requested]
    if back:
        _give_back(tx, back)
    slots.free_slot(tx, sorted(ours))
    if finished_tokens:
        tx.run(FORGET_RECEIPTS, tokens=finished_tokens)
    unwanted = [(ours[str(row[0])], row) for row in described if ours[str(row[0])].cancel_requested]
    if unwanted:
        _cancel(tx, unwanted, follow)
    return ReleaseReport([str(row[0]) for row in back], [job.job_id for job, _ in unwanted])


def release_unknown(
    tx: Transaction, process: str, known_tokens: Sequence[int], follow: Follow = nothing_follows
) -> ReleaseReport:
    """Give back claims whose commit succeeded but whose answer was lost: this process holds them without knowing."""
    tx.stage("release_unknown")
    known = set(known_tokens)
    unknown = [
        (token, job_ids) for token, job_ids in tx.rows(OWN_CLAIMS, process=process) if token not in known
    ]
    held = [(job_id, token) for token, job_ids in unknown for job_id in jobs_of_receipt(job_ids) or ()]
    # A receipt that cannot be read stays: what it is for is found by `penstock doctor`.
    read = [token for token, job_ids in unknown if jobs_of_receipt(job_ids) is not None]
    return release(tx, held, read, follow) if unknown else ReleaseReport([], [])


def _give_back(tx: Transaction, jobs: Sequence[Row]) -> None:
    states.give_back(tx, [str(row[0]) for row in jobs])
    places = [
        {"job_id": job_id, "task": task, "queue": queue, "tier": tier_of(priority)}
        for job_id, task, queue, priority, *_ in jobs
    ]
    states.put_in_place(tx, JobStatus.AVAILABLE, places)


def _cancel(tx: Transaction, jobs: Sequence[tuple[states.RunningJob, Row]], follow: Follow) -> None:
    """Settle jobs that have not begun as cancelled: no attempt is recorded, and their runs advance."""
    cancelled = Outcome(OutcomeKind.CANCELLED, reason=Reason.CANCELLED)
    attempts = []
    for job, (_, task, queue, priority, *place) in jobs:
        step = None if place[0] is None else str(place[0])
        described = (task, queue, tier_of(priority), "", None, 0, 0, None, step, *place[1:])
        claim = Claim(job.job_id, job.token, job.generation, *described)
        attempts.append(Attempt(claim, cancelled, began=False))
    settle(tx, attempts, None, (), follow)
