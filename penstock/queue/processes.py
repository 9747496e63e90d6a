"""Process rows: a live process is a row with a random id and a fresh heartbeat.

Its claims are valid as long as the row exists.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.database.transaction import Transaction
from penstock.errors import SerializationError
from penstock.queue import release, states
from penstock.queue.jobs import jobs_of_receipt
from penstock.values.status import OutcomeKind
from penstock.values.typed_json.json_text import loads

BEAT = "UPDATE {processes} SET heartbeat_at = {now} WHERE id = :id"
DESCRIBE = "UPDATE {processes} SET details = :details WHERE id = :id"
CANCELLATIONS = """
SELECT c.job_id, s.generation FROM {cancellations} c
LEFT JOIN {job_states} s ON s.job_id = c.job_id AND s.process_id = c.process_id AND s.cancel_requested
WHERE c.process_id = :id
"""
FORGET_CANCELLATIONS = "DELETE FROM {cancellations} WHERE process_id = :id AND job_id {among:jobs:uuid}"
HELD_LONG = "SELECT token FROM {claims} WHERE process_id = :id AND claimed_at < {now} - :age"
ON_HOST = "SELECT id, pid, supervisor_id, details FROM {processes} WHERE host = :host AND id <> :me"
LONGEST_TERMS = 10
"""A lease that ends more than this many terms from now is not valid: any process may take it."""
TAKE_LEASE = """
UPDATE {leases} SET holder = :holder, expires_at = {now} + :term
WHERE name = :name AND (holder = :holder OR expires_at < {now} OR expires_at > {now} + :longest)
"""


def read_details(details: object) -> dict[str, object]:
    """The details that a process wrote into its row; empty if they cannot be read."""
    try:
        found = loads(str(details))
    except SerializationError:
        return {}
    return found if isinstance(found, dict) else {}


class RegisteredProcess(NamedTuple):
    """A process as its row describes it."""

    id: str
    pid: int
    supervisor: str | None
    details: object


def register(
    tx: Transaction,
    id: str,
    host: str,
    pid: int,
    role: str,
    supervisor_id: str | None,
    details: str,
    reap_after: float | None = None,
) -> None:
    """Write the row; may be repeated after a lost answer. `reap_after`: the silence after which it may be reaped."""
    tx.stage("register")
    row = {
        "id": id,
        "host": host,
        "pid": pid,
        "role": role,
        "supervisor_id": supervisor_id,
        "details": details,
        "reap_after": None if reap_after is None else int(reap_after * 1_000_000),
    }
    tx.insert("processes", [row], ignore_duplicates=True, started_at="{now}", heartbeat_at="{now}")


def describe(tx: Transaction, id: str, details: str) -> None:
    """Replace what the row of a process says about it."""
    tx.stage("register")
    tx.run(DESCRIBE, id=id, details=details)


def beat(tx: Transaction, id: str) -> bool:
    """Renew the lease of everything this process holds. False: we were declared dead, and hold nothing."""
    tx.stage("beat")
    return tx.count(BEAT, id=id) > 0


def held_long(tx: Transaction, id: str, seconds: float) -> set[int]:
    """The tokens of claims that this process has held for this many seconds, according to the database."""
    return {int(token) for (token,) in tx.rows(HELD_LONG, id=id, age=int(seconds * 1_000_000))}


def on_host(tx: Transaction, host: str, me: str) -> list[RegisteredProcess]:
    """All other processes of a host."""
    return [
        RegisteredProcess(
            str(id), int(pid), str(supervisor) if supervisor is not None else None, read_details(details)
        )
        for id, pid, supervisor, details in tx.rows(ON_HOST, host=host, me=me)
    ]


def cancellations(tx: Transaction, id: str) -> tuple[set[tuple[str, int]], list[str]]:
    """Claims of this process whose cancellation was requested, and jobs that were such claims and are over.

    A request stays until its job is over: the claim may still be on its way to its handler.
    """
    rows = [(str(job_id), generation) for job_id, generation in tx.rows(CANCELLATIONS, id=id)]
    wanted = {(job_id, int(generation)) for job_id, generation in rows if generation is not None}
    return wanted, [job_id for job_id, generation in rows if generation is None]


def forget_cancellations(tx: Transaction, id: str, jobs: Sequence[str]) -> None:
    tx.stage("forget_cancellations")
    tx.run(FORGET_CANCELLATIONS, id=id, jobs=jobs)


def take_lease(tx: Transaction, name: str, holder: str, seconds: float) -> bool:
    """Take the lease of a chore for the next seconds.

    It only saves work: nothing breaks if two processes do the chore.
    """
    tx.stage("lease")
    term = int(seconds * 1_000_000)
    tx.insert("leases", [{"name": name, "holder": holder, "expires_at": 0}], ignore_duplicates=True)
    return tx.count(TAKE_LEASE, name=name, holder=holder, term=term, longest=LONGEST_TERMS * term) > 0


# A supervisor's children in the database: their rows, and what happens to their work when they are gone.
#
# A child is known by the random mark it got when it was forked, which stays the same when it registers again; a pid
# may be used again. The operating system has said that the child is dead before anything here is called: that
# is the proof on which its claims are ended. Invariants 10 and 11.

CHILDREN = """
SELECT id, pid, details, heartbeat_at, {now}, EXISTS (SELECT 1 FROM {claims} c WHERE c.process_id = p.id)
FROM {processes} p WHERE supervisor_id = :supervisor
"""
REMOVE = "DELETE FROM {processes} WHERE id {among:ids:uuid}"
FORGET_CHILD_CANCELLATIONS = "DELETE FROM {cancellations} WHERE process_id {among:ids:uuid}"
CLAIMS = "SELECT token, job_ids FROM {claims} WHERE process_id {among:ids:uuid} ORDER BY token {lock}"


@dataclass(frozen=True, slots=True)
class ChildRow:
    """A child's process row, the seconds since its last heartbeat, and whether it holds any jobs.

    `now` is the time of the read, by the database's clock.
    """

    id: str
    pid: int
    child_key: str
    silence: float
    holds: bool
    now: int


def children(tx: Transaction, supervisor: str) -> list[ChildRow]:
    """All process rows of a supervisor's children."""
    tx.stage("children")
    rows = tx.rows(CHILDREN, supervisor=supervisor)
    return [
        ChildRow(str(id), pid, _child_key(details), (now - beat) / 1_000_000, bool(holds), int(now))
        for id, pid, details, beat, now, holds in rows
    ]


def rows_of_child(tx: Transaction, supervisor: str, child_key: str) -> list[str]:
    """The ids of a child's process rows."""
    return [child.id for child in children(tx, supervisor) if child.child_key == child_key]


def reap_child(tx: Transaction, supervisor: str, child_key: str) -> list[str]:
    """Remove the rows of a child that is dead: from now on its claims are orphans. The ids removed."""
    ids = rows_of_child(tx, supervisor, child_key)
    tx.stage("bury")
    if ids:
        tx.run(REMOVE, ids=ids)
    return ids


def leave(tx: Transaction, processes: Sequence[str], left: Collection[str] = ()) -> list[str]:
    """Remove processes that stop on purpose; what they still hold is given back and spends nothing. The jobs.

    `left`: jobs that the database does not give back. They stay under their receipts, for the reaper.
    """
    tx.stage("leave")
    if not processes:
        return []
    tx.run(REMOVE, ids=processes)
    tx.run(FORGET_CHILD_CANCELLATIONS, ids=processes)
    return give_back(tx, [held for held in held_by(tx, processes) if held[0] not in left])


def held_by(tx: Transaction, processes: Sequence[str]) -> list[tuple[str, int]]:
    """The jobs under the receipts of these processes, each with its token. Some may have ended meanwhile."""
    claims = tx.rows(CLAIMS, ids=processes)
    return [(job_id, int(token)) for token, job_ids in claims for job_id in jobs_of_receipt(job_ids) or ()]


def give_back(tx: Transaction, held: Sequence[tuple[str, int]]) -> list[str]:
    """Give back these (job, token) where the token still stands, each with an attempt that was released. The jobs."""
    tokens = set(held)
    running = states.lock_running(tx, sorted({job_id for job_id, _ in held}))
    back = [job for job in running if (job.job_id, job.token) in tokens and not job.cancel_requested]
    if not back:
        return []
    states.record(tx, [job.execution(OutcomeKind.RELEASED) for job in back], again=True)
    # The receipts stay for the reaper: a job that is to be cancelled is still under one of them.
    return release.release(tx, [(job.job_id, job.token) for job in back]).given_back


def _child_key(details: str) -> str:
    return str(read_details(details).get("birth", ""))
