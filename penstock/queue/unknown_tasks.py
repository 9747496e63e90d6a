"""Jobs whose task no live process knows. They wait for a process that knows it, and fail after a long time.

Every worker writes down, in its process row, which tasks it knows. Work is given up only if it has waited for so long,
no live process knows its task, and all of them have said what they know. The state's row decides: a job that a worker
has claimed meanwhile is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple
from zlib import crc32

from penstock.database.transaction import Transaction
from penstock.queue import processes, states
from penstock.queue.claim import LEAVE, discover
from penstock.queue.jobs import EndedStep, Follow
from penstock.queue.rules import followers
from penstock.values.failure import Failure, fingerprint
from penstock.values.status import JobStatus, OutcomeKind, Reason

UNKNOWN = "penstock.errors.UnknownTask"
KNOWS = "knows"
"""The key in the details of a process row: hashes of task names, which may be many and long."""
HEAD = 200
"""How many jobs at the head of each lane are checked: they have waited longest."""

DETAILS = "SELECT id, details FROM {processes}"
PROCESSES = "SELECT details FROM {processes} WHERE role <> 'supervisor'"
OLDEST = """
SELECT a.job_id, a.task, a.seq FROM
  (SELECT job_id, task, seq FROM {availabilities} WHERE queue = :queue AND tier = :tier ORDER BY seq LIMIT :limit) a
JOIN {jobs} j ON j.id = a.job_id JOIN {job_states} s ON s.job_id = a.job_id
WHERE j.created_at < {now} - :age AND COALESCE(s.due_at, 0) < {now} - :age
"""
DESCRIBE = """
SELECT id, task, queue, run_id, node, path, created_at, options FROM {jobs} WHERE id {among:ids:uuid}
"""


class QueuePosition(NamedTuple):
    """A job, and its place in the queue."""

    job_id: str
    queue: str
    tier: int
    seq: int


class GivenUp(NamedTuple):
    """A job that was given up."""

    job_id: str
    task: str
    queue: str
    generation: int
    error: str


def marks(names: Iterable[str]) -> list[str]:
    """The names as a process row keeps them."""
    return sorted({f"{crc32(name.encode()):08x}" for name in names})


def look(tx: Transaction, age: float) -> list[QueuePosition]:
    """Find jobs that have been ready for `age` seconds and whose task no live process knows."""
    known = _known(tx)
    if known is None:
        return []
    found: list[QueuePosition] = []
    for queue, tier in discover(tx, None):
        rows = tx.rows(OLDEST, queue=queue, tier=tier, limit=HEAD, age=int(age * 1_000_000))
        strange = [row for row in rows if marks([row[1]])[0] not in known]
        found += [QueuePosition(str(job), queue, tier, int(seq)) for job, _, seq in strange]
    return found


def give_up(tx: Transaction, places: Sequence[QueuePosition], follow: Follow) -> list[GivenUp]:
    """Fail the jobs that `look` found, except those that a worker has claimed meanwhile."""
    tx.stage("give_up_unknown")
    lanes: dict[tuple[str, int], list[int]] = {}
    for place in places:
        lanes.setdefault((place.queue, place.tier), []).append(place.seq)
    # In the order of a claim: first the places in the queue, then the states; runs come last.
    for (queue, tier), seqs in sorted(lanes.items()):
        tx.run(LEAVE, queue=queue, tier=tier, seqs=sorted(seqs))
    return _fail(tx, sorted([place.job_id for place in places]), follow)


def knowing(tx: Transaction) -> Callable[[str, str], bool]:
    """A function that tells whether a process knows a task.

    A process whose row names no tasks counts as knowing all.
    """
    told = {str(id): processes.read_details(details) for id, details in tx.rows(DETAILS)}
    said = {id: known for id, details in told.items() if isinstance(known := details.get(KNOWS), list)}
    return lambda process, task: process not in said or marks([task])[0] in said[process]


def _known(tx: Transaction) -> set[str] | None:
    """The tasks that live processes know; None: there is no process, or one has not said what it knows."""
    told = [processes.read_details(details).get(KNOWS) for (details,) in tx.rows(PROCESSES)]
    lists = [known for known in told if isinstance(known, list)]
    if not told or len(lists) < len(told):
        return None
    return {str(mark) for known in lists for mark in known}


def _fail(tx: Transaction, ids: Sequence[str], follow: Follow) -> list[GivenUp]:
    generations = states.lock_in(tx, ids, JobStatus.AVAILABLE)
    if not generations:
        return []
    reason = Reason.UNKNOWN_TASK
    given, ended, over, attempts, letters = [], [], [], [], []
    for job, task, queue, run, node, path, created, options in tx.rows(DESCRIBE, ids=sorted(generations)):
        one = GivenUp(
            str(job), task, queue, generations[str(job)] + 1, f"no process knows a task named {task!r}"
        )
        given.append(one)
        attempt = states.Execution(one.job_id, one.generation, OutcomeKind.ERRORED, created)
        attempts.append(attempt._replace(error_type=UNKNOWN, error=one.error))
        letter = {"job_id": one.job_id, "task": task, "queue": queue, "reason": reason.value}
        letters.append(letter | fingerprint(task, Failure(UNKNOWN, one.error)))
        if run is not None:
            place = (one.job_id, str(run), node, path or "")
            ended.append(EndedStep(*place, JobStatus.FAILED, reason, None, one.error))
        else:
            told = (options, reason, None, one.error)
            over.append(followers.EndedJob(one.job_id, task, JobStatus.FAILED, *told))
    states.record(tx, attempts)
    states.end_unclaimed(tx, sorted(generations), JobStatus.FAILED, reason)
    states.put_in_place(tx, JobStatus.FAILED, letters)
    if ended:
        follow(tx, ended)
    if over:
        followers.after_end(tx, over)
    return given
