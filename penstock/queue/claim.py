"""Claim: take ready jobs for this process, in one transaction, never more than asked for. Invariants 1 and 2.

The claim deletes the availability, writes the token on the job's state and leaves a receipt in `claims`, by which a
reaper finds the work of a dead process. A job that is no longer available (cancelled meanwhile) just loses its place
in the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from penstock.database.dialect import Lane
from penstock.database.transaction import Transaction
from penstock.queue import states
from penstock.queue.jobs import Claim, Offer, receipt_of
from penstock.values.status import JobStatus

FIRST_QUEUE = "SELECT MIN(queue) FROM {availabilities} WHERE queue > :queue"
FIRST_TIER = "SELECT MIN(tier) FROM {availabilities} WHERE queue = :queue AND tier > :tier"
LOWEST_TIER = -(2**31)
PrefetchRuns = Callable[[Transaction, int], None]
REGISTERED = "SELECT 1 FROM {processes} WHERE id = :process"
HEAD = """
SELECT seq, job_id, task FROM {availabilities}
WHERE queue = :queue AND tier = :tier AND seq > :floor AND task {among:tasks:text} ORDER BY seq LIMIT 1 {lock_skip}
"""
LEAVE = "DELETE FROM {availabilities} WHERE queue = :queue AND tier = :tier AND seq {among:seqs:int}"
FORGET_RECEIPTS = "DELETE FROM {claims} WHERE token {among:tokens:int}"


def claim(
    tx: Transaction,
    lanes: Sequence[Lane],
    tasks: Sequence[str],
    limit: int,
    token: int,
    process: str,
    prefetch_runs: PrefetchRuns | None = None,
) -> tuple[list[Claim], dict[tuple[str, int], int]]:
    """Claim jobs, most urgent first; returns them, and the highest sequence seen in each lane.

    `prefetch_runs` asks for the runs of their steps, by the token: that travels with the claim.
    """
    tx.stage("claim")
    if not lanes or not tasks:
        return [], {}
    taken = tx.dialect.take_ready(tx, lanes, tasks, limit, token, process)
    if prefetch_runs is not None:
        prefetch_runs(tx, token)
    rows = taken()
    floors: dict[tuple[str, int], int] = {}
    claims: list[Claim] = []
    # A job that was cancelled and retried may still have its old place in the queue beside the new one.
    met: set[str] = set()
    for id, queue, tier, seq, generation, retries, crashes, task, payload, options, *place in rows:
        lane = (queue, tier)
        if seq > floors.get(lane, 0):
            floors[lane] = seq
        if generation is not None and id not in met:
            met.add(id)
            described = (task, queue, tier, payload, options, retries, crashes, *place, None, seq)
            claims.append(Claim(id, token, generation, *described))
    return claims, floors


def put_off(
    tx: Transaction, lanes: Sequence[Lane], tasks: Sequence[str], pause: Callable[[str], float]
) -> str | None:
    """Take the first job that a claim of these lanes would get out of the queue for a while; returns its id.

    `pause` says for how many seconds. A job that is put off by mistake, because another process took the first one
    meanwhile, only comes a little later.
    """
    tx.stage("put_off")
    for lane in lanes:
        row = tx.row(HEAD, queue=lane.queue, tier=lane.tier, floor=lane.floor, tasks=list(tasks))
        if row is not None:
            seq, job_id, task = row
            tx.run(LEAVE, queue=lane.queue, tier=lane.tier, seqs=[seq])
            wait = int(pause(str(job_id)) * 1_000_000)
            if states.postpone(tx, job_id, wait):
                place = {"job_id": job_id, "queue": lane.queue, "tier": lane.tier, "task": task, "wait": wait}
                states.put_in_place(tx, JobStatus.SCHEDULED, [place])
            return str(job_id)
    return None


def is_registered(tx: Transaction, process: str) -> bool:
    """True if the process has its row. Without it the process was declared dead, and must claim nothing more."""
    return tx.row(REGISTERED, process=process) is not None


def write_receipt(tx: Transaction, offer: Offer) -> None:
    """Write the receipt by which a reaper finds the jobs that were accepted of an offer."""
    row = {"token": offer.token, "process_id": offer.process, "job_ids": receipt_of(offer.claims)}
    tx.insert("claims", [row], claimed_at="{now}")


def forget_receipts(tx: Transaction, claims: Iterable[Claim], kept: Iterable[Claim]) -> None:
    """Remove the receipts of these claims, except of those of which a job is kept."""
    tokens = {claim.token for claim in claims} - {claim.token for claim in kept}
    if tokens:
        tx.run(FORGET_RECEIPTS, tokens=sorted(tokens))


def discover(
    tx: Transaction,
    queues: Sequence[str] | None,
    after: tuple[str, int] = ("", LOWEST_TIER),
    most: int | None = None,
) -> list[tuple[str, int]]:
    """The lanes (queue, tier) after this one that have ready jobs, in order; by index probes, not by a scan."""
    tx.stage("discover")
    lanes: list[tuple[str, int]] = []
    first, lowest = after
    named = None if queues is None else [queue for queue in sorted(queues) if queue >= first]
    for queue in named if named is not None else ready_queues(tx, first):
        tier = lowest if queue == first else LOWEST_TIER
        while (row := tx.row(FIRST_TIER, queue=queue, tier=tier)) and row[0] is not None:
            tier = row[0]
            lanes.append((queue, tier))
            if most is not None and len(lanes) >= most:
                return lanes
    return lanes


def ready_queues(tx: Transaction, first: str = "") -> Iterator[str]:
    """The queues that have ready jobs, beginning with this one."""
    if first:
        yield first
    queue = first
    while (row := tx.row(FIRST_QUEUE, queue=queue)) and row[0] is not None:
        queue = row[0]
        yield queue
