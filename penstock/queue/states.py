"""The states of a job: every legal move is a function here, and nothing else changes `job_states` or `executions`.

    (new) ─┬─────────────▶ scheduled ◀── postpone, reschedule ──┐
           │                   │ promote                          │
           ├─────────────▶ available ─────────────────────────────┘
           │                 ▲ │ hold               park, give_back, put_back (available or scheduled)
           │   retry ────────┤ ▼                    ┌──────────────────┐
           │                 │ running ─────────────┴──▶ available, scheduled, waiting
           │                 │ │ end, succeed, crash
           ├─▶ waiting ──────┼─┤ end, end_unclaimed (let_go: waiting ─▶ scheduled)
           │                 │ ▼
           └─────────────▶ succeeded   failed   cancelled   skipped
                                          └─ discard ─▶ cancelled

Every function names the rows by their ids, and expects that this transaction has locked them and found them in the
state that the move begins with (`lock_running`, `lock_in`), so that a lost claim changes nothing (invariant 3). Two
moves are parts of larger statements, one for each kind of database, in `database/`: `hold`, by which a claim takes a
job (`dialect.take_ready`), and `succeed`, the success of a batch through the fence (`dialect.succeed`). The second
leaves out jobs that others follow (`mark_followed`): until they end, their reason is `FOLLOWED`. The rows of finished
jobs are removed in `queue/retention.py`, and those of all jobs in `schema/reset.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from penstock.database.dialect import BatchWrite, Parameters, TableWrite
from penstock.database.transaction import Transaction
from penstock.queue.jobs import MOST_COUNTED, Attempt
from penstock.values.status import JobStatus, OutcomeKind, Reason

# Rows of new jobs.

JOB_COLUMNS = ("task", "queue", "priority", "options", "max_crashes", "run_id", "node")
NEW = {
    "job_id": ":id",
    "status": ":status",
    "generation": "0",
    "retry_count": "0",
    "crash_count": "0",
    "cancel_requested": "false",
}
NEW_ENDED = NEW | {"reason": ":reason", "finished_at": "{now}"}
NEW_HELD = NEW | {"generation": "1", "token": ":token", "process_id": ":process_id", "claimed_at": "{now}"}
RECEIPT = {"token": ":token", "process_id": ":process_id", "job_ids": ":job_ids", "claimed_at": "{now}"}
QUEUED = {"queue": ":queue", "tier": ":tier", "job_id": ":id", "task": ":task"}
DUE = {"delayed": "{now} + :wait", "at": ":due_at"}


@cache
def tables_of_new(place: str, optional: tuple[str, ...]) -> BatchWrite:
    """The tables that a new job has rows in. `optional`: its columns beside those that every job has.

    `place`: `ready`, `delayed` (by `wait`), `at` (by `due_at`), `held`, `held alone` (with a receipt of its own),
    `ended`, or `aside`: it has a state, and no place in any queue.
    """
    columns = {name: f":{name}" for name in ("id", "payload", *optional, *JOB_COLUMNS)}
    state = {"ended": NEW_ENDED, "held": NEW_HELD, "held alone": NEW_HELD}.get(place, NEW)
    writes = [TableWrite("jobs", columns | {"created_at": "{now}"}), TableWrite("job_states", state)]
    if place == "held alone":
        writes.append(TableWrite("claims", RECEIPT))
    elif place == "ready":
        writes.append(TableWrite("availabilities", QUEUED))
    elif place in DUE:
        writes.append(TableWrite("scheduled", QUEUED | {"due_at": DUE[place]}, True))
    return BatchWrite(tuple(writes))


FOLLOWED = "followed"
"""The reason of a job that is not over and that others wait for."""

# Locks, by which a move makes sure of the state that it begins with.

LOCK_RUNNING = """
SELECT job_id, token, generation, crash_count, claimed_at, cancel_requested, process_id, reason
FROM {job_states} {by_key}
WHERE job_id {among:ids:uuid} AND status = 'running' ORDER BY job_id {lock}
"""
LOCK_RUNNING_UNLOCKED = LOCK_RUNNING.replace("{lock}", "{lock_skip}")
LOCK_IN = """
SELECT job_id, generation FROM {job_states} {by_key}
WHERE job_id {among:ids:uuid} AND status = :status ORDER BY job_id {lock}
"""


class RunningJob(NamedTuple):
    """The state of a job that a process holds."""

    job_id: str
    token: int
    generation: int
    crash_count: int
    claimed_at: int
    cancel_requested: bool
    process_id: str
    reason: str | None = None

    @property
    def is_followed(self) -> bool:
        """True if other jobs wait for its end."""
        return self.reason == FOLLOWED

    def execution(
        self, outcome: OutcomeKind, error_type: str | None = None, error: str | None = None
    ) -> Execution:
        """The attempt under this claim, as one that ends now."""
        began = (self.job_id, self.generation, outcome, self.claimed_at, self.process_id)
        return Execution(*began, error_type=error_type, error=error)


def lock_running(tx: Transaction, ids: Sequence[str], *, skip_locked: bool = False) -> list[RunningJob]:
    """Lock those of these jobs that are running. `skip_locked`: leave out jobs that other transactions have locked."""
    template = LOCK_RUNNING_UNLOCKED if skip_locked else LOCK_RUNNING
    return [RunningJob(*row) for row in tx.rows(template, ids=sorted(ids))] if ids else []


def lock_in(tx: Transaction, ids: Sequence[str], status: JobStatus) -> dict[str, int]:
    """Lock those of these jobs that have this status; returns them with their generations."""
    rows = tx.rows(LOCK_IN, ids=sorted(ids), status=status.value) if ids else []
    return {str(job_id): int(generation) for job_id, generation in rows}


# Moves of jobs that are held: the claim ends with each.

END = """
UPDATE {job_states} {by_key} SET status = :status, token = NULL, process_id = NULL, reason = :reason,
  finished_at = {now}
WHERE job_id {among:ids:uuid}
"""
STILL_FOLLOWED = f"CASE WHEN reason = '{FOLLOWED}' THEN reason END"
PUT_BACK = f"""
UPDATE {{job_states}} {{by_key}} SET status = :status, token = NULL, process_id = NULL, reason = {STILL_FOLLOWED},
  retry_count = retry_count + :spent, crash_count = crash_count + :crashed
WHERE job_id {{among:ids:uuid}}
"""
GIVE_BACK = """
UPDATE {job_states} {by_key} SET status = :status, token = NULL, process_id = NULL WHERE job_id {among:ids:uuid}
"""
PARK = """
UPDATE {job_states} {by_key} SET status = 'available', token = NULL, process_id = NULL, generation = generation - 1
WHERE job_id {among:ids:uuid}
"""
CRASH = f"""
UPDATE {{job_states}} {{by_key}} SET status = :status, token = NULL, process_id = NULL,
  reason = CASE WHEN :final = 1 THEN :reason ELSE {STILL_FOLLOWED} END,
  crash_count = crash_count + CASE WHEN crash_count < {MOST_COUNTED} THEN 1 ELSE 0 END,
  finished_at = CASE WHEN :final = 1 THEN {{now}} END
WHERE job_id {{among:ids:uuid}}
"""


def end(tx: Transaction, ids: Sequence[str], status: JobStatus, reason: Reason | None = None) -> None:
    """Running, or never started → succeeded, failed, cancelled or skipped."""
    if ids:
        tx.run(END, status=status.value, reason=_text(reason), ids=sorted(ids))


def put_back(
    tx: Transaction, ids: Sequence[str], status: JobStatus, *, spent: bool = False, crashed: bool = False
) -> None:
    """Running → available, scheduled: an attempt is over and another is to come, at the price of a budget or not."""
    tx.run(PUT_BACK, status=status.value, spent=int(spent), crashed=int(crashed), ids=sorted(ids))


def give_back(tx: Transaction, ids: Sequence[str], status: JobStatus = JobStatus.AVAILABLE) -> None:
    """Running → available, waiting: no handler has run under the claim, or it does not count."""
    if ids:
        tx.run(GIVE_BACK, status=status.value, ids=sorted(ids))


def park(tx: Transaction, ids: Sequence[str]) -> None:
    """Running → available, as if the job had not been claimed: a limit has no room for it."""
    tx.run(PARK, ids=sorted(ids))


def crash(tx: Transaction, ids: Sequence[str], status: JobStatus, reason: Reason | None) -> None:
    """Running → available, scheduled, failed or cancelled: the process that held the job is dead."""
    tx.run(CRASH, status=status.value, reason=_text(reason), final=int(status.terminal), ids=sorted(ids))


# Moves of jobs that no process holds.

PROMOTE = (
    "UPDATE {job_states} {by_key} SET status = 'available', due_at = {now} WHERE job_id {among:ids:uuid}"
)
POSTPONE = """
UPDATE {job_states} {by_key} SET status = 'scheduled', due_at = {now} + :wait
WHERE job_id = :id AND status = 'available'
"""
RESCHEDULE = """
UPDATE {job_states} {by_key} SET status = 'scheduled', due_at = :due
WHERE job_id = :id AND status IN ('scheduled', 'available')
"""
END_UNCLAIMED = """
UPDATE {job_states} {by_key} SET status = :status, reason = :reason, generation = generation + 1, finished_at = {now}
WHERE job_id {among:ids:uuid}
"""
LET_GO = "UPDATE {job_states} {by_key} SET status = 'scheduled' WHERE job_id {among:ids:uuid} AND status = 'waiting'"
MARK_FOLLOWED = f"UPDATE {{job_states}} {{by_key}} SET reason = '{FOLLOWED}' WHERE job_id = :id"
REQUEST_CANCEL = "UPDATE {job_states} SET cancel_requested = true WHERE job_id {among:ids:uuid}"
RETRY = """
UPDATE {job_states} SET status = 'available', reason = NULL, finished_at = NULL, retry_count = 0, crash_count = 0,
  cancel_requested = false, due_at = {now}
WHERE job_id {among:ids:uuid}
"""
DISCARD = "UPDATE {job_states} SET status = 'cancelled', reason = 'discarded' WHERE job_id {among:ids:uuid}"


def promote(tx: Transaction, ids: Sequence[str]) -> None:
    """Scheduled → available: the time has come."""
    tx.run(PROMOTE, ids=sorted(ids))


def postpone(tx: Transaction, id: str, wait: int) -> bool:
    """Available → scheduled, `wait` microseconds from now; False if the job is not available any more."""
    return tx.count(POSTPONE, id=id, wait=wait) > 0


def reschedule(tx: Transaction, id: str, due: int) -> bool:
    """Scheduled or available → scheduled, at this instant; False if the job is neither any more."""
    return tx.count(RESCHEDULE, id=id, due=due) > 0


def end_unclaimed(tx: Transaction, ids: Sequence[str], status: JobStatus, reason: Reason | None) -> None:
    """Available or waiting → an end that is recorded like an attempt, although no process has claimed the job."""
    tx.run(END_UNCLAIMED, status=status.value, reason=_text(reason), ids=sorted(ids))


def let_go(tx: Transaction, ids: Sequence[str]) -> None:
    """Waiting → scheduled: the job that these have waited for has succeeded."""
    tx.run(LET_GO, ids=sorted(ids))


def mark_followed(tx: Transaction, id: str) -> None:
    """Note that others wait for the end of a job that is not over, and is locked."""
    tx.run(MARK_FOLLOWED, id=id)


def request_cancel(tx: Transaction, ids: Sequence[str]) -> None:
    """Ask for the cancellation of running jobs: their end will be `cancelled`, whatever the handler returns."""
    tx.run(REQUEST_CANCEL, ids=ids)


def retry(tx: Transaction, ids: Sequence[str]) -> None:
    """Failed or cancelled → available, with fresh budgets."""
    tx.run(RETRY, ids=ids)


def discard(tx: Transaction, ids: Sequence[str]) -> None:
    """Failed → cancelled: an operator has put the dead letter away."""
    tx.run(DISCARD, ids=ids)


# Where a job is found, by its state.


def put_in_place(tx: Transaction, status: JobStatus, places: Sequence[Parameters]) -> None:
    """Add the rows by which jobs of this status are found: `job_id`, `task`, `queue`, `tier`, `wait` and `reason`."""
    match status:
        case JobStatus.AVAILABLE:
            tx.insert("availabilities", places)
        case JobStatus.SCHEDULED:
            tx.insert("scheduled", places, due_at="{now} + :wait")
        case JobStatus.FAILED:
            tx.insert("dead_letters", places, ignore_duplicates=True, failed_at="{now}")
        case _:
            pass


# Attempts that are over.


class Execution(NamedTuple):
    """An attempt that ends now, or something that is recorded like one."""

    job_id: str
    generation: int
    outcome: OutcomeKind
    started_at: int
    process_id: str | None = None
    output: str | None = None
    error_type: str | None = None
    error: str | None = None


def record(tx: Transaction, executions: Sequence[Execution], *, again: bool = False) -> None:
    """One row for each. `again`: a row that is there already stays, and keeps nothing from going on."""
    rows = [execution._asdict() | {"outcome": execution.outcome.value} for execution in executions]
    tx.insert("executions", rows, ignore_duplicates=again, finished_at="{now}")


def record_attempts(tx: Transaction, attempts: Sequence[Attempt], process: str | None) -> None:
    """One row for each attempt that began, with the times at which it began and ended."""
    rows = [
        {
            "job_id": attempt.claim.job_id,
            "generation": attempt.claim.generation,
            "process_id": process,
            "began_ago": attempt.began_ago,
            "ended_ago": attempt.ended_ago,
            "outcome": attempt.outcome.kind.value,
            "output": attempt.outcome.output,
            "error_type": attempt.outcome.failure.type if attempt.outcome.failure else None,
            "error": attempt.outcome.failure.message if attempt.outcome.failure else None,
            "traceback": attempt.outcome.failure.traceback if attempt.outcome.failure else None,
        }
        for attempt in attempts
        if attempt.began
    ]
    tx.insert("executions", rows, started_at="{now} - :began_ago", finished_at="{now} - :ended_ago")


def record_unstarted(tx: Transaction, errors: Sequence[tuple[str, Reason | None, str]]) -> None:
    """Errors of steps that have failed without a job to run: (job, reason, text)."""
    rows = [
        {
            "job_id": job_id,
            "generation": 0,
            "outcome": OutcomeKind.ERRORED.value,
            "error_type": _text(reason),
            "error": error,
        }
        for job_id, reason, error in errors
    ]
    tx.insert("executions", rows, started_at="{now}", finished_at="{now}")


# Repairs of rows that were changed by hand, or by a fault (`operate/diagnosis/damage.py`).

LAST_GENERATION = 2**62
HOLD_AGAIN = "UPDATE {job_states} SET token = :token, process_id = :process WHERE job_id = :id"
CLAMP = f"""
UPDATE {{job_states}} SET
  generation = CASE WHEN generation BETWEEN 0 AND {LAST_GENERATION} THEN generation ELSE :generation END,
  retry_count = CASE WHEN retry_count BETWEEN 0 AND {MOST_COUNTED} THEN retry_count ELSE 0 END,
  crash_count = CASE WHEN crash_count BETWEEN 0 AND {MOST_COUNTED} THEN crash_count ELSE 0 END
WHERE job_id = :id
"""


def hold_again(tx: Transaction, id: str, token: int, process: str | None) -> None:
    """Put a running job under another token, so that the reaper finds it by a new receipt."""
    tx.run(HOLD_AGAIN, id=id, token=token, process=process)


def clamp_counts(tx: Transaction, id: str, generation: int) -> bool:
    """Correct counts that are out of range; a generation that is out of range becomes this one."""
    return tx.count(CLAMP, id=id, generation=generation) > 0


def add_failed(tx: Transaction, id: str, reason: Reason) -> None:
    """Give a job that has lost its state one: failed."""
    state = {"status": JobStatus.FAILED.value, "generation": 0, "retry_count": 0, "crash_count": 0}
    row = state | {"job_id": id, "cancel_requested": False, "reason": reason.value}
    tx.insert("job_states", [row], ignore_duplicates=True, finished_at="{now}")


def _text(reason: Reason | None) -> str | None:
    return None if reason is None else reason.value
