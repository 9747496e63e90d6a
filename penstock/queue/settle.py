"""Settle: end claims with their outcomes, through the fence. Invariants 3, 4, 10 and 11.

The rows are locked, their tokens compared, and only those still held by the very claim go on. A claim that was lost
changes nothing and is reported back; it is never an exception.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.database.transaction import Transaction
from penstock.queue import claim as queue_claim
from penstock.queue import states, tallies
from penstock.queue.jobs import Attempt, Claim, EndedStep, Follow, Offer, RunLookup, nothing_follows
from penstock.queue.limits import slots
from penstock.queue.rules import followers
from penstock.values.failure import fingerprint
from penstock.values.outcome import Outcome
from penstock.values.status import JobStatus, OutcomeKind, Reason

ALREADY_SETTLED = (
    "SELECT job_id, generation, process_id, outcome FROM {executions} WHERE job_id {among:ids:uuid}"
)
LONGEST_WAIT = 100 * 366 * 86_400.0
"""Longer delays are cut to a hundred years; more does not fit the column."""
FORGET_CANCELLATIONS = "DELETE FROM {cancellations} WHERE job_id {among:ids:uuid}"
STILL_HELD = "SELECT 1 FROM {job_states} WHERE job_id = :id AND token = :token"


@dataclass(slots=True)
class Settled:
    """The result of a settle: which attempts counted, and which had lost their claim."""

    accepted: list[Attempt] = field(default_factory=list)
    lost: list[Attempt] = field(default_factory=list)
    earlier: list[Attempt] = field(default_factory=list)
    """Those that were settled before, and not told of yet: by the handler's own transaction, or by a try of this same
    settle whose answer got lost. Each has the outcome that is on record."""
    finished: list[Attempt] = field(default_factory=list)
    """All attempts that were passed in: this process holds none of them any longer."""
    runs: dict[str, object] = field(default_factory=dict)
    """Answers of the lookup about the runs whose steps were settled the fast way."""
    registered: bool | None = None
    """Whether the process still has its row; None: it was not asked."""
    followed: set[str] = field(default_factory=set)
    """Jobs that other jobs follow."""


def settle(
    tx: Transaction,
    attempts: Sequence[Attempt],
    process: str | None,
    finished_tokens: Sequence[int] = (),
    follow: Follow = nothing_follows,
    offer: Offer | None = None,
    lookup: RunLookup | None = None,
) -> Settled:
    """Write the outcomes of all attempts whose claims still stand, and everything that follows from them.

    `finished_tokens`: claims of which nothing is left, so that their receipts can go. `offer`: what follows may be
    held at once. `lookup`: asks about the runs of the steps on the way.
    """
    tx.stage("settle")
    if tx.dialect.fast_path.settle:
        settled = _fast(tx, attempts, process, finished_tokens, lookup)
    else:
        settled = _in_steps(tx, attempts, process, finished_tokens)
    ended = [
        _ended(attempt, settled.runs.get(attempt.claim.run_id or ""))
        for attempt in settled.accepted
        if _ends_step(attempt)
    ]
    if ended:
        _follow(tx, ended, settled, follow, offer)
    _tell_followers(tx, settled)
    if any(attempt.claim.slots for attempt in settled.accepted):
        slots.end(tx, settled.accepted)
    tallies.count(tx, settled.accepted)
    return settled


def _follow(
    tx: Transaction, ended: Sequence[EndedStep], settled: Settled, follow: Follow, offer: Offer | None
) -> None:
    if offer is not None:
        known = settled.registered
        stands = queue_claim.is_registered(tx, offer.process) if known is None else known
        offer = offer if stands else None
    follow(tx, ended, offer)
    if offer is not None and offer.claims and not offer.has_receipt:
        queue_claim.write_receipt(tx, offer)


def _tell_followers(tx: Transaction, settled: Settled) -> None:
    """Enqueue the callbacks of jobs that are over, and release the jobs that wait for them. Mostly there are none."""
    over = [a for a in settled.accepted if a.outcome.final and a.claim.run_id is None]
    calling = [a for a in over if a.claim.options is not None and followers.has_callbacks(a.claim.options)]
    if calling:
        followers.call_back(tx, [_ended_job(attempt) for attempt in calling])
    if settled.followed:
        followers.release(
            tx, {a.claim.job_id: a.outcome.status for a in over if a.claim.job_id in settled.followed}
        )


def _ended_job(attempt: Attempt) -> followers.EndedJob:
    claim, outcome = attempt.claim, attempt.outcome
    error = str(outcome.failure) if outcome.failure else None
    told = (claim.options, outcome.reason, outcome.output, error)
    return followers.EndedJob(claim.job_id, claim.task, outcome.status, *told)


def is_held(tx: Transaction, claim: Claim) -> bool:
    """True if the claim is held now. This decides nothing: the settle compares the token again."""
    return tx.row(STILL_HELD, id=claim.job_id, token=claim.token) is not None


def _fast(
    tx: Transaction,
    attempts: Sequence[Attempt],
    process: str | None,
    finished_tokens: Sequence[int],
    lookup: RunLookup | None,
) -> Settled:
    """Successes in one statement; the rest, and what the fence held back, the general way."""
    simple = {
        a.claim.job_id: a
        for a in attempts
        if a.outcome.kind is OutcomeKind.SUCCEEDED and a.outcome.reason is None
    }
    tx.optimistic = tx.optimistic and len(simple) == len(attempts) and lookup is not None
    if tx.optimistic and lookup is not None:
        return _presumed(tx, attempts, process, finished_tokens, lookup)
    if not simple:
        return _in_steps(tx, attempts, process, finished_tokens)
    rows = [_success(attempt) for attempt in simple.values()]
    found = tx.dialect.succeed(tx, rows, process, finished_tokens)
    runs = {attempt.claim.run_id for attempt in simple.values()} - {None}
    # The next query is sent together with this statement: one round trip less for every step.
    asked = lookup.ask(tx, sorted(map(str, runs)), process) if runs and lookup is not None else None
    done = {row[0] for row in found()}
    rest = [a for a in attempts if simple.get(a.claim.job_id) is not a or a.claim.job_id not in done]
    settled = _in_steps(tx, rest, process, ()) if rest else Settled()
    settled.accepted += [simple[job_id] for job_id in done]
    settled.finished = list(attempts)
    if asked is not None:
        settled.runs, settled.registered = asked()
    return settled


def _presumed(
    tx: Transaction,
    attempts: Sequence[Attempt],
    process: str | None,
    finished_tokens: Sequence[int],
    lookup: RunLookup,
) -> Settled:
    """Settle as if no claim were lost and no run had changed, without waiting for the answer.

    If that is not true, the transaction fails.
    """
    tx.dialect.succeed(tx, [_success(attempt) for attempt in attempts], process, finished_tokens)
    runs = lookup.assume(tx, [attempt.claim for attempt in attempts], process)
    known = True if runs else None
    return Settled(accepted=list(attempts), finished=list(attempts), runs=runs, registered=known)


def _success(attempt: Attempt) -> dict[str, object]:
    claim = attempt.claim
    return {
        "job_id": claim.job_id,
        "token": claim.token,
        "generation": claim.generation,
        "began_ago": attempt.began_ago,
        "ended_ago": attempt.ended_ago,
        "output": attempt.outcome.output,
    }


def _in_steps(
    tx: Transaction, attempts: Sequence[Attempt], process: str | None, finished_tokens: Sequence[int]
) -> Settled:
    settled = _through_the_fence(tx, attempts, process)
    if settled.accepted:
        states.record_attempts(tx, settled.accepted, process)
        _move(tx, settled.accepted)
    if finished_tokens:
        tx.run(queue_claim.FORGET_RECEIPTS, tokens=finished_tokens)
    return settled


def _through_the_fence(tx: Transaction, attempts: Sequence[Attempt], process: str | None) -> Settled:
    running = states.lock_running(tx, sorted({attempt.claim.job_id for attempt in attempts}))
    held = {job.job_id: (job.token, job.cancel_requested) for job in running}
    settled = Settled(finished=list(attempts), followed={job.job_id for job in running if job.is_followed})
    cancelled_ids = []
    for attempt in attempts:
        token, cancelled = held.get(attempt.claim.job_id, (None, False))
        if token != attempt.claim.token:
            settled.lost.append(attempt)
            continue
        if cancelled:
            cancelled_ids.append(attempt.claim.job_id)
            attempt = attempt._replace(outcome=_cancelled(attempt.outcome))
        settled.accepted.append(attempt)
    if cancelled_ids:
        tx.run(FORGET_CANCELLATIONS, ids=cancelled_ids)
    if settled.lost:
        _tell_earlier(tx, settled, process)
    return settled


def _tell_earlier(tx: Transaction, settled: Settled, process: str | None) -> None:
    """Take those out of the lost ones that this process has settled under this same claim."""
    unmatched, settled.lost = settled.lost, []
    rows = tx.rows(ALREADY_SETTLED, ids=[attempt.claim.job_id for attempt in unmatched])
    known = {(str(row[0]), row[1]): row for row in rows}
    for attempt in unmatched:
        row = known.get((attempt.claim.job_id, attempt.claim.generation))
        if row is None or row[2] != process or row[3] == OutcomeKind.CRASHED:
            settled.lost.append(attempt)
        else:
            settled.earlier.append(_as_recorded(attempt, row[3]))


def _as_recorded(attempt: Attempt, kind: object) -> Attempt:
    """With the outcome on record: what a handler raises after its own transaction has ended the job changes nothing."""
    if kind == OutcomeKind.SUCCEEDED:
        return attempt._replace(outcome=Outcome(OutcomeKind.SUCCEEDED))
    return attempt._replace(outcome=_cancelled(attempt.outcome)) if kind == OutcomeKind.CANCELLED else attempt


def _cancelled(outcome: Outcome) -> Outcome:
    """A cancellation that came before the settle wins over whatever the handler made of it."""
    return Outcome(OutcomeKind.CANCELLED, failure=outcome.failure, reason=Reason.CANCELLED)


def _move(tx: Transaction, attempts: Sequence[Attempt]) -> None:
    """Move every job to the state of its outcome: one statement per kind, whatever the number."""
    groups: dict[tuple[JobStatus, Reason | None, bool, bool], list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        outcome = attempt.outcome
        crashed = outcome.kind is OutcomeKind.CRASHED
        groups[outcome.status, outcome.reason, outcome.spends_retry, crashed].append(attempt)
    for (status, reason, spends, crashed), group in sorted(groups.items(), key=lambda item: str(item[0])):
        ids = sorted(attempt.claim.job_id for attempt in group)
        if status.terminal:
            states.end(tx, ids, status, reason)
        else:
            states.put_back(tx, ids, status, spent=spends, crashed=crashed)
        states.put_in_place(tx, status, [_place(attempt) for attempt in group])


def _place(attempt: Attempt) -> dict[str, object]:
    claim, outcome = attempt.claim, attempt.outcome
    return {
        "job_id": claim.job_id,
        "task": claim.task,
        "queue": claim.queue,
        "tier": claim.tier,
        "reason": outcome.reason.value if outcome.reason else None,
        "wait": int(min(outcome.delay or 0.0, LONGEST_WAIT) * 1_000_000),
        **(fingerprint(claim.task, outcome.failure) if outcome.status is JobStatus.FAILED else {}),
    }


def _ends_step(attempt: Attempt) -> bool:
    return attempt.claim.run_id is not None and attempt.outcome.final


def _ended(attempt: Attempt, run: object | None) -> EndedStep:
    claim, outcome = attempt.claim, attempt.outcome
    return EndedStep(
        claim.job_id,
        str(claim.run_id),
        str(claim.node),
        claim.path or "",
        outcome.status,
        outcome.reason,
        outcome.output,
        str(outcome.failure) if outcome.failure else None,
        run,
        attempt.kept,
    )
