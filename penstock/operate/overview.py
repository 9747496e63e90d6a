"""The state of all queues, in numbers.

Counts are read from the narrow tables only and stop at a limit, so their cost does not grow with the amount of work.
Finished jobs are never read.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.database.transaction import Transaction
from penstock.queue.jobs import jobs_of_receipt
from penstock.queue.reclaim import DEAD_AT
from penstock.queue.rules import queue_controls
from penstock.queue.rules.queue_controls import QueueControl
from penstock.queue.tallies import queue_lengths
from penstock.telemetry.prometheus_text import Family, expose, labelled

COUNT_LIMIT = 100_000
RECENT = 1000

SCHEDULED = """
SELECT queue, COUNT(*) FROM (SELECT queue FROM {scheduled} LIMIT :limit) counted GROUP BY queue
"""
LIMITED = """
SELECT queue, COUNT(*) FROM (SELECT queue FROM {parked} LIMIT :limit) counted GROUP BY queue
"""
LIMITED_BY_KEY = """
SELECT limit_key, COUNT(*) FROM (SELECT limit_key FROM {parked} LIMIT :limit) counted GROUP BY limit_key
"""
DEAD = """
SELECT queue, COUNT(*) FROM (SELECT queue FROM {dead_letters} LIMIT :limit) counted GROUP BY queue
"""
CLAIMED = "SELECT job_ids FROM {claims}"
RUNNING = """
SELECT j.queue, COUNT(*) FROM {job_states} s JOIN {jobs} j ON j.id = s.job_id
WHERE s.job_id {among:ids:uuid} AND s.status = 'running' GROUP BY j.queue
"""
NEWEST = """
SELECT s.status, COUNT(*) FROM (SELECT id FROM {jobs} ORDER BY id DESC LIMIT :limit) n
JOIN {job_states} s ON s.job_id = n.id GROUP BY s.status
"""
PROCESSES = f"SELECT role, COUNT(*) FROM {{processes}} WHERE {DEAD_AT} >= {{now}} GROUP BY role"


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """One queue. `lag`: for how many seconds its oldest ready job has waited, since it was enqueued, was due, or last
    ran."""

    queue: str
    available: int = 0
    scheduled: int = 0
    running: int = 0
    failed: int = 0
    lag: float | None = None
    limited: int = 0
    """Available, but waiting for room in their limits."""
    paused_at: int | None = None
    """The time since when the queue is paused, in microseconds of the database's clock; None: it is not paused."""
    paused_by: str | None = None
    pause_why: str | None = None


@dataclass(frozen=True, slots=True)
class Overview:
    """All queues, the live processes by role, and the newest jobs by status."""

    queues: list[QueueCounts]
    processes: dict[str, int]
    recent: dict[str, int]
    count_limit: int
    limited: dict[str, int] = field(default_factory=dict)
    """Jobs that wait for a limit, by the limit's name; all keys of the limit are added up."""

    @property
    def workers(self) -> int:
        return workers_among(self.processes)


def workers_among(processes: Mapping[str, int]) -> int:
    """How many processes run jobs or rows: all but supervisors."""
    return sum(count for role, count in processes.items() if role != "supervisor")


def overview(tx: Transaction, reap_after: float, limit: int = COUNT_LIMIT) -> Overview:
    """Count what waits, runs and has failed, up to `limit` each."""
    return Overview(
        queue_counts(tx, limit),
        live_processes(tx, reap_after),
        {status: int(count) for status, count in tx.rows(NEWEST, limit=RECENT)},
        limit,
        limited_by_name(tx, limit),
    )


def live_processes(tx: Transaction, reap_after: float) -> dict[str, int]:
    """How many processes are alive, by role."""
    rows = tx.rows(PROCESSES, silence=int(reap_after * 1_000_000))
    return {role: int(count) for role, count in rows}


def limited_by_name(tx: Transaction, limit: int = COUNT_LIMIT) -> dict[str, int]:
    """Jobs that wait for limits, by the name of the limit: there may be very many keys, such as one for each
    account."""
    found: Counter[str] = Counter()
    for key, count in tx.rows(LIMITED_BY_KEY, limit=limit):
        found[str(key).partition(": ")[0]] += int(count)
    return dict(found)


def queue_counts(tx: Transaction, limit: int = COUNT_LIMIT) -> list[QueueCounts]:
    """Every queue that has jobs or is paused."""
    lengths = queue_lengths(tx, limit)
    counts: dict[str, dict[str, int]] = defaultdict(dict)
    for queue, (length, _) in lengths.items():
        counts[queue]["available"] = length
    for name, found in (
        ("scheduled", tx.rows(SCHEDULED, limit=limit)),
        ("limited", tx.rows(LIMITED, limit=limit)),
        ("failed", tx.rows(DEAD, limit=limit)),
        ("running", running(tx).items()),
    ):
        for queue, count in found:
            counts[queue][name] = int(count)
    lags = {queue: lag for queue, (_, lag) in lengths.items()}
    pauses = {pause.name: pause for pause in queue_controls.listed(tx)}
    return [
        _row(queue, counts[queue], lags.get(queue), pauses.get(queue)) for queue in sorted({*counts, *pauses})
    ]


def _row(queue: str, found: dict[str, int], lag: float | None, pause: QueueControl | None) -> QueueCounts:
    row = QueueCounts(
        queue,
        found.get("available", 0),
        found.get("scheduled", 0),
        found.get("running", 0),
        found.get("failed", 0),
        lag,
        found.get("limited", 0),
    )
    if pause is None:
        return row
    return replace(row, paused_at=pause.changed_at, paused_by=pause.changed_by, pause_why=pause.why)


def running(tx: Transaction) -> Counter[str]:
    """Running jobs by queue, found through the claims. The count is exact, and bounded by what the processes hold."""
    ids = claimed_ids(tx)
    found: Counter[str] = Counter()
    for start in range(0, len(ids), 1000):
        for queue, count in tx.rows(RUNNING, ids=ids[start : start + 1000]):
            found[queue] += int(count)
    return found


def claimed_ids(tx: Transaction) -> list[str]:
    """The jobs of all claims, newest first. Some of them may have ended: a receipt is removed with its last job."""
    return sorted({id for (ids,) in tx.rows(CLAIMED) for id in jobs_of_receipt(ids) or ()}, reverse=True)


# The state of all queues as metrics, for a collector that reads one endpoint.

STATES = ("available", "limited", "scheduled", "running", "failed")


def gauges(seen: Overview) -> str:
    """Queue lengths, lags and live processes, in the text format that Prometheus reads."""
    lengths = [
        ("", labelled({"queue": queue.queue, "status": state}), float(getattr(queue, state)))
        for queue in seen.queues
        for state in STATES
    ]
    lags = [
        ("", labelled({"queue": queue.queue}), queue.lag) for queue in seen.queues if queue.lag is not None
    ]
    limited = [("", labelled({"limit": name}), float(count)) for name, count in sorted(seen.limited.items())]
    alive = [("", labelled({"role": role}), float(count)) for role, count in sorted(seen.processes.items())]
    return expose(
        [
            Family(
                "penstock_queue_jobs", "gauge", f"Jobs by status, counted up to {seen.count_limit}.", lengths
            ),
            Family("penstock_queue_lag_seconds", "gauge", "How long the oldest ready job has waited.", lags),
            Family("penstock_limited_jobs", "gauge", "Jobs that wait for a limit, by its name.", limited),
            Family("penstock_processes", "gauge", "Live processes by role.", alive),
        ]
    )
