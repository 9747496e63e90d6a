"""Admission: which of the jobs that were just claimed may run, by their limits.

It is the last thing a transaction does. The states of the jobs are held; then the keys of their limits are locked, all
at once and in order; then slots are counted, given and refused. So what is decided under a key's lock is committed
before anybody else decides about that key.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from penstock.database.transaction import Transaction
from penstock.queue import parking, slots
from penstock.queue.jobs import Claim
from penstock.queue.parking import Lane, Refusal
from penstock.queue.slots import Reservation, Standing
from penstock.values.limits import Demand

LOCK_HELD = """
SELECT job_id, token, cancel_requested FROM {job_states} {by_key}
WHERE job_id {among:ids:uuid} AND status = 'running' ORDER BY job_id {lock}
"""
NO_RESERVATION = Reservation(frozenset(), frozenset(), 0)


class Wanted(NamedTuple):
    """A claim, and what it needs before it may run."""

    claim: Claim
    demands: tuple[Demand, ...]


class Admission(NamedTuple):
    """What came of it."""

    admitted: dict[str, Claim]
    """The claims that may run, by job."""
    lanes: list[Lane]
    """Where others, who have waited, got a place."""
    has_news: bool
    """A line has begun, or somebody went over to another: the lines should be looked at again."""


def still_held(tx: Transaction, wanted: Sequence[Wanted]) -> tuple[list[Wanted], list[Claim]]:
    """Lock the states of claims that may have been committed before this transaction: those that stand, without
    those that somebody has asked to cancel meanwhile."""
    tx.stage("limits")
    rows = tx.rows(LOCK_HELD, ids=sorted({each.claim.job_id for each in wanted})) if wanted else []
    held = {str(job_id): (token, bool(cancelled)) for job_id, token, cancelled in rows}
    ours = [each for each in wanted if held.get(each.claim.job_id) == (each.claim.token, False)]
    return ours, [each.claim for each in wanted if held.get(each.claim.job_id) == (each.claim.token, True)]


def admit(tx: Transaction, held: Sequence[Wanted], touched: Collection[str] = ()) -> Admission:
    """Decide about claims, and let others go on where there is room. `touched`: keys that may have room now."""
    keys = slots.lock(tx, [demand for each in held for demand in each.demands], touched)
    if not keys:
        return Admission({}, [], False)
    ids = sorted(each.claim.job_id for each in held)
    asked, lines = slots.reservations(tx, ids), parking.still_parked(tx, ids)
    standings = slots.standing(tx, keys)
    promised = asked()
    admitted, refused = decide(held, standings, promised)
    parking.leave(tx, lines())
    if promised:
        slots.use_up(tx, sorted(promised))
    slots.give(tx, admitted)
    parking.park(tx, refused)
    counting = {
        claim.job_id: claim._replace(slots=tuple(demand.key for demand in demands))
        for claim, demands in admitted
    }
    lanes = parking.let_go(tx, keys, standings)
    return Admission(counting, lanes, any(key.has_news for key in standings.values()))


def sweep(tx: Transaction, keys: Collection[str]) -> Admission:
    """Let those go who wait for these keys, as far as there is room."""
    tx.stage("limits_sweep")
    # A line may have grown from nothing: by its statistics, all of it would be sorted.
    tx.dialect.go_by_index(tx)
    return admit(tx, (), keys)


def decide(
    wanted: Sequence[Wanted], standings: dict[str, Standing], promised: dict[str, Reservation]
) -> tuple[list[Wanted], list[Refusal]]:
    """Who may run, most urgent first; the others with the key that has no room for them. Pure.

    A slot that is reserved counts, but not against the job that it is reserved for. Who has not waited yet must not
    pass those who have.
    """
    admitted: list[Wanted] = []
    refused: list[Refusal] = []
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
        for key in own.valid & standings.keys():
            standings[key].used -= 1
        full = [demand.key for demand in each.demands if not _has_room(standings[demand.key], own)]
        if full:
            refused.append(Refusal(*each, full[0], places[each.claim.job_id]))
            standings[full[0]].line_up()
            continue
        admitted.append(each)
        for demand in each.demands:
            standings[demand.key].used += 1
    return admitted, refused


def _has_room(key: Standing, own: Reservation) -> bool:
    return key.free > 0 and (bool(own.keys) or not key.waited_for)
