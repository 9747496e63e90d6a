"""Timers: work for a run at a time, or as soon as possible but in a transaction of its own.

A timer is a row. A chore takes one that is due, does what it says in a transaction of its own, and removes it in
the same transaction: it is done once, and another process does it again if that transaction fails.
Leftover timers of ended runs are harmless: they find nothing to do.
"""

from __future__ import annotations

from penstock.database.transaction import Transaction
from penstock.queue.schedule import until
from penstock.values.ids import new_id

WAIT = "wait"
"""A step has waited for its signal long enough."""
DEADLINE = "deadline"
"""A run has taken too long."""
START = "start"
"""A delayed run is due."""
SIGNAL = "signal"
"""A signal was recorded and is to be delivered."""
ELEMENT_SIGNAL = "element_signal"
"""A signal for one element was recorded and is to be delivered."""
LOST = "lost"
"""Waits have lost: the first that they were for has been decided."""
REMIND = "remind"
"""A reminder is to be enqueued, because a step waits."""
REMIND_SIGNED = "remind_signed"
"""The same, with a token: a process that has no secret leaves it to one that has."""
SWEEP = "sweep"
"""A run starts nothing more: what has not started is to be skipped."""

INTERRUPT = "interrupt"
"""Steps of a run that still run are to be told to stop."""

CANCEL = "cancel"
"""A child of a cancelled run is to be cancelled."""
CHILDREN = "children"
"""The children of a cancelled run are to be found."""
GIVE_UP = "give_up"
"""The grace of a cancellation is over."""
REQUEUE = "requeue"
"""A resumed run's steps need a place in the queue."""
CHAIN = "chain"
"""A run that follows others is to be looked at."""

ADMIT = "admit"
"""Runs of a pipeline with `max_running` wait in line, and there may be room for the next."""

KINDS = frozenset(
    {
        WAIT, DEADLINE, START, SIGNAL, ELEMENT_SIGNAL, LOST, REMIND, REMIND_SIGNED, SWEEP, INTERRUPT, CANCEL, CHILDREN,
        GIVE_UP, REQUEUE, CHAIN, ADMIT,
    }
)  # fmt: skip
"""All kinds that this version knows."""
PLANNING = frozenset({WAIT, START, SIGNAL, ELEMENT_SIGNAL, LOST})
"""Without these their run does not go on."""

NEXT = """
SELECT due_at, id, kind, run_id, job_id, data FROM {timers} {by_key}
WHERE due_at <= {now} AND kind <> :left ORDER BY due_at, id LIMIT 1 {lock_skip}
"""
LATER = "SELECT {now} + :wait"
POSTPONE = "UPDATE {timers} SET due_at = :at WHERE due_at = :due AND id = :id"
REMOVE = "DELETE FROM {timers} WHERE due_at = :due AND id = :id"
LOOK = """
SELECT (SELECT MIN(due_at) FROM {timers} WHERE kind <> :left), {now}, EXISTS (SELECT 1 FROM {advancements})
"""
"""The earliest timer and whether there are large expands, in one statement: most of the time there is nothing to do."""


def set(  # noqa: A001 - one sets a timer
    tx: Transaction,
    kind: str,
    run: str,
    *,
    after: float = 0.0,
    at: int | None = None,
    job: str | None = None,
    data: str | None = None,
) -> None:
    """Have something done for a run: so many seconds from now, or at an instant of the database's clock."""
    row = {"id": new_id(), "kind": kind, "run_id": run, "job_id": job, "data": data}
    if at is None:
        tx.insert("timers", [row | {"wait": int(after * 1_000_000)}], due_at="{now} + :wait")
    else:
        tx.insert("timers", [row | {"due_at": at}])


def postpone(tx: Transaction, due: int, id: str, pause: float) -> int:
    """Make a timer due later, because its work cannot be done now; returns the new time."""
    tx.stage("put_off")
    row = tx.row(LATER, wait=int(pause * 1_000_000))
    assert row is not None
    tx.run(POSTPONE, due=due, id=id, at=row[0])
    return int(row[0])


def forget(tx: Transaction, due: int, id: str) -> None:
    """Remove a timer whose work will never be done, because its run is given up."""
    tx.stage("put_off")
    tx.run(REMOVE, due=due, id=id)


def look(tx: Transaction, left: str = "") -> tuple[float | None, bool]:
    """Seconds until a timer is due, None when there is none; and whether a large expand is under way.

    `left`: the kind that is left to others.
    """
    row = tx.row(LOOK, left=left)
    assert row is not None
    due, now, expands = row
    return until(due, now), bool(expands)
