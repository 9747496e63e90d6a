"""Searches jobs for operators: filters, pages by id, and walks that end in time and say how far they came.

The cost of a search does not grow with the history. Jobs that wait, run or have failed are found through the small
tables, all others by walking back along the ids, for at most `seconds`. A search that has not found a full page by then
returns what it has, and the place where the next search begins.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields

from penstock.database.transaction import Transaction
from penstock.operate.jobs import BOUNDARY, COLUMNS, LABELLED, ORDER, THESE, WALK, JobRow, job_of
from penstock.operate.overview import claimed_ids
from penstock.values.ids import FIRST_ID, LAST_ID
from penstock.values.status import JobStatus

STRIDE = 2000
TEXT_STRIDE = 500
SECONDS = 0.06
"""Seconds that a search walks before it returns what it has."""
MOST_WAITING = 5000
"""At most so many waiting jobs are looked at."""
SLACK = 600_000
"""Milliseconds by which the producer's clock may differ from the database's; an id holds the producer's time."""

KEYED = "SELECT job_id FROM {job_keys} WHERE task {among:tasks:text} AND job_key = :key"
DEAD = """
SELECT job_id, queue, task, reason, fingerprint FROM {dead_letters} WHERE job_id < :before AND job_id >= :low
ORDER BY job_id DESC LIMIT :limit
"""
AVAILABLE = "SELECT job_id, queue, task FROM {availabilities} LIMIT :limit"
AVAILABLE_IN_QUEUE = "SELECT job_id, queue, task FROM {availabilities} WHERE queue = :queue LIMIT :limit"
PARKED = "SELECT job_id, queue, task FROM {parked} LIMIT :limit"
SCHEDULED = "SELECT job_id, queue, task FROM {scheduled} LIMIT :limit"
TEXT = """ AND (LOWER(j.payload) LIKE :text ESCAPE '!' OR EXISTS (SELECT 1 FROM {executions} e
  WHERE e.job_id = j.id AND (LOWER(e.error) LIKE :text ESCAPE '!' OR LOWER(e.error_type) LIKE :text ESCAPE '!')
  LIMIT 1 OFFSET 0))"""
# The OFFSET keeps PostgreSQL from reading the whole table of attempts into a hash instead of looking at a few.
CONDITIONS = {
    "status": " AND s.status = :status",
    "queue": " AND j.queue = :queue",
    "task": " AND j.task = :task",
    "key": " AND j.job_key = :key",
    "since": " AND j.created_at >= :since",
    "until": " AND j.created_at <= :until",
    "text": TEXT,
    "label": " AND EXISTS (SELECT 1 FROM {job_labels} l WHERE l.job_id = j.id AND l.label = :label LIMIT 1 OFFSET 0)",
}
OF_DEAD_LETTERS = ("queue", "task", "reason", "fingerprint")


@dataclass(frozen=True, slots=True)
class JobSearch:
    """A filter on jobs; None matches all. `reason` and `fingerprint` are of failed jobs; times in microseconds."""

    status: JobStatus | None = None
    queue: str | None = None
    task: str | None = None
    key: str | None = None
    label: str | None = None
    text: str | None = None
    since: int | None = None
    until: int | None = None
    reason: str | None = None
    fingerprint: str | None = None
    tasks: Sequence[str] = field(default=(), compare=False)
    """Names of tasks among which a key is looked up."""

    @property
    def given(self) -> dict[str, object]:
        """The fields that have a value."""
        found = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "tasks"}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def conditions(self) -> str:
        return "".join(CONDITIONS[name] for name in self.given if name in CONDITIONS)

    @property
    def parameters(self) -> dict[str, object]:
        values = {name: value for name, value in self.given.items() if name in CONDITIONS}
        if self.status is not None:
            values["status"] = self.status.value
        if self.text is not None:
            values["text"] = f"%{_literal(self.text.lower())}%"
        return values

    @property
    def of_dead_letters(self) -> bool:
        """True if only dead letters can match."""
        return self.status is JobStatus.FAILED or bool(self.reason or self.fingerprint)


@dataclass(frozen=True, slots=True)
class FoundJobs:
    """A page of jobs, newest first. `before`: where the next page begins; None: there are no more."""

    jobs: list[JobRow]
    before: str | None = None
    walked: int = 0
    """How many jobs were looked at."""
    partial: bool = False
    """True if the search ended before it had found a full page: there may be more, further back."""


def search(
    tx: Transaction, wanted: JobSearch, limit: int, before: str | None = None, seconds: float = SECONDS
) -> FoundJobs:
    """Jobs that match, newest first, below the id `before`."""
    high = min(before or LAST_ID, _id_at(wanted.until, SLACK, LAST_ID))
    low = _id_at(wanted.since, -SLACK, FIRST_ID)
    if wanted.key is not None and (wanted.task or wanted.tasks):
        names = [wanted.task] if wanted.task else list(wanted.tasks)
        ids = [str(id) for (id,) in tx.rows(KEYED, tasks=names, key=wanted.key)]
        return _among(tx, wanted, ids, limit, high)
    if wanted.of_dead_letters:
        return _walk(tx, wanted, limit, high, low, seconds, _dead)
    match wanted.status:
        case JobStatus.RUNNING:
            return _among(tx, wanted, claimed_ids(tx), limit, high)
        case JobStatus.AVAILABLE:
            return _waiting(
                tx, wanted, limit, high, AVAILABLE_IN_QUEUE if wanted.queue else AVAILABLE, PARKED
            )
        case JobStatus.SCHEDULED:
            return _waiting(tx, wanted, limit, high, SCHEDULED)
        case _:
            look = _stride if wanted.label is None else _labelled
            return _walk(tx, wanted, limit, high, low, seconds, look)


def _waiting(tx: Transaction, wanted: JobSearch, limit: int, high: str, *tables: str) -> FoundJobs:
    """Look at the first waiting jobs: they are in small tables, in the order in which workers will take them.

    If very many jobs wait, those of a rare task may not be among the first: then the answer is marked as partial.
    """
    ids: list[str] = []
    capped = False
    for template in tables:
        given = {"queue": wanted.queue} if template is AVAILABLE_IN_QUEUE else {}
        rows = tx.rows(template, limit=MOST_WAITING, **given)
        capped = capped or len(rows) == MOST_WAITING
        ids += [
            str(id)
            for id, queue, task in rows
            if wanted.queue in (None, queue) and wanted.task in (None, task)
        ]
    found = _among(tx, wanted, ids, limit, high)
    return FoundJobs(found.jobs, found.before, found.walked, partial=capped and found.before is None)


def _among(tx: Transaction, wanted: JobSearch, ids: Sequence[str], limit: int, high: str) -> FoundJobs:
    below = sorted((id for id in ids if id < high), reverse=True)
    found: list[JobRow] = []
    for start in range(0, len(below), STRIDE):
        some = below[start : start + STRIDE]
        template = COLUMNS + THESE + wanted.conditions + ORDER
        rows = tx.rows(template, ids=some, limit=limit - len(found), **wanted.parameters)
        found += map(job_of, rows)
        if len(found) >= limit:
            return FoundJobs(found, found[-1].id, start + len(some))
    return FoundJobs(found, None, len(below))


Look = Callable[[Transaction, JobSearch, str, str, int, int], tuple[list[JobRow], str | None]]


def _walk(
    tx: Transaction, wanted: JobSearch, limit: int, high: str, low: str, seconds: float, look: Look
) -> FoundJobs:
    """Walk back, one stride after the other, until the page is full, the jobs end, or the time is up."""
    found: list[JobRow] = []
    stride = TEXT_STRIDE if wanted.text else STRIDE
    deadline, walked = time.monotonic() + seconds, 0
    while True:
        rows, reached = look(tx, wanted, high, low, limit - len(found), stride)
        found += rows
        walked += stride
        if len(found) >= limit:
            return FoundJobs(found, found[-1].id, walked)
        if reached is None or reached <= low:
            return FoundJobs(found, None, walked)
        high = reached
        if time.monotonic() > deadline:
            return FoundJobs(found, high, walked, partial=True)


def _stride(
    tx: Transaction, wanted: JobSearch, high: str, low: str, limit: int, stride: int
) -> tuple[list[JobRow], str | None]:
    boundary = tx.row(BOUNDARY, before=high, stride=stride)
    reached = str(boundary[0]) if boundary else None
    floor = max(low, reached or FIRST_ID)
    template = COLUMNS + WALK + wanted.conditions + ORDER
    rows = tx.rows(template, before=high, low=floor, limit=limit, **wanted.parameters)
    return [job_of(row) for row in rows], reached


def _dead(
    tx: Transaction, wanted: JobSearch, high: str, low: str, limit: int, stride: int
) -> tuple[list[JobRow], str | None]:
    """Walk along the dead letters. Their columns are compared here, because a stride counts rows, not matches."""
    letters = tx.rows(DEAD, before=high, low=low, limit=stride)
    given = [wanted.given.get(name) for name in OF_DEAD_LETTERS]
    ids = [
        str(id)
        for id, *known in letters
        if all(want in (None, has) for want, has in zip(given, known, strict=True))
    ]
    reached = str(letters[-1][0]) if len(letters) == stride else None
    if not ids:
        return [], reached
    rows = tx.rows(COLUMNS + THESE + wanted.conditions + ORDER, ids=ids, limit=limit, **wanted.parameters)
    return [job_of(row) for row in rows], reached


def _labelled(
    tx: Transaction, wanted: JobSearch, high: str, low: str, limit: int, stride: int
) -> tuple[list[JobRow], str | None]:
    rows = tx.rows(LABELLED, label=wanted.label, before=high, limit=stride)
    ids = [str(id) for (id,) in rows if str(id) >= low]
    template = COLUMNS + THESE + wanted.conditions + ORDER
    found = tx.rows(template, ids=ids, limit=limit, **wanted.parameters) if ids else []
    return [job_of(row) for row in found], ids[-1] if len(ids) == stride else None


def _id_at(micros: int | None, slack: int, otherwise: str) -> str:
    """The lowest id of an instant: ids begin with the milliseconds at which their producer made them."""
    if micros is None:
        return otherwise
    stamp = min(max(0, micros // 1000 + slack), (1 << 48) - 1)
    digits = f"{stamp:012x}"
    return f"{digits[:8]}-{digits[8:]}{FIRST_ID[13:]}"


def _literal(text: str) -> str:
    """Escape a text for LIKE, so that its own wildcards have no meaning."""
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")
