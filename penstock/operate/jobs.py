"""Reads jobs: lists with filters, newest first, and a report on one job."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from penstock.database.dialect import Row
from penstock.database.transaction import Transaction
from penstock.errors import PenstockError
from penstock.operate.overview import claimed_ids
from penstock.queue import job_records
from penstock.queue.limits.slots import USED
from penstock.values.ids import BETWEEN, FIRST_ID, LAST_ID
from penstock.values.status import JobStatus

STRIDE = 5_000
MOST_WALKED = 100_000
"""A filter that matches few jobs does not walk over all of them: after this many it returns the place it has
reached."""

COLUMNS = """
SELECT j.id, j.task, j.queue, j.priority, s.status, s.reason, s.retry_count, s.crash_count, j.created_at,
       s.claimed_at, s.finished_at, s.process_id, j.job_key, j.run_id, j.node, j.path, s.generation,
       (SELECT MIN(p.limit_key) FROM {parked} p WHERE p.job_id = j.id AND s.status = 'available')
FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id
"""
# The range is given for both tables: a database that begins with the second one would else read all of it.
WALK = " WHERE j.id < :before AND j.id >= :low AND s.job_id < :before AND s.job_id >= :low"
THESE = " WHERE j.id {among:ids:uuid} AND s.job_id {among:ids:uuid}"
ORDER = " ORDER BY j.id DESC LIMIT :limit"
BOUNDARY = "SELECT id FROM {jobs} WHERE id < :before ORDER BY id DESC LIMIT 1 OFFSET :stride"
FAILED = "SELECT job_id FROM {dead_letters} WHERE job_id < :before ORDER BY job_id DESC LIMIT :limit"
WITH_PREFIX = "SELECT id FROM {jobs} WHERE id >= :low AND id <= :high ORDER BY id LIMIT :limit"
MOST_COMPARED = 100_000
"""At most so many ids with the same beginning are compared, to find the one with the given end."""
LABELLED = """
SELECT job_id FROM {job_labels} WHERE label = :label AND job_id < :before ORDER BY job_id DESC LIMIT :limit
"""
HOLDERS = "SELECT job_id FROM {job_keys} WHERE job_key = :key AND job_id < :before"
OF_TASKS = " AND task {among:tasks:text}"
PAYLOAD = "SELECT payload, options, max_crashes FROM {jobs} WHERE id = :id"
DUE_AT = "SELECT due_at FROM {scheduled} WHERE job_id = :id"
LINE = f"""
SELECT l.most, {USED}, (SELECT COUNT(*) FROM {{parked}} p JOIN {{parked}} me ON me.job_id = :id
    AND me.limit_key = p.limit_key WHERE p.limit_key = l.limit_key
    AND (p.tier < me.tier OR (p.tier = me.tier AND p.place < me.place)))
FROM {{limits}} l WHERE l.limit_key = :key
"""
STEPS = "SELECT 1 FROM {jobs} WHERE id {among:ids:uuid} AND run_id IS NOT NULL LIMIT 1"
MADE = {"job": "SELECT 1 FROM {jobs} WHERE id = :id", "run": "SELECT 1 FROM {runs} WHERE id = :id"}
HOLDER = "SELECT host, pid, role, heartbeat_at, {now} FROM {processes} WHERE id = :id"


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job in a list. Times are microseconds by the database's clock."""

    id: str
    task: str
    queue: str
    priority: int
    status: JobStatus
    reason: str | None
    retry_count: int
    crash_count: int
    created_at: int
    claimed_at: int | None
    finished_at: int | None
    process_id: str | None
    key: str | None
    run_id: str | None
    node: str | None
    path: str | None
    attempt: int
    waits_for: str | None
    """The key of the limit that has no room for it."""


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Selects jobs. `key`: jobs that hold this key now."""

    status: JobStatus | None = None
    queue: str | None = None
    task: str | None = None
    label: str | None = None
    key: str | None = None
    known_tasks: tuple[str, ...] = ()
    """The tasks whose keys are searched if no task is given; empty: all tasks."""

    @property
    def conditions(self) -> str:
        columns = {"status": "s.status", "queue": "j.queue", "task": "j.task"}
        return "".join(f" AND {columns[name]} = :{name}" for name in self.parameters)

    @property
    def parameters(self) -> dict[str, object]:
        named = {"status": self.status and self.status.value, "queue": self.queue, "task": self.task}
        return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True, slots=True)
class JobsPage:
    """A page of jobs. `before`: where the next page begins; None: there are no more."""

    jobs: list[JobRow]
    before: str | None = None


@dataclass(frozen=True, slots=True)
class JobReport:
    """Everything known about one job."""

    job: JobRow
    payload: str
    options: str | None
    max_crashes: int | None
    due_at: int | None
    holder: Row | None
    progress: Row | None
    attempts: list[Row] = field(default_factory=list)
    """(number, process, started_at, finished_at, outcome, error_type, error, traceback)"""
    output: str | None = None
    line: Row | None = None
    """The limit that the job waits for, as (how many it allows, how many it has, how many jobs come before this one)"""


def list_jobs(tx: Transaction, wanted: JobFilter, limit: int = 50, before: str | None = None) -> JobsPage:
    """List jobs, newest first. Jobs by key, label, failure or claim are found directly, all others by walking back."""
    before = before or LAST_ID
    if wanted.key is not None:
        return _page(_these(tx, wanted, _holders(tx, wanted, before), limit), limit)
    if wanted.label is not None:
        return _listed(tx, wanted, limit, before, LABELLED, label=wanted.label)
    match wanted.status:
        case JobStatus.FAILED:
            return _listed(tx, wanted, limit, before, FAILED)
        case JobStatus.RUNNING:
            ids = [id for id in claimed_ids(tx) if id < before]
            return _page(_these(tx, wanted, ids, limit), limit)
        case _:
            return _walk(tx, wanted, limit, before)


def job_report(tx: Transaction, id: str) -> JobReport | None:
    """Report on one job, from its enqueue until now."""
    rows = tx.rows(COLUMNS + THESE, ids=[id])
    if not rows:
        return None
    job = job_of(rows[0])
    payload, options, max_crashes = tx.row(PAYLOAD, id=id) or ("null", None, None)
    due = tx.row(DUE_AT, id=id) if job.status is JobStatus.SCHEDULED else None
    output = tx.row(job_records.OUTPUT, id=id) if job.status is JobStatus.SUCCEEDED else None
    return JobReport(
        job,
        payload,
        options,
        max_crashes,
        due[0] if due else None,
        tx.row(HOLDER, id=job.process_id) if job.process_id else None,
        tx.row(job_records.PROGRESS, id=id),
        tx.rows(job_records.ATTEMPTS, id=id),
        output[0] if output else None,
        tx.row(LINE, id=id, key=job.waits_for) if job.waits_for else None,
    )


class UnknownId(PenstockError):
    """No job or run has an id that begins so."""


def find_job(tx: Transaction, given: str) -> str:
    """The one id that begins as given; refused if there is none, or more than one."""
    found = ids_like(tx, WITH_PREFIX, given)
    if not found:
        raise UnknownId(f"there is no job {given}; it may have been pruned. Look at: penstock jobs")
    if len(found) > 1:
        some = " and ".join(found[:2])
        raise PenstockError(f"{given} is the beginning of several ids, such as {some}: give more of it")
    return found[0]


def ids_like(tx: Transaction, template: str, given: str) -> list[str]:
    """A few ids that begin as given; with `019a953f-2c41..0b7f`, those that begin and end so."""
    head, dots, tail = given.replace("…", BETWEEN).partition(BETWEEN)
    low, high = id_range(head)
    if not dots:
        return [str(row[0]) for row in tx.rows(template, low=low, high=high, limit=3)]
    if not re.fullmatch(r"[0-9a-fA-F]{1,12}", tail.strip()):
        raise PenstockError(
            f"{given!r} is not a shortened id: after the dots it has up to 12 hexadecimal digits"
        )
    rows = tx.rows(template, low=low, high=high, limit=MOST_COMPARED)
    found = [str(row[0]) for row in rows if str(row[0]).endswith(tail.strip().lower())]
    if len(rows) == MOST_COMPARED:
        raise PenstockError(
            f"{MOST_COMPARED:,} ids and more begin with {head}: give more digits before the dots"
        )
    return found


def id_range(prefix: str) -> tuple[str, str]:
    """The lowest and the highest id with this beginning."""
    digits = prefix.strip().lower().replace("-", "")
    if not re.fullmatch(r"[0-9a-f]{1,32}", digits):
        raise PenstockError(
            f"{prefix!r} is not an id, nor the beginning of one: those are hexadecimal digits"
        )
    return _dashed(digits.ljust(32, "0")), _dashed(digits.ljust(32, "f"))


def _walk(tx: Transaction, wanted: JobFilter, limit: int, before: str) -> JobsPage:
    found: list[JobRow] = []
    for _ in range(0, MOST_WALKED, STRIDE):
        boundary = tx.row(BOUNDARY, before=before, stride=STRIDE)
        low = str(boundary[0]) if boundary else FIRST_ID
        template = COLUMNS + WALK + wanted.conditions + ORDER
        rows = tx.rows(template, before=before, low=low, limit=limit - len(found), **wanted.parameters)
        found += map(job_of, rows)
        if len(found) == limit:
            return JobsPage(found, found[-1].id)
        if boundary is None:
            return JobsPage(found)
        before = low
    return JobsPage(found, before)


def _holders(tx: Transaction, wanted: JobFilter, before: str) -> list[str]:
    """The jobs that hold a key: of one task, or of several."""
    tasks = [wanted.task] if wanted.task is not None else list(wanted.known_tasks)
    named = {"tasks": tasks} if tasks else {}
    template = HOLDERS + OF_TASKS if tasks else HOLDERS
    return [str(id) for (id,) in tx.rows(template, key=wanted.key, before=before, **named)]


def _listed(
    tx: Transaction, wanted: JobFilter, limit: int, before: str, listing: str, **named: object
) -> JobsPage:
    """Jobs that a narrow table lists: the dead letters, or those with a label."""
    found: list[JobRow] = []
    for _ in range(0, MOST_WALKED, STRIDE):
        ids = [str(id) for (id,) in tx.rows(listing, before=before, limit=STRIDE, **named)]
        found += _these(tx, wanted, ids, limit - len(found))
        if len(found) == limit:
            return JobsPage(found, found[-1].id)
        if len(ids) < STRIDE:
            return JobsPage(found)
        before = ids[-1]
    return JobsPage(found, before)


def _these(tx: Transaction, wanted: JobFilter, ids: Sequence[str], limit: int) -> list[JobRow]:
    if not ids:
        return []
    template = COLUMNS + THESE + wanted.conditions + ORDER
    return [job_of(row) for row in tx.rows(template, ids=ids, limit=limit, **wanted.parameters)]


def _page(found: list[JobRow], limit: int) -> JobsPage:
    return JobsPage(found, found[-1].id if len(found) == limit else None)


def job_of(row: Row) -> JobRow:
    id, task, queue, priority, status, reason, *rest = row
    current = JobStatus.stored(status)
    job = JobRow(str(id), task, queue, priority, current, reason if current.terminal else None, *rest)
    if current is JobStatus.SKIPPED and not job.retry_count + job.crash_count:
        # The claim found that its run had halted: no handler was called.
        return replace(job, attempt=0, claimed_at=None, process_id=None)
    return job


def _dashed(digits: str) -> str:
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def are_steps(tx: Transaction, ids: Sequence[str]) -> bool:
    """True if one of these jobs is a step of a run."""
    return bool(ids) and tx.row(STEPS, ids=list(ids)) is not None


def made_under(tx: Transaction, id: str) -> str | None:
    """The kind of thing that has this id, "job" or "run"; None if there is neither."""
    return next((kind for kind, sql in MADE.items() if tx.row(sql, id=id) is not None), None)
