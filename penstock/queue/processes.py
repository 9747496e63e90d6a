"""Process rows: a live process is a row with a random id and a fresh heartbeat. Its lease is its life."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.database.transaction import Transaction
from penstock.values.jsontext import loads

BEAT = "UPDATE {processes} SET heartbeat_at = {now} WHERE id = :id"
CANCELLATIONS = """
SELECT c.job_id, s.generation FROM {cancellations} c
LEFT JOIN {job_states} s ON s.job_id = c.job_id AND s.process_id = c.process_id AND s.cancel_requested
WHERE c.process_id = :id
"""
FORGET_CANCELLATIONS = "DELETE FROM {cancellations} WHERE process_id = :id AND job_id {among:jobs:uuid}"
HELD_LONG = "SELECT token FROM {claims} WHERE process_id = :id AND claimed_at < {now} - :age"
ON_HOST = "SELECT id, pid, supervisor_id, details FROM {processes} WHERE host = :host AND id <> :me"
TAKE_LEASE = """
UPDATE {leases} SET holder = :holder, expires_at = {now} + :term
WHERE name = :name AND (holder = :holder OR expires_at < {now})
"""


class Introduced(NamedTuple):
    """What a process has said about itself."""

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
    """Write the row; may be repeated after a lost answer. `reap_after`: who hears nothing for so long is to act."""
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


def beat(tx: Transaction, id: str) -> bool:
    """Renew the lease of everything this process holds. False: we were declared dead, and hold nothing."""
    tx.stage("beat")
    return tx.count(BEAT, id=id) > 0


def held_long(tx: Transaction, id: str, seconds: float) -> set[int]:
    """The tokens of claims that this process has had for so long, as the database has it."""
    return {int(token) for (token,) in tx.rows(HELD_LONG, id=id, age=int(seconds * 1_000_000))}


def on_host(tx: Transaction, host: str, me: str) -> list[Introduced]:
    """All other processes of a host."""
    return [
        Introduced(str(id), int(pid), str(supervisor) if supervisor is not None else None, loads(details))
        for id, pid, supervisor, details in tx.rows(ON_HOST, host=host, me=me)
    ]


def cancellations(tx: Transaction, id: str) -> tuple[set[tuple[str, int]], list[str]]:
    """Claims held here that somebody wants to end, and jobs that were such claims and are over.

    They stay until then: a claim may be on its way to its handler, which would not hear of it.
    """
    rows = [(str(job_id), generation) for job_id, generation in tx.rows(CANCELLATIONS, id=id)]
    wanted = {(job_id, int(generation)) for job_id, generation in rows if generation is not None}
    return wanted, [job_id for job_id, generation in rows if generation is None]


def forget_cancellations(tx: Transaction, id: str, jobs: Sequence[str]) -> None:
    tx.stage("forget_cancellations")
    tx.run(FORGET_CANCELLATIONS, id=id, jobs=jobs)


def take_lease(tx: Transaction, name: str, holder: str, seconds: float) -> bool:
    """Be the one who does a chore for the next seconds. A hint about who works: nothing breaks if two do."""
    tx.stage("lease")
    tx.insert("leases", [{"name": name, "holder": holder, "expires_at": 0}], ignore_duplicates=True)
    return tx.count(TAKE_LEASE, name=name, holder=holder, term=int(seconds * 1_000_000)) > 0
