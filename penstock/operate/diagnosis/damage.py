"""Finds, names and repairs rows that no worker will ever move, because a person, a restore or a fault changed them.

The checks compare the rows with the rules of docs/internals/tables.md. A repair only restores the rule; the ordinary
work then goes on from there. Each repair has a transaction of its own, and checks again before it writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from penstock.database import sequences
from penstock.database.database import Database
from penstock.database.dialect import Row
from penstock.database.transaction import Transaction
from penstock.pipelines.advance import timers
from penstock.pipelines.advance.run_rows import RESTORE_DEFINITION, FindPipeline, no_pipeline, own_text
from penstock.pipelines.model.definition import DamagedDefinition, Definition
from penstock.pipelines.plan.changes import RunMode
from penstock.queue import audit, states
from penstock.queue.jobs import MOST_COUNTED, jobs_of_receipt, tier_of
from penstock.queue.retention import REMOVALS
from penstock.queue.states import LAST_GENERATION
from penstock.values.ids import FIRST_ID, LAST_ID, new_id, new_token
from penstock.values.status import JobStatus, Reason, RunStatus
from penstock.values.typed_json.json_text import dumps

STRIDE = 5_000
MOST_WALKED = 200_000
"""So many of the newest jobs are checked, unless all are asked for."""
MOST_PLACES = 100_000
"""With more jobs than this in the queue, jobs that lost their place there are not looked for: that would take too
long."""

BOUNDARY = "SELECT id FROM {jobs} WHERE id < :before ORDER BY id DESC LIMIT 1 OFFSET :stride"
STATES_BOUNDARY = (
    "SELECT job_id FROM {job_states} WHERE job_id < :before ORDER BY job_id DESC LIMIT 1 OFFSET :stride"
)
ENDED = ", ".join(f"'{status.value}'" for status in JobStatus if status.terminal)
SUSPECTS = f"""
SELECT s.job_id, s.status, s.token, s.process_id, s.generation, s.retry_count, s.crash_count, j.id, j.run_id
FROM {{job_states}} s LEFT JOIN {{jobs}} j ON j.id = s.job_id
WHERE s.job_id < :before AND s.job_id >= :low AND (s.status NOT IN ({ENDED}) OR j.id IS NULL
  OR s.generation < 0 OR s.generation > {LAST_GENERATION} OR s.retry_count < 0 OR s.retry_count > {MOST_COUNTED}
  OR s.crash_count < 0 OR s.crash_count > {MOST_COUNTED})
"""
STATELESS = """
SELECT j.id, j.task, j.queue FROM {jobs} j LEFT JOIN {job_states} s ON s.job_id = j.id
WHERE j.id < :before AND j.id >= :low AND s.job_id IS NULL
"""
CLAIMS = "SELECT token, process_id, job_ids FROM {claims}"
PROCESSES = "SELECT id FROM {processes}"
STILL_RUNNING = "SELECT job_id, token FROM {job_states} WHERE job_id {among:ids:uuid} AND status = 'running'"
PLACES = "SELECT COUNT(*) FROM (SELECT 1 FROM {availabilities} LIMIT :limit) counted"
PLACED = (
    "SELECT job_id FROM {availabilities} WHERE job_id {among:ids:uuid}",
    "SELECT job_id FROM {parked} WHERE job_id {among:ids:uuid}",
)
TIMED = "SELECT job_id FROM {scheduled} WHERE job_id {among:ids:uuid}"
STATUS = "SELECT status, token, process_id FROM {job_states} WHERE job_id = :id {lock}"
DESCRIBE = "SELECT id, task, queue, priority FROM {jobs} WHERE id = :id"
FORGET_RECEIPT = "DELETE FROM {claims} WHERE token = :token"
LAST_ATTEMPT = (
    f"SELECT MAX(generation) FROM {{executions}} WHERE job_id = :id AND generation <= {LAST_GENERATION}"
)
STRANGE_RUNS = f"""
SELECT id, status, mode, ended_at FROM {{runs}}
WHERE status NOT IN ({", ".join(f"'{status.value}'" for status in RunStatus)})
  OR mode NOT IN ({", ".join(f"'{mode.value}'" for mode in RunMode)}) LIMIT 1000
"""
MEND_RUN = "UPDATE {runs} SET status = :status, mode = :mode WHERE id = :id"
HALT = "UPDATE {runs} SET failed = failed + 1, halted = true, reasons = :reasons WHERE id = :id"
RUNLESS_TIMERS = """
SELECT t.due_at, t.id, t.kind, t.run_id FROM {timers} t LEFT JOIN {runs} r ON r.id = t.run_id
WHERE r.id IS NULL LIMIT 1000
"""
STRANGE_TIMERS = f"""
SELECT t.id, t.kind, t.run_id FROM {{timers}} t JOIN {{runs}} r ON r.id = t.run_id
WHERE t.kind NOT IN ({", ".join(f"'{kind}'" for kind in sorted(timers.KINDS))}) LIMIT 1000
"""
DEFINITIONS_IN_USE = """
SELECT DISTINCT definition FROM (SELECT definition FROM {runs} WHERE ended_at IS NULL LIMIT :limit) active
"""
DEFINITION = "SELECT text FROM {definitions} WHERE hash = :hash"
RUN_OF_DEFINITION = "SELECT id, pipeline FROM {runs} WHERE ended_at IS NULL AND definition = :hash LIMIT 1"
FAILING_EXPANDS = "SELECT id, run_id, problem FROM {advancements} WHERE problem IS NOT NULL LIMIT 1000"

Mend = Callable[[Transaction], bool]
"""Repairs the damage; False: there is nothing to repair any more."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Damage: its subject, a message, and advice. `mend` repairs it; without `mend` only the advice helps."""

    subject: str
    message: str
    mend: Mend | None = None
    advice: str = "Mend it: penstock doctor --repair"


def find(
    database: Database, *, everything: bool = False, find_pipeline: FindPipeline = no_pipeline
) -> list[Damage]:
    """Find all damage. Of very many jobs only the newest are checked, unless `everything` is true.

    `find_pipeline` finds the pipelines of the app; workers with its code go on without a definition that it can make.
    """
    definitions = partial(_definitions, find_pipeline)
    found = [
        damage
        for look in (_numbers, _receipts, _runs, _pieces, definitions)
        for damage in database.read(_all, look)
    ]
    for before, low in _ranges(database, BOUNDARY, everything):
        found += database.read(_stateless, before, low)
    for before, low in _ranges(database, STATES_BOUNDARY, everything):
        found += database.read(_states, before, low)
    return found


def repair(database: Database, find_pipeline: FindPipeline = no_pipeline) -> list[tuple[Damage, bool]]:
    """Repair what can be repaired, each damage by itself, and say which repairs succeeded. May be repeated."""
    look = partial(find, database, everything=True, find_pipeline=find_pipeline)
    done = [(damage, _mended(database, damage)) for damage in look()]
    # Jobs of an unreadable receipt are found only now, after the receipt was removed.
    if any(mended and damage.subject.startswith("claim ") for damage, mended in done):
        done += [(damage, _mended(database, damage)) for damage in look()]
    return done


def _all(tx: Transaction, look: Callable[[Transaction], Iterable[Damage]]) -> list[Damage]:
    return list(look(tx))


def _mended(database: Database, damage: Damage) -> bool:
    mend = damage.mend
    if mend is None:
        return False

    def work(tx: Transaction) -> bool:
        tx.stage("mend")
        done = mend(tx)
        kind, _, id = damage.subject.partition(" ")
        if done and kind == "job":
            audit.of_jobs(tx, "repair", [id], found=damage.message)
        return done

    try:
        return database.in_transaction(work)
    except Exception as error:
        if database.is_passing(error):
            raise
        return False


def _ranges(database: Database, boundary: str, everything: bool) -> Iterator[tuple[str, str]]:
    """Ranges of ids, from the newest on: each yields the id above the range, and the lowest id in it."""
    before, walked = LAST_ID, 0
    while everything or walked < MOST_WALKED:
        row = database.read(_boundary, boundary, before)
        low = str(row[0]) if row is not None else FIRST_ID
        yield before, low
        if row is None:
            return
        before, walked = low, walked + STRIDE


def _boundary(tx: Transaction, template: str, before: str) -> Row | None:
    return tx.row(template, before=before, stride=STRIDE)


# numbers of rows


def _numbers(tx: Transaction) -> Iterable[Damage]:
    for table in sequences.COUNTED:
        if sequences.is_used_up(tx, table):
            message = (
                f"the numbers of the rows of the table {table} are used up: no row can be added any more"
            )
            yield Damage(f"table {table}", message, partial(_set_back, table))


def _set_back(table: str, tx: Transaction) -> bool:
    return sequences.set_back(tx, table)


# claims and states


def _receipts(tx: Transaction) -> Iterable[Damage]:
    for token, _, job_ids in tx.rows(CLAIMS):
        if jobs_of_receipt(job_ids) is None:
            message = f"the receipt of claim {token} cannot be read"
            yield Damage(f"claim {token}", message, partial(_forget_receipt, token))


def _forget_receipt(token: int, tx: Transaction) -> bool:
    return tx.count(FORGET_RECEIPT, token=token) > 0


def _states(tx: Transaction, before: str, low: str) -> list[Damage]:
    suspects = tx.rows(SUSPECTS, before=before, low=low)
    if not suspects:
        return []
    found = [damage for row in suspects for damage in _of_state(row)]
    sound = [row for row in suspects if row[7] is not None]
    return found + _unheld(tx, sound) + _placeless(tx, sound)


def _of_state(row: Row) -> Iterator[Damage]:
    id, status, _, _, generation, retries, crashes, job, _ = row
    if job is None:
        yield Damage(
            f"job {id}", f"the state of job {id} is there, but the job is gone", partial(_remove, str(id))
        )
        return
    if status not in list(JobStatus):
        message = f"job {id} has the status {status!r}, which is unknown"
        yield Damage(f"job {id}", message, partial(_give_up_strange, str(id)))
    counts = (generation, LAST_GENERATION), (retries, MOST_COUNTED), (crashes, MOST_COUNTED)
    if any(not 0 <= value <= most for value, most in counts):
        message = (
            f"job {id} has counts that cannot be: attempts {generation}, retries {retries}, crashes {crashes}"
        )
        yield Damage(f"job {id}", message, partial(_clamp, str(id)))


def _unheld(tx: Transaction, rows: Sequence[Row]) -> list[Damage]:
    """Find jobs that run without a receipt, in a process that is gone: no reaper will find them."""
    running = {str(row[0]): row for row in rows if row[1] == JobStatus.RUNNING.value}
    if not running:
        return []
    receipts = {token: jobs_of_receipt(job_ids) for token, _, job_ids in tx.rows(CLAIMS)}
    living = {str(id) for (id,) in tx.rows(PROCESSES)}
    held = {
        id: (token, str(process))
        for id, (_, _, token, process, *_) in running.items()
        if str(process) not in living and (jobs := receipts.get(token, [])) is not None and id not in jobs
    }
    # Jobs that were settled since the first look are not among these.
    still = {(str(id), token) for id, token in tx.rows(STILL_RUNNING, ids=sorted(held))} if held else set()
    return [
        Damage(f"job {id}", _unheld_words(id, process), partial(_hold_again, id))
        for id, (token, process) in held.items()
        if (id, token) in still
    ]


def _unheld_words(id: str, process: str) -> str:
    return f"job {id} runs in process {process}, which is gone, and no receipt tells of it"


def _placeless(tx: Transaction, rows: Sequence[Row]) -> list[Damage]:
    """Find jobs outside of runs that are ready or scheduled, but have no row in the queue or in the schedule."""
    alone = [row for row in rows if row[8] is None]
    ready = sorted([str(row[0]) for row in alone if row[1] == JobStatus.AVAILABLE.value])
    later = sorted([str(row[0]) for row in alone if row[1] == JobStatus.SCHEDULED.value])
    found: list[Damage] = []
    count = tx.row(PLACES, limit=MOST_PLACES) if ready else None
    if count is not None and count[0] < MOST_PLACES:
        placed = {str(id) for template in PLACED for (id,) in tx.rows(template, ids=ready)}
        found += [_lost(id, "is ready, but has no place in the queue") for id in ready if id not in placed]
    timed = {str(id) for (id,) in tx.rows(TIMED, ids=later)} if later else set()
    found += [_lost(id, "waits for its time, which is not set") for id in later if id not in timed]
    return found


def _lost(id: str, words: str) -> Damage:
    return Damage(f"job {id}", f"job {id} {words}", partial(_give_place, id))


def _stateless(tx: Transaction, before: str, low: str) -> list[Damage]:
    return [
        Damage(f"job {id}", f"job {id} ({task}) has no state", partial(_give_up_stateless, str(id)))
        for id, task, _ in tx.rows(STATELESS, before=before, low=low)
    ]


# repairs


def _remove(id: str, tx: Transaction) -> bool:
    if tx.row(DESCRIBE, id=id) is not None:
        return False
    for removal in REMOVALS:
        tx.run(removal, ids=[id])
    return True


def _give_up_strange(id: str, tx: Transaction) -> bool:
    """Make the job a dead letter, so that an operator can decide: it can be retried from there."""
    state, job = tx.row(STATUS, id=id), tx.row(DESCRIBE, id=id)
    if state is None or job is None or state[0] in list(JobStatus):
        return False
    states.end(tx, [id], JobStatus.FAILED, Reason.ROW_DAMAGED)
    _dead_letter(tx, job)
    return True


def _give_up_stateless(id: str, tx: Transaction) -> bool:
    job = tx.row(DESCRIBE, id=id)
    if job is None or tx.row(STATUS, id=id) is not None:
        return False
    states.add_failed(tx, id, Reason.ROW_DAMAGED)
    _dead_letter(tx, job)
    return True


def _dead_letter(tx: Transaction, job: Row) -> None:
    id, task, queue, _ = job
    row = {"job_id": str(id), "task": task, "queue": queue, "reason": Reason.ROW_DAMAGED.value}
    tx.insert("dead_letters", [row], ignore_duplicates=True, failed_at="{now}")


def _clamp(id: str, tx: Transaction) -> bool:
    row = tx.row(LAST_ATTEMPT, id=id)
    return states.clamp_counts(tx, id, int(row[0]) if row and row[0] is not None else 0)


def _hold_again(id: str, tx: Transaction) -> bool:
    """Write a receipt for the job, in the name of the process that is gone: the next reaper takes it back as a
    crash."""
    state = tx.row(STATUS, id=id)
    if state is None or state[0] != JobStatus.RUNNING.value:
        return False
    token = new_token()
    process = str(state[2]) if state[2] is not None else new_id()
    states.hold_again(tx, id, token, process)
    row = {"token": token, "process_id": process, "job_ids": dumps([id])}
    tx.insert("claims", [row], claimed_at="{now}")
    return True


def _give_place(id: str, tx: Transaction) -> bool:
    state, job = tx.row(STATUS, id=id), tx.row(DESCRIBE, id=id)
    if state is None or job is None:
        return False
    _, task, queue, priority = job
    place = {"job_id": id, "task": task, "queue": queue, "tier": tier_of(int(priority)), "wait": 0}
    if state[0] == JobStatus.AVAILABLE.value:
        if any(tx.rows(template, ids=[id]) for template in PLACED):
            return False
        tx.insert("availabilities", [place])
    elif state[0] == JobStatus.SCHEDULED.value and not tx.rows(TIMED, ids=[id]):
        tx.insert("scheduled", [place], due_at="{now} + :wait")
    else:
        return False
    return True


# runs


def _runs(tx: Transaction) -> Iterable[Damage]:
    for id, status, mode, ended in tx.rows(STRANGE_RUNS):
        message = f"run {id} has the status {status!r} and the mode {mode!r}, one of which is unknown"
        yield Damage(
            f"run {id}", message, partial(_mend_run, str(id), str(status), str(mode), ended is not None)
        )


def _mend_run(id: str, status: str, mode: str, ended: bool, tx: Transaction) -> bool:
    """Repair a run's status and mode. A run of unknown mode is halted: it starts nothing more."""
    known = status if status in list(RunStatus) else (RunStatus.HALTED if ended else RunStatus.RUNNING).value
    lasting = mode if mode in list(RunMode) else RunMode.HALTED.value
    tx.run(MEND_RUN, id=id, status=known, mode=lasting)
    if lasting != mode and not ended:
        tx.run(HALT, id=id, reasons=dumps([Reason.ROW_DAMAGED.value]))
        timers.set(tx, timers.SWEEP, id)
    audit.of_run(tx, "repair", id, repair=f"status {known}, mode {lasting}")
    return True


def _pieces(tx: Transaction) -> Iterable[Damage]:
    for due, id, kind, run in tx.rows(RUNLESS_TIMERS):
        message = f"a timer of kind {kind!r} is for run {run}, which is gone"
        yield Damage(f"timer {id}", message, partial(_forget_timer, int(due), str(id)))
    for id, kind, run in tx.rows(STRANGE_TIMERS):
        advice = (
            "A worker of a newer version of Penstock takes it. If there is none, the row was changed: put its kind "
            f"back, or cancel the run: penstock cancel {run}"
        )
        yield Damage(f"timer {id}", f"a timer of run {run} has the unknown kind {kind!r}", None, advice)
    for id, run, problem in tx.rows(FAILING_EXPANDS):
        advice = f"It is tried again by itself; if that does not help: penstock cancel {run}"
        yield Damage(f"expand {id}", f"an expand of run {run} cannot go on: {problem}", None, advice)


def _forget_timer(due: int, id: str, tx: Transaction) -> bool:
    timers.forget(tx, due, id)
    return True


def _definitions(find_pipeline: FindPipeline, tx: Transaction) -> Iterable[Damage]:
    """Definitions without which runs that have not ended cannot go on."""
    for (definition,) in tx.rows(DEFINITIONS_IN_USE, limit=MOST_PLACES):
        row = tx.row(DEFINITION, hash=definition)
        try:
            if row is not None:
                Definition.from_text(str(row[0]))
                continue
            words = "is missing"
        except DamagedDefinition as error:
            words = f"cannot be read ({error.__cause__})"
        run = tx.row(RUN_OF_DEFINITION, hash=definition)
        if run is not None and (row is not None or own_text(find_pipeline, definition, run[1]) is None):
            message = f"the definition {definition} {words}, and run {run[0]} needs it"
            yield Damage(f"definition {definition}", message, None, f"{RESTORE_DEFINITION}.")
