"""Slots: what counts against a limit. Nothing is counted up or down; slots are rows, and a count is a count of rows.

A slot names the claim it belongs to, by job and token. One of a concurrency limit has no end, and counts exactly as
long as the job is held under that very token: whatever ends the claim, ends it. One of a rate counts until its time is
over. One without a token is a reservation, for a job that was let go and is on its way through the queue.

The row of a key in `limits` is the lock under which slots of that key are given; on a cluster with several writers,
which does not replicate locks, it is written as well. A transaction locks keys in one order, after the states of jobs
and everything else; once it holds them, it waits for no other lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from penstock.database.dialect import Row
from penstock.database.transaction import Transaction
from penstock.queue.jobs import Attempt, Claim
from penstock.values.limits import Demand

NEVER = 4611686018427387904
"""The stored end of a slot that has no end: a time far in the future."""
RESERVATION = 10_000_000
"""Microseconds for which the slot of a job that left the waiting line is reserved."""
RESERVED = 0
"""In place of a token."""

KNOWN = "SELECT limit_key FROM {limits} WHERE limit_key {among:keys:text}"
LOCK = """
SELECT limit_key, most FROM {limits} {by_key} WHERE limit_key {among:keys:text} ORDER BY limit_key {lock}
"""
CERTIFY = """
UPDATE {limits} {by_key} SET lock_count = COALESCE(lock_count, 0) + 1 WHERE limit_key {among:keys:text}
"""
CHANGE = "UPDATE {limits} {by_key} SET most = :most WHERE limit_key = :key"
WIDEN = "UPDATE {limits} {by_key} SET most = :most WHERE limit_key = :key AND most < :most"
USED = f"""
(SELECT COUNT(*) FROM {{slots}} s WHERE s.limit_key = l.limit_key AND s.until > {{now}} AND s.until < {NEVER})
+ (SELECT COUNT(*) FROM {{slots}} s WHERE s.limit_key = l.limit_key AND s.until = {NEVER}
   AND (SELECT j.token FROM {{job_states}} j WHERE j.job_id = s.job_id) = s.token)
"""
WAITED_FOR = "EXISTS (SELECT 1 FROM {parked} p WHERE p.limit_key = l.limit_key)"
USAGE = f"""
SELECT l.limit_key, l.most, {USED}, {WAITED_FOR} FROM {{limits}} l WHERE l.limit_key {{among:keys:text}}
"""
UNTIL = f"CASE WHEN :wait = 0 THEN {NEVER} ELSE {{now}} + :wait END"
RESERVATIONS = """
SELECT job_id, limit_key, place, until > {now} FROM {slots} {by_key} WHERE job_id {among:ids:uuid} AND token = 0
"""
USE_UP = "DELETE FROM {slots} WHERE job_id {among:ids:uuid} AND token = 0"
VACATE = f"DELETE FROM {{slots}} WHERE job_id {{among:ids:uuid}} AND until = {NEVER}"
TAKE_BACK = "DELETE FROM {slots} WHERE job_id {among:ids:uuid} AND token = :token"


@dataclass(slots=True)
class LimitUsage:
    """How a key stands, and what becomes of it while slots are given."""

    most: int
    used: int = 0
    waited_for: bool = False
    needs_sweep: bool = False
    """True if its waiting line has begun, or a job came over from another line: the sweep should look again."""

    @property
    def free(self) -> int:
        return max(0, self.most - self.used)

    def line_up(self, *, came_over: bool = False) -> None:
        """Count one more job that waits for this key."""
        self.needs_sweep = self.needs_sweep or came_over or not self.waited_for
        self.waited_for = True


@dataclass(frozen=True, slots=True)
class Reservation:
    """The slots reserved for a job that left the waiting line: by which keys, which still count, and its position."""

    keys: frozenset[str]
    valid: frozenset[str]
    place: int


def lock(tx: Transaction, demands: Iterable[Demand], others: Iterable[str] = ()) -> list[str]:
    """Lock these keys, in one order; those demanded are made if they are missing. The keys that are locked."""
    wanted = {demand.key: demand.most for demand in demands}
    keys = sorted({*wanted, *others})
    missing = wanted.keys() - {row[0] for row in tx.rows(KNOWN, keys=sorted(wanted))} if wanted else set()
    while True:
        rows = [{"limit_key": key, "most": wanted[key]} for key in sorted(missing)]
        tx.insert("limits", rows, ignore_duplicates=True)
        locked: dict[str, int] = dict(tx.rows(LOCK, keys=keys))
        # A row that was not in use may have been removed since it was read.
        missing = wanted.keys() - locked.keys()
        if not missing:
            break
    for key in sorted(key for key, most in wanted.items() if locked[key] != most):
        tx.run(CHANGE, key=key, most=wanted[key])
    if locked:
        tx.certify(CERTIFY, keys=sorted(locked))
    return sorted(locked)


def usage(tx: Transaction, keys: Sequence[str]) -> dict[str, LimitUsage]:
    """The usage of these keys: exact for keys that are locked, a hint for others."""
    rows = tx.rows(USAGE, keys=keys) if keys else []
    return {key: LimitUsage(most, int(used), bool(waited_for)) for key, most, used, waited_for in rows}


def reservations(tx: Transaction, ids: Sequence[str]) -> Callable[[], dict[str, Reservation]]:
    """Ask for the reservations of these jobs. The query is sent ahead; its answer arrives with the next query's."""
    rows = tx.send_ahead(RESERVATIONS, ids=ids) if ids else list
    return lambda: _by_job(rows())


def _by_job(found_rows: Iterable[Row]) -> dict[str, Reservation]:
    found: dict[str, list[tuple[str, int, bool]]] = {}
    for job_id, key, place, valid in found_rows:
        found.setdefault(str(job_id), []).append((key, place, bool(valid)))
    return {
        job_id: Reservation(
            frozenset(key for key, _, _ in rows),
            frozenset(key for key, _, valid in rows if valid),
            min(place for _, place, _ in rows),
        )
        for job_id, rows in found.items()
    }


def use_up(tx: Transaction, ids: Sequence[str]) -> None:
    """Remove the reservations of these jobs."""
    tx.run(USE_UP, ids=ids)


def give(tx: Transaction, claims: Iterable[tuple[Claim, Sequence[Demand]]]) -> None:
    """Write slots for these claims: they count from now on."""
    rows = [
        {
            "job_id": claim.job_id,
            "limit_key": demand.key,
            "token": claim.token,
            "wait": demand.micros,
            "place": claim.seq,
        }
        for claim, demands in claims
        for demand in demands
    ]
    tx.insert("slots", rows, until=UNTIL)


def reserve(tx: Transaction, key: str, jobs: Sequence[tuple[str, int]]) -> None:
    """Reserve a slot of this key for each of these (job, place), for a while."""
    rows = [
        {"job_id": job_id, "limit_key": key, "token": RESERVED, "place": place, "wait": RESERVATION}
        for job_id, place in jobs
    ]
    tx.insert("slots", rows, ignore_duplicates=True, until="{now} + :wait")


def free_slot(tx: Transaction, ids: Sequence[str]) -> None:
    """Remove the slots of jobs whose claims this very transaction ends."""
    if ids:
        tx.run(VACATE, ids=ids)


def end(tx: Transaction, attempts: Iterable[Attempt]) -> None:
    """The same for settled attempts. One that never began was no start either, and gives back everything."""
    counted = [attempt for attempt in attempts if attempt.claim.slots]
    free_slot(tx, sorted(attempt.claim.job_id for attempt in counted if attempt.began))
    unbegun: dict[int, list[str]] = {}
    for attempt in counted:
        if not attempt.began:
            unbegun.setdefault(attempt.claim.token, []).append(attempt.claim.job_id)
    for token, ids in sorted(unbegun.items()):
        tx.run(TAKE_BACK, token=token, ids=sorted(ids))
