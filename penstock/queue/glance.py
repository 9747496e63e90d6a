"""A glance: the sign of life of a process that rests, and whether there is anything at all to do, in one statement.

Only for a database that tells of what is new: there it is enough to ask now and then. It decides nothing. What it
finds is left to those who do such things anyway, and they ask again for themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.database.transaction import Transaction

# `pg_notify` sends us what the ear must hear for the rest to go on, in this same transaction. Only who holds something
# is waited for to the second when it falls silent: others who rest are heard of as rarely as we are.
GLANCE = """
WITH alive AS (UPDATE {processes} SET heartbeat_at = {now} WHERE id = CAST(:me AS uuid) RETURNING id)
SELECT EXISTS (SELECT 1 FROM alive), CAST(pg_notify(:channel, :proof) AS text),
  EXISTS (SELECT 1 FROM {availabilities} WHERE task = ANY(CAST(:tasks AS text[]))
    AND (CAST(:queues AS text[]) IS NULL OR queue = ANY(CAST(:queues AS text[])))),
  LEAST((SELECT MIN(due_at) FROM {scheduled}), (SELECT MIN(due_at) FROM {timers} WHERE kind <> :left)) - {now},
  EXISTS (SELECT 1 FROM {parked}) OR EXISTS (SELECT 1 FROM {advancements}),
  EXISTS (SELECT 1 FROM {claims} c WHERE NOT EXISTS (SELECT 1 FROM {processes} p WHERE p.id = c.process_id)),
  (SELECT MIN(heartbeat_at + COALESCE(reap_after, :silence)) FROM {processes} WHERE id <> CAST(:me AS uuid)
    AND id IN (SELECT process_id FROM {claims})) - {now},
  (SELECT MIN(heartbeat_at + COALESCE(reap_after, :silence)) FROM {processes} WHERE id <> CAST(:me AS uuid)) - {now},
  EXISTS (SELECT 1 FROM {claims} WHERE process_id = CAST(:me AS uuid) AND claimed_at < {now} - :silence),
  EXISTS (SELECT 1 FROM {limits}), EXISTS (SELECT 1 FROM {runs} WHERE ended_at IS NULL)
"""


class Wanted(NamedTuple):
    """What a process would have to do something about."""

    tasks: Sequence[str]
    queues: Sequence[str] | None
    """None: all."""
    left: str
    """The kind of timers that is left to others."""
    silence: float
    """Who is silent for so long is dead, unless it has said otherwise."""


class Seen(NamedTuple):
    """What there is. Times are in seconds from now; None: there is no such thing."""

    alive: bool
    """False: we were taken for dead, and must register anew."""
    ready: bool
    """Something can be claimed."""
    due: float | None
    """The first job or timer that waits for its time."""
    kept: bool
    """Something waits for a limit, or a large expand is under way."""
    orphaned: bool
    """Something is held by nobody."""
    holder_silent: float | None
    """One who holds something will have been silent for too long."""
    silent: float | None
    """Anybody will have been."""
    unknown: bool
    """We hold something, although whoever rests knows of nothing."""
    limited: bool
    """Limits are in use, or were a while ago."""
    runs: bool
    """There are runs that have not ended."""


def glance(tx: Transaction, me: str, wanted: Wanted, channel: str, proof: str) -> Seen:
    """Renew the row of this process, have ourselves told the proof, and look at everything."""
    tx.stage("glance")
    row = tx.row(
        GLANCE,
        me=me,
        channel=channel,
        proof=proof,
        tasks=list(wanted.tasks),
        queues=None if wanted.queues is None else list(wanted.queues),
        left=wanted.left,
        silence=int(wanted.silence * 1_000_000),
    )
    assert row is not None
    alive, _, ready, due, kept, orphaned, holder, silent, unknown, limited, runs = row
    return Seen(
        bool(alive),
        bool(ready),
        _seconds(due),
        bool(kept),
        bool(orphaned),
        _seconds(holder),
        _seconds(silent),
        bool(unknown),
        bool(limited),
        bool(runs),
    )


def _seconds(micros: object) -> float | None:
    return None if micros is None else int(str(micros)) / 1_000_000
