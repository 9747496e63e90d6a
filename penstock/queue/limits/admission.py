"""Admission: which of the jobs that were just claimed may run, by their limits.

It is the last thing a transaction does. The states of the jobs are held; then the keys of their limits are locked, all
at once and in order; then slots are counted, given and refused. So what is decided under a key's lock is committed
before another transaction decides about that key.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from penstock.database.transaction import Transaction
from penstock.queue.jobs import Claim
from penstock.queue.limits import slots, waiting_line
from penstock.queue.limits.slots import LimitUsage, Reservation
from penstock.queue.limits.waiting_line import Lane, Refused
from penstock.values.limits import Demand

LOCK_HELD = """
SELECT job_id, token, cancel_requested FROM {job_states} {by_key}
WHERE job_id {among:ids:uuid} AND status = 'running' ORDER BY job_id {lock}
"""
NO_RESERVATION = Reservation(frozenset(), frozenset(), 0)


class ClaimDemands(NamedTuple):
    """A claim, and what it needs before it may run."""

    claim: Claim
    demands: tuple[Demand, ...]


class Admission(NamedTuple):
    """The result of an admission: which claims run, and which lanes got jobs that had waited."""

    admitted: dict[str, Claim]
    """The claims that may run, by job."""
    lanes: list[Lane]
    """The lanes in which jobs from the waiting lines got a place."""
    needs_sweep: bool
    """True if a line has begun, or a job went over to another line: the lines should be looked at again."""


def still_held(tx: Transaction, wanted: Sequence[ClaimDemands]) -> tuple[list[ClaimDemands], list[Claim]]:
    """Lock the states of claims that may have been committed before this transaction: those that stand, without
    those that an operator has asked to cancel meanwhile."""
    tx.stage("limits")
    rows = tx.rows(LOCK_HELD, ids=sorted({each.claim.job_id for each in wanted})) if wanted else []
    held = {str(job_id): (token, bool(cancelled)) for job_id, token, cancelled in rows}
    ours = [each for each in wanted if held.get(each.claim.job_id) == (each.claim.token, False)]
    return ours, [each.claim for each in wanted if held.get(each.claim.job_id) == (each.claim.token, True)]


def admit(tx: Transaction, held: Sequence[ClaimDemands], touched: Collection[str] = ()) -> Admission:
    """Decide which claims run, and release waiting jobs where there is room. `touched`: keys that may have room now."""
    keys = slots.lock(tx, [demand for each in held for demand in each.demands], touched)
    if not keys:
        return Admission({}, [], False)
    ids = sorted(each.claim.job_id for each in held)
    asked, lines = slots.reservations(tx, ids), waiting_line.still_parked(tx, ids)
    usages = slots.usage(tx, keys)
    promised = asked()
    admitted, refused = decide(held, usages, promised)
    waiting_line.leave(tx, lines())
    if promised:
        slots.use_up(tx, sorted(promised))
    slots.give(tx, admitted)
    waiting_line.park(tx, refused)
    counting = {
        claim.job_id: claim._replace(slots=tuple(demand.key for demand in demands))
        for claim, demands in admitted
    }
    lanes = waiting_line.release(tx, keys, usages)
    return Admission(counting, lanes, any(key.needs_sweep for key in usages.values()))


def sweep(tx: Transaction, keys: Collection[str]) -> Admission:
    """Release jobs that wait for these keys, as far as there is room."""
    tx.stage("limits_sweep")
    # A line may have grown quickly: with old statistics the planner would sort all of it.
    tx.dialect.go_by_index(tx)
    return admit(tx, (), keys)


def decide(
    wanted: Sequence[ClaimDemands], usages: dict[str, LimitUsage], promised: dict[str, Reservation]
) -> tuple[list[ClaimDemands], list[Refused]]:
    """Choose the claims that may run, most urgent first; the others are returned with the key that has no room. Pure.

    A slot that is reserved counts, but not against the job that it is reserved for. A job that has not waited yet
    must not pass those that have.
    """
    admitted: list[ClaimDemands] = []
    refused: list[Refused] = []
    places = {
        each.claim.job_id: promised[each.claim.job_id].place
        if each.claim.job_id in promised
        else each.claim.seq
        for each in wanted
    }
    for each in sorted(
        wanted, key=lambda each: (each.claim.tier, places[each.claim.job_id], each.claim.job_id)
    ):
        own = promised.get(each.claim.job_id, NO_RESERVATION)
        for key in own.valid & usages.keys():
            usages[key].used -= 1
        full = [demand.key for demand in each.demands if not _has_room(usages[demand.key], own)]
        if full:
            refused.append(Refused(*each, full[0], places[each.claim.job_id]))
            usages[full[0]].line_up()
            continue
        admitted.append(each)
        for demand in each.demands:
            usages[demand.key].used += 1
    return admitted, refused


def _has_room(key: LimitUsage, own: Reservation) -> bool:
    return key.free > 0 and (bool(own.keys) or not key.waited_for)
