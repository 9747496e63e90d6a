"""Checks claimed jobs again whose options ask for it: an expired job ends, the arguments of a replaced job are read
again.

Jobs without such options cost nothing here. A job expires if no attempt of it has begun by its time; that time and the
time of the look are both the database's. It ends `cancelled`, with the reason `expired`, before a handler is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.database.transaction import Transaction
from penstock.queue import settle as queue_settle
from penstock.queue.jobs import Attempt, Claim, Follow
from penstock.queue.rules.unique_keys import REPLACEABLE
from penstock.queue.schedule import until
from penstock.values.outcome import Outcome
from penstock.values.status import OutcomeKind, Reason
from penstock.values.typed_json.json_text import loads

EXPIRES_AT, EXPIRES_IN = "expires_at", "expires_in"
"""The options of a job that expires: an instant, or microseconds after the enqueue."""
MARKS = (f'"{EXPIRES_AT}"', f'"{EXPIRES_IN}"', f'"{REPLACEABLE}"')
LOOK = """
SELECT j.id, j.payload, j.options, j.created_at, {now}, EXISTS (SELECT 1 FROM {executions} e WHERE e.job_id = j.id)
FROM {jobs} j WHERE j.id {among:ids:uuid}
"""
EXPIRED = Outcome(OutcomeKind.CANCELLED, reason=Reason.EXPIRED)


def concerns(claims: Sequence[Claim]) -> bool:
    """True if some of these claims have to be checked again."""
    return any(claim.options is not None and _is_marked(claim.options) for claim in claims)


def look(
    tx: Transaction, claims: Sequence[Claim], process: str | None, follow: Follow
) -> tuple[list[Claim], list[Claim]]:
    """Returns the claims that are to run, with their present arguments, and those that have expired, which are
    settled here."""
    tx.stage("second_look")
    marked = [claim.job_id for claim in claims if claim.options is not None and _is_marked(claim.options)]
    found = {str(row[0]): row for row in tx.rows(LOOK, ids=sorted(marked))}
    kept: list[Claim] = []
    expired: list[Claim] = []
    for claim in claims:
        row = found.get(claim.job_id)
        if row is None:
            kept.append(claim)
            continue
        _, payload, options, created, now, begun = row
        fresh = claim._replace(payload=payload, options=options)
        (expired if not begun and _is_over(options, created, now) else kept).append(fresh)
    if expired:
        attempts = [Attempt(claim, EXPIRED, began=False) for claim in expired]
        queue_settle.settle(tx, attempts, process, (), follow)
    return kept, expired


def _is_marked(options: str) -> bool:
    return any(mark in options for mark in MARKS)


def _is_over(options: str | None, created: int, now: int) -> bool:
    stored: Any = loads(options) if options else {}
    at = stored.get(EXPIRES_AT)
    if at is None and EXPIRES_IN in stored:
        at = int(created) + int(stored[EXPIRES_IN])
    return at is not None and until(int(at), int(now)) == 0.0
