"""Reclaim: take back the work of processes that are dead. Invariants 10 and 11.

Two facts in the database decide, each by itself: a process whose heartbeat is too old loses its row, and a claim whose
process has no row is taken back. Both are safe from many hosts at once and may be repeated. A process that was only
frozen finds its claims gone: its tokens match no row any more.

Each process says in its row for how long it may be silent. So the reaper never judges a process by the settings of
another one, as when a deploy changes them and old and new processes run side by side.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.database.dialect import Row
from penstock.database.transaction import Transaction
from penstock.errors import PenstockError
from penstock.queue import states, tallies
from penstock.queue.claim import FORGET_RECEIPTS
from penstock.queue.jobs import EndedStep, Follow, jobs_of_receipt, nothing_follows, tier_of
from penstock.queue.limits import slots
from penstock.queue.rules import followers
from penstock.values.failure import Failure, fingerprint
from penstock.values.outcome import decide_crash
from penstock.values.status import JobStatus, OutcomeKind, Reason

CLAIMS_PER_TURN = 20
HOLDER_DIED = "the process that ran it died"
NO_TOKEN = -1
DEAD_AT = """
CASE WHEN heartbeat_at BETWEEN 0 AND 4000000000000000 THEN heartbeat_at ELSE 0 END
  + CASE WHEN reap_after BETWEEN 0 AND 4000000000000000 THEN reap_after ELSE :silence END
""".strip()
"""When a process counts as dead. Times that cannot be (of the year 2096, or before 1970) say nothing: a sum that does
not fit would fail for every process at once."""

AHEAD = 1_000_000
"""Microseconds: by so much the clocks of a cluster's servers may differ, or a clock may be slewed."""

LOOK = f"""
SELECT (SELECT MIN({DEAD_AT}) FROM {{processes}} WHERE id <> :me), {{now}},
  EXISTS (SELECT 1 FROM {{claims}} c WHERE NOT EXISTS (SELECT 1 FROM {{processes}} p WHERE p.id = c.process_id)
    AND NOT (c.token {{among:left:int}})),
  (SELECT MAX(heartbeat_at) FROM {{processes}})
"""
SILENT = f"SELECT id, {{now}} FROM {{processes}} WHERE {DEAD_AT} < {{now}} AND id <> :me {{lock_skip}}"
REMOVE_SILENT = f"DELETE FROM {{processes}} WHERE id {{among:ids:uuid}} AND {DEAD_AT} < :now"
BRING_BACK = "UPDATE {processes} SET heartbeat_at = {now} WHERE heartbeat_at > {now} + :ahead"
REMOVE = "DELETE FROM {processes} WHERE id = :id"
ORPHANED = """
SELECT token, process_id, job_ids FROM {claims} c
WHERE NOT EXISTS (SELECT 1 FROM {processes} p WHERE p.id = c.process_id) AND NOT (token {among:left:int})
ORDER BY token LIMIT :limit {lock_skip}
"""
HOLDING = "SELECT job_id, token FROM {job_states} WHERE job_id {among:ids:uuid} AND status = 'running'"
DESCRIBE = """
SELECT id, task, queue, priority, max_crashes, run_id, node, path, options FROM {jobs} WHERE id {among:ids:uuid}
"""
FORGET_CANCELLATIONS = """
DELETE FROM {cancellations} WHERE process_id {among:dead:uuid}
  AND NOT EXISTS (SELECT 1 FROM {processes} p WHERE p.id = process_id)
"""


@dataclass(frozen=True, slots=True)
class Crashed:
    """A job whose holder died, and what becomes of it."""

    job_id: str
    process_id: str
    task: str
    status: JobStatus
    delay: float
    reason: Reason | None


DIED = Failure("Crashed", "the process that held this job died")


class UnreadableReceipt(PenstockError):
    """A receipt that cannot be read: it was changed by hand, or its job is gone."""


class ReapReport(NamedTuple):
    """The work that a reaper may have to do."""

    silent_in: float | None
    """Seconds until a process will have been silent for too long."""
    orphaned: bool
    """True if a claim has no holder."""
    ahead: bool
    """True if a heartbeat lies in the future: the clock was set back since."""
    now: int
    """By the database's clock."""

    @property
    def is_silent(self) -> bool:
        """True if a process has been silent for too long."""
        return self.silent_in is not None and self.silent_in < 0


def look(tx: Transaction, silence: float, me: str, left: Collection[int] = ()) -> ReapReport:
    """Read what there may be to take back, in one statement.

    `silence` is for processes that do not say how long they may be silent; `left`: the
    claims that are set aside."""
    row = tx.row(LOOK, silence=int(silence * 1_000_000), me=me, left=sorted(left) or [NO_TOKEN])
    assert row is not None
    dead_at, now, orphaned, beat = row
    seconds = None if dead_at is None else (int(dead_at) - int(now)) / 1_000_000
    return ReapReport(seconds, bool(orphaned), beat is not None and int(beat) - int(now) > AHEAD, int(now))


def bring_back(tx: Transaction) -> int:
    """Set heartbeats that lie in the future to now.

    A live process renews its own anyway; a dead one is silent from now on.

    Or the work of a host that died before the clock was set back would be held for as long as that went back.
    """
    tx.stage("bring_back")
    return tx.count(BRING_BACK, ahead=AHEAD)


def reap_silent(
    tx: Transaction, silence: float, me: str, may_declare_dead: Callable[[int], bool] = lambda _: True
) -> list[str]:
    """Remove processes not heard of for too long by the database's clock; never our own.

    `may_declare_dead` is called with the database's time when the database has answered: the answer may have taken so
    long that no process could be heard, or the clock may have been set just now.
    """
    tx.stage("reap")
    micros = int(silence * 1_000_000)
    rows = tx.rows(SILENT, silence=micros, me=me)
    silent = [str(row[0]) for row in rows]
    if silent and not may_declare_dead(int(rows[0][1])):
        return []
    if silent:
        tx.run(REMOVE_SILENT, ids=silent, silence=micros, now=int(rows[0][1]))
        tx.run(FORGET_CANCELLATIONS, dead=silent)
    return silent


def remove_process(tx: Transaction, process: str) -> bool:
    """Remove a process that is known to be gone: it said so itself, or the operating system did."""
    tx.stage("reap")
    return tx.count(REMOVE, id=process) > 0


def reclaim(
    tx: Transaction,
    follow: Follow = nothing_follows,
    left: Collection[int] = (),
    passed_over: Collection[str] = (),
    only: Collection[str] | None = None,
    unreadable: list[int] | None = None,
) -> list[Crashed]:
    """Take back what dead processes held: each attempt becomes `crashed`, each job available, later, or failed.

    `left`: claims that are set aside. `passed_over`: jobs that are. `only`: of all jobs that are found, these.
    `unreadable` is told the claims whose receipts cannot be read.
    """
    tx.stage("reclaim")
    tx.dialect.go_by_index(tx)
    found = tx.rows(ORPHANED, limit=CLAIMS_PER_TURN, left=sorted(left) or [NO_TOKEN])
    orphaned = _readable(found)
    if unreadable is not None:
        unreadable += {token for token, _, _ in found} - {token for token, _, _ in orphaned}
    if not orphaned:
        return []
    tokens = {token for token, _, _ in orphaned}
    ids = sorted({job_id for _, _, job_ids in orphaned for job_id in job_ids})
    # A row that another process has locked (a holder frozen in the middle of its settle) is left for the next round,
    # and its receipt with it: one such row must not keep all the others waiting.
    holding = {job_id: token for job_id, token in tx.rows(HOLDING, ids=ids) if token in tokens} if ids else {}
    wanted = sorted(set(holding).difference(passed_over).intersection(holding if only is None else only))
    held = [job for job in states.lock_running(tx, wanted, skip_locked=True) if job.token in tokens]
    crashed = _crash(tx, held, follow) if held else []
    locked = {holding[job_id] for job_id in holding.keys() - {job.job_id for job in held}}
    if tokens - locked:
        tx.run(FORGET_RECEIPTS, tokens=sorted(tokens - locked))
    tx.run(FORGET_CANCELLATIONS, dead=sorted({str(process) for _, process, _ in orphaned}))
    return crashed


def orphans(tx: Transaction, left: Collection[int]) -> dict[int, list[str]]:
    """The claims of dead processes that `reclaim` would find, each with its jobs."""
    rows = tx.rows(ORPHANED, limit=CLAIMS_PER_TURN, left=sorted(left) or [NO_TOKEN])
    return {token: jobs for token, _, jobs in _readable(rows)}


def _readable(orphaned: Sequence[Row]) -> list[tuple[int, str, list[str]]]:
    read = [(token, process, jobs_of_receipt(job_ids)) for token, process, job_ids in orphaned]
    return [(token, process, jobs) for token, process, jobs in read if jobs is not None]


def _crash(tx: Transaction, held: list[states.RunningJob], follow: Follow) -> list[Crashed]:
    described = {str(row[0]): row[1:] for row in tx.rows(DESCRIBE, ids=[job.job_id for job in held])}
    _record(tx, held)
    crashed: list[Crashed] = []
    ended, over, rows = [], [], []
    for job in held:
        job_id = job.job_id
        if job_id not in described:
            raise UnreadableReceipt(f"the state of job {job_id} is there, but the job itself is gone")
        task, queue, priority, max_crashes, run_id, node, path, options = described[job_id]
        status, delay, reason = decide_crash(job.crash_count + 1, max_crashes)
        if job.cancel_requested:
            status, delay, reason = JobStatus.CANCELLED, 0.0, Reason.CANCELLED
        # Jobs that may have killed their process come back one at a time, so that the others can run before the
        # guilty one.
        delay *= 1 + len(crashed) / len(held)
        crashed.append(Crashed(job_id, job.process_id, task, status, delay, reason))
        rows.append(
            {
                "job_id": job_id,
                "task": task,
                "queue": queue,
                "tier": tier_of(priority),
                "reason": reason.value if reason else None,
                "wait": int(delay * 1_000_000),
                **(fingerprint(task, DIED) if status is JobStatus.FAILED else {}),
            }
        )
        if run_id is not None and status.terminal:
            ended.append(EndedStep(job_id, str(run_id), node, path or "", status, reason, None, HOLDER_DIED))
        elif status.terminal:
            over.append(followers.EndedJob(job_id, task, status, options, reason, None, HOLDER_DIED))
    _move(tx, crashed, rows)
    tallies.count_crashes(tx, zip(rows, crashed, strict=True))
    if ended:
        follow(tx, ended)
    if over:
        followers.after_end(tx, over)
    slots.free_slot(tx, [job.job_id for job in crashed])
    return crashed


def _record(tx: Transaction, held: list[states.RunningJob]) -> None:
    # An execution row that exists already was not written by this attempt; it must not stop the job from going on.
    crashes = [job.execution(OutcomeKind.CRASHED, DIED.type, DIED.message) for job in held]
    states.record(tx, crashes, again=True)


def _move(tx: Transaction, crashed: Sequence[Crashed], rows: Sequence[dict[str, object]]) -> None:
    groups: dict[tuple[JobStatus, Reason | None], list[int]] = defaultdict(list)
    for index, job in enumerate(crashed):
        groups[job.status, job.reason].append(index)
    for (status, reason), indexes in sorted(groups.items(), key=str):
        ids = [crashed[index].job_id for index in indexes]
        states.crash(tx, ids, status, reason)
        states.put_in_place(tx, status, [rows[index] for index in indexes])
