"""Parking: jobs that wait for a limit. They are available, but in no queue, so that no worker claims them in vain.

A parked job stands under one key, the first that refused it, in the order in which it would have been taken. When
that key has a slot to spare, the next is let go: it gets a place in the queue and a reservation, by which it passes
those who have not waited. If another of its limits is full at that moment, it goes over to the line of that one
without passing through the queue, and the one behind it has its turn.

Letting go decides nothing: the claim does. Whatever is not let go in time is found by the sweep (`upkeep`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from penstock.database.dialect import Ahead, Row
from penstock.database.transaction import Transaction
from penstock.queue import states
from penstock.queue.jobs import Claim
from penstock.queue.limits import slots
from penstock.queue.limits.slots import LimitUsage
from penstock.values.limits import Demand
from penstock.values.status import JobStatus
from penstock.values.typed_json.json_text import dumps, loads

MOST_EXAMINED = 500
"""How many jobs of one key one transaction examines, if they all have to move to other lines, or were cancelled."""

PARKED = "SELECT limit_key, tier, place, job_id FROM {parked} WHERE job_id {among:ids:uuid}"
NEXT = """
SELECT tier, place, job_id, queue, task, demands FROM {parked} {by_key}
WHERE limit_key = :key ORDER BY tier, place, job_id LIMIT :limit {lock_skip}
"""
LEAVE = """
DELETE FROM {parked} WHERE limit_key = :key AND tier = :tier
  AND place >= :first AND place <= :last AND job_id {among:ids:uuid}
"""
LINES = """
SELECT p.limit_key, p.task, l.most FROM (SELECT DISTINCT limit_key, task FROM {parked}) p
LEFT JOIN {limits} l ON l.limit_key = p.limit_key ORDER BY p.limit_key, p.task
"""
OF_TASK = """
SELECT tier, place, job_id, queue, task, demands FROM {parked} {by_key}
WHERE limit_key = :key AND task = :task ORDER BY tier, place, job_id LIMIT :limit {lock_skip}
"""
ALIVE = "SELECT job_id FROM {job_states} WHERE job_id {among:ids:uuid} AND status = 'available'"

Lane = tuple[str, int]


class Parked(NamedTuple):
    tier: int
    place: int
    job_id: str
    queue: str
    task: str
    demands: str


class Refused(NamedTuple):
    """A claim that may not run now: the key that has no room for it, and its place in the line of that key."""

    claim: Claim
    demands: tuple[Demand, ...]
    key: str
    place: int


def still_parked(tx: Transaction, ids: Sequence[str]) -> Ahead:
    """The lines in which these jobs stand although they were claimed; asked now, answered with what is asked next.

    Seldom are there any: of one that was cancelled and retried, or a step of a resumed run.
    """
    return tx.send_ahead(PARKED, ids=ids) if ids else list


def leave(tx: Transaction, lines: Sequence[Row]) -> None:
    """Remove jobs from their waiting lines."""
    found: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for key, tier, place, job_id in lines:
        found[key].append((tier, place, str(job_id)))
    for key, places in sorted(found.items()):
        _leave(tx, key, places)


def park(tx: Transaction, refusals: Sequence[Refused]) -> None:
    """Put these jobs into their waiting lines. Their claims end; no handler has run, so they are no attempts."""
    if not refusals:
        return
    states.park(tx, [refusal.claim.job_id for refusal in refusals])
    rows = [
        {
            "limit_key": key,
            "tier": claim.tier,
            "place": place,
            "job_id": claim.job_id,
            "queue": claim.queue,
            "task": claim.task,
            "demands": dumps([[demand.key, demand.most] for demand in demands]),
        }
        for claim, demands, key, place in refusals
    ]
    tx.insert("parked", rows, ignore_duplicates=True, parked_at="{now}")


def release(tx: Transaction, keys: Sequence[str], usages: dict[str, LimitUsage]) -> list[Lane]:
    """Release as many jobs as each of these locked keys has free slots; returns the lanes they are in now."""
    lanes: list[Lane] = []
    for key in keys:
        here, left = usages[key], MOST_EXAMINED
        limit = here.free
        while here.waited_for and here.free and left > 0:
            rows = [Parked(*row) for row in tx.rows(NEXT, key=key, limit=limit)]
            here.waited_for = len(rows) == limit
            left -= len(rows)
            if rows:
                lanes += _let_go(tx, key, rows, usages)
            # Some could not be released; many behind them may be in the same position.
            limit = max(here.free, left)
        # A job behind all of these may be free to run.
        here.needs_sweep = here.needs_sweep or (here.waited_for and here.free > 0)
    return lanes


class Line(NamedTuple):
    """Jobs of a task that wait for a key, and how many that allows as far as is known."""

    key: str
    task: str
    most: int


def lines(tx: Transaction) -> list[Line]:
    """The waiting lines, by key and task. The query reads every job that waits."""
    return [Line(key, task, int(most or 0)) for key, task, most in tx.rows(LINES)]


def widen(tx: Transaction, key: str, most: int) -> None:
    """Raise the limit of a key to this number, if it is lower."""
    tx.stage("limits_widen")
    if slots.lock(tx, (), [key]):
        tx.run(slots.WIDEN, key=key, most=most)


def free(tx: Transaction, key: str, task: str) -> tuple[list[Lane], bool]:
    """Release the jobs of a key that is no longer a limit of their task, in order, whatever room there is.

    The lanes they are in now, and whether there are more of them.
    """
    tx.stage("limits_free")
    slots.lock(tx, (), [key])
    rows = [Parked(*row) for row in tx.rows(OF_TASK, key=key, task=task, limit=MOST_EXAMINED)]
    if not rows:
        return [], False
    alive = {str(row[0]) for row in tx.rows(ALIVE, ids=[row.job_id for row in rows])}
    going = [row for row in rows if row.job_id in alive]
    _leave(tx, key, [(row.tier, row.place, row.job_id) for row in rows])
    return _go(tx, key, going), len(rows) == MOST_EXAMINED


def _let_go(tx: Transaction, key: str, rows: Sequence[Parked], usages: dict[str, LimitUsage]) -> list[Lane]:
    """Release these jobs, or move them to the line of another full key. Ended jobs are removed; the others stay."""
    alive = {str(row[0]) for row in tx.rows(ALIVE, ids=[row.job_id for row in rows])}
    demands = {row.job_id: _read(row.demands) for row in rows if row.job_id in alive}
    _look_up(tx, demands.values(), usages)
    here, going, moving, staying = usages[key], [], [], set()
    for row in [row for row in rows if row.job_id in alive]:
        if not here.free:
            here.waited_for = True
            staying.add(row.job_id)
            continue
        full = [name for name in demands[row.job_id] if name != key and not usages[name].free]
        if full:
            moving.append((full[0], row))
            usages[full[0]].line_up(came_over=True)
            continue
        going.append(row)
        for name in {key, *demands[row.job_id]}:
            usages[name].used += 1
    _leave(tx, key, [(row.tier, row.place, row.job_id) for row in rows if row.job_id not in staying])
    tx.insert("parked", [{"limit_key": to} | row._asdict() for to, row in moving], parked_at="{now}")
    return _go(tx, key, going)


def _go(tx: Transaction, key: str, going: Sequence[Parked]) -> list[Lane]:
    """Put jobs into the queue, each with a reservation by which it keeps its place in another line."""
    slots.reserve(tx, key, [(row.job_id, row.place) for row in going])
    places = [{"job_id": row.job_id, "queue": row.queue, "tier": row.tier, "task": row.task} for row in going]
    states.put_in_place(tx, JobStatus.AVAILABLE, places)
    return [(row.queue, row.tier) for row in going]


def _look_up(tx: Transaction, demands: Iterable[Mapping[str, int]], usages: dict[str, LimitUsage]) -> None:
    """The usage of the other keys that these jobs need.

    They are not locked: this is a hint that saves useless claims.
    """
    most = {name: n for each in demands for name, n in each.items()}
    unknown = sorted(most.keys() - usages.keys())
    found = slots.usage(tx, unknown)
    for name in unknown:
        usages[name] = found.get(name) or LimitUsage(most[name])


def _leave(tx: Transaction, key: str, places: Sequence[tuple[int, int, str]]) -> None:
    tiers: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for tier, place, job_id in places:
        tiers[tier].append((place, job_id))
    for tier, found in sorted(tiers.items()):
        first, last = min(found)[0], max(found)[0]
        ids = sorted(job_id for _, job_id in found)
        tx.run(LEAVE, key=key, tier=tier, first=first, last=last, ids=ids)


def _read(demands: str) -> dict[str, int]:
    found = loads(demands)
    return {str(key): int(most) for key, most in found} if isinstance(found, list) else {}
