"""The idle check: one statement that renews the row of an idle process and asks whether there is anything to do.

Only for a database that sends wake-ups: there it is enough to ask now and then. The check decides nothing. The pump
and the housekeeping do what it finds, and ask again for themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.database.transaction import Transaction
from penstock.queue.reclaim import DEAD_AT
from penstock.queue.rules.queue_controls import REVISION

SEND_PROOF = "SELECT pg_notify(:channel, :proof)"
"""Sends the proof alone, for a listener that has just connected."""
# `pg_notify` sends, in this same transaction, the proof that our listener must hear for idle mode to go on. The check
# asks separately when a process with claims falls silent: other idle processes write heartbeats as rarely as this one.
IDLE_CHECK = f"""
WITH alive AS (UPDATE {{processes}} SET heartbeat_at = {{now}} WHERE id = CAST(:me AS uuid) RETURNING id)
SELECT EXISTS (SELECT 1 FROM alive), CAST(pg_notify(:channel, :proof) AS text),
  EXISTS (SELECT 1 FROM {{availabilities}} WHERE task = ANY(CAST(:tasks AS text[]))
    AND (CAST(:queues AS text[]) IS NULL OR queue = ANY(CAST(:queues AS text[])))),
  LEAST((SELECT MIN(due_at) FROM {{scheduled}}), (SELECT MIN(due_at) FROM {{timers}} WHERE kind <> :left),
    (SELECT MIN(due_at) FROM {{schedules}})),
  EXISTS (SELECT 1 FROM {{parked}}) OR EXISTS (SELECT 1 FROM {{advancements}}),
  EXISTS (SELECT 1 FROM {{claims}} c WHERE NOT EXISTS (SELECT 1 FROM {{processes}} p WHERE p.id = c.process_id)),
  (SELECT MIN({DEAD_AT}) FROM {{processes}} WHERE id <> CAST(:me AS uuid)
    AND id IN (SELECT process_id FROM {{claims}})),
  (SELECT MIN({DEAD_AT}) FROM {{processes}} WHERE id <> CAST(:me AS uuid)),
  EXISTS (SELECT 1 FROM {{claims}} WHERE process_id = CAST(:me AS uuid) AND claimed_at < {{now}} - :silence),
  EXISTS (SELECT 1 FROM {{limits}}), EXISTS (SELECT 1 FROM {{runs}} WHERE ended_at IS NULL), {REVISION},
  {{now}}
"""


class IdleQuery(NamedTuple):
    """The work that an idle process must look for: its tasks and queues, timers, silent processes."""

    tasks: Sequence[str]
    queues: Sequence[str] | None
    """The queues of the process; None: all."""
    left: str
    """The kind of timers that is left to others."""
    silence: float
    """Seconds without a heartbeat after which a process is dead, unless its row states another time."""


class IdleReport(NamedTuple):
    """The answer to an idle check. Times are in seconds from now; None: there is no such thing."""

    alive: bool
    """False: this process was declared dead, and must register again."""
    ready: bool
    """True if a job can be claimed."""
    due: float | None
    """The first job or timer that waits for its time."""
    kept: bool
    """True if a job waits for a limit, or a large expand is under way."""
    orphaned: bool
    """True if there are claims whose process has no row."""
    holder_silent: float | None
    """When the first other process that holds claims will have been silent for too long."""
    silent: float | None
    """When the first other process, with or without claims, will have been silent for too long."""
    unknown: bool
    """True if the database has old claims of this process, although an idle process knows of none."""
    limited: bool
    """True if limits are in use, or were a while ago."""
    runs: bool
    """True if there are runs that have not ended."""
    controls: int = 0
    """The revision of the controls of queues."""


def run_idle_check(tx: Transaction, me: str, wanted: IdleQuery, channel: str, proof: str) -> IdleReport:
    """Renew the row of this process, send the proof to our own listener, and read the report."""
    tx.stage("glance")
    row = tx.row(
        IDLE_CHECK,
        me=me,
        channel=channel,
        proof=proof,
        tasks=list(wanted.tasks),
        queues=None if wanted.queues is None else list(wanted.queues),
        left=wanted.left,
        silence=int(wanted.silence * 1_000_000),
    )
    assert row is not None
    alive, _, ready, due, kept, orphaned, holder, silent, unknown, limited, runs, controls, now = row
    return IdleReport(
        bool(alive),
        bool(ready),
        _until(due, now),
        bool(kept),
        bool(orphaned),
        _until(holder, now),
        _until(silent, now),
        bool(unknown),
        bool(limited),
        bool(runs),
        int(controls),
    )


def _until(moment: object, now: object) -> float | None:
    return None if moment is None else (int(str(moment)) - int(str(now))) / 1_000_000
