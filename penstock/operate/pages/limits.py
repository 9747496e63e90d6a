"""Reads limits for a page: keys, how many each allows and has, and how many jobs wait for it."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.database.transaction import Transaction
from penstock.queue.limits.slots import NEVER, USED

PAGE = 50
MOST_COUNTED = 1000
MOST_JOBS = 50

KEYS = f"""
SELECT l.limit_key, l.most, {USED}, (SELECT MIN(p.parked_at) FROM {{parked}} p WHERE p.limit_key = l.limit_key)
FROM {{limits}} l WHERE l.limit_key > :after ORDER BY l.limit_key LIMIT :limit
"""
LENGTH = "SELECT COUNT(*) FROM (SELECT 1 FROM {parked} WHERE limit_key = :key LIMIT :limit) waiting"
HOLDERS = """
SELECT s.job_id, j.task, s.until, s.token FROM {slots} s JOIN {jobs} j ON j.id = s.job_id
WHERE s.limit_key = :key ORDER BY s.until, s.job_id LIMIT :limit
"""
WAITING = """
SELECT job_id, task, queue, parked_at FROM {parked} WHERE limit_key = :key ORDER BY tier, place LIMIT :limit
"""


@dataclass(frozen=True, slots=True)
class LimitRow:
    """A key of a limit. `waiting` is counted up to 1,000; `oldest_at`: since when the first of them waits."""

    key: str
    most: int
    used: int
    waiting: int
    oldest_at: int | None


@dataclass(frozen=True, slots=True)
class SlotRow:
    """A job that counts against a limit: until an instant, or as long as it runs."""

    job_id: str
    task: str
    until_at: int | None
    reserved: bool
    """True if the job was released from the waiting line and has not begun."""


@dataclass(frozen=True, slots=True)
class ParkedRow:
    """A job that waits for a limit."""

    job_id: str
    task: str
    queue: str
    parked_at: int


def limit_keys(tx: Transaction, after: str = "", limit: int = PAGE) -> list[LimitRow]:
    """Keys of limits in their order, after a given key."""
    rows = tx.rows(KEYS, after=after, limit=limit)
    return [
        LimitRow(str(key), int(most), int(used), 0 if oldest is None else _length(tx, key), oldest)
        for key, most, used, oldest in rows
    ]


def _length(tx: Transaction, key: str) -> int:
    row = tx.row(LENGTH, key=key, limit=MOST_COUNTED)
    return int(row[0]) if row else 0


def of_key(tx: Transaction, key: str) -> tuple[list[SlotRow], list[ParkedRow]]:
    """The jobs that count against a key, and those that wait for it."""
    held = [
        SlotRow(str(id), task, None if until == NEVER else until, token == 0)
        for id, task, until, token in tx.rows(HOLDERS, key=key, limit=MOST_JOBS)
    ]
    waiting = [
        ParkedRow(str(id), task, queue, at)
        for id, task, queue, at in tx.rows(WAITING, key=key, limit=MOST_JOBS)
    ]
    return held, waiting
