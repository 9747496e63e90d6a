"""Counts of finished attempts: a tally in the transaction that settles them, and roll-ups by time that charts read.

A tally is one narrow row for each task, queue and outcome of a settle, however many jobs were settled together. It is
there if and only if the settle was committed. `fold` adds tallies to the roll-ups of their minute, ten minutes and hour
and deletes them, in one transaction: each is counted exactly once. Any number of processes may fold at the same time
(each locks the tallies that it folds, and passes by those of others); one that dies leaves nothing half done. A settle
that commits late brings its tally along, and the next fold finds it: no moment is ever declared complete.

Charts read the roll-ups and the few tallies that are not folded yet, never the history. See docs/decisions/036.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import NamedTuple, Protocol

from penstock.database.transaction import Transaction
from penstock.queue import claim
from penstock.queue.jobs import Attempt
from penstock.values.status import JobStatus, OutcomeKind

BATCH = 2000
MOST_COUNTED = 10_000
MINUTE = 60_000_000
CRASHED = OutcomeKind.CRASHED.value

ANY = "SELECT 1 FROM {tallies} LIMIT 1"
PICK = """
SELECT seq, tallied_at, task, queue, outcome, attempts, failed, run_micros, longest FROM {tallies}"""
BUT = " WHERE NOT (seq {among:left:int})"
ONLY = " WHERE seq {among:only:int}"
FIRST = " ORDER BY seq LIMIT :limit {lock_skip}"
SEQS = "SELECT seq FROM {tallies}"
REMOVE = "DELETE FROM {tallies} WHERE seq {among:seqs:int}"
MOST_SUMMED = 4 * 10**18
"""The largest sum; two of them fit into a column. A roll-up with a larger number was damaged, and starts again at 0."""
ADDED = ", ".join(
    f"{name} = CASE WHEN {name} BETWEEN 0 AND {MOST_SUMMED} THEN {name} ELSE 0 END + :{name}"
    for name in ("attempts", "failed", "run_micros")
)
ADD = f"""
UPDATE {{rollups}} SET {ADDED}, longest = CASE WHEN longest < :longest THEN :longest ELSE longest END
WHERE span = :span AND begins_at = :begins_at AND task = :task AND queue = :queue AND outcome = :outcome
"""
SAMPLE = """
UPDATE {queue_samples} SET available = CASE WHEN available < :available THEN :available ELSE available END,
  {quote}lag{quote} = CASE WHEN {quote}lag{quote} < :lag THEN :lag ELSE {quote}lag{quote} END
WHERE span = :span AND begins_at = :begins_at AND queue = :queue
"""
NOW = "SELECT {now}"
# One statement that goes from queue to queue by index probes.
QUEUES = """
WITH RECURSIVE q(queue) AS (SELECT MIN(queue) FROM {availabilities} UNION ALL
  SELECT (SELECT MIN(a.queue) FROM {availabilities} a WHERE a.queue > q.queue) FROM q WHERE q.queue IS NOT NULL)
SELECT queue FROM q WHERE queue IS NOT NULL
"""
OF_QUEUE = """
SELECT %d, (SELECT COUNT(*) FROM (SELECT 1 FROM {availabilities} WHERE queue = :queue%d LIMIT :limit) counted),
  (SELECT MIN(tier) FROM {availabilities} WHERE queue = :queue%d),
  (SELECT MAX(tier) FROM {availabilities} WHERE queue = :queue%d),
  (SELECT job_id FROM {availabilities} WHERE queue = :queue%d ORDER BY tier, seq LIMIT 1)
"""
TOGETHER = 20
"""How many queues one statement looks at."""
HEAD = "SELECT job_id FROM {availabilities} WHERE queue = :queue AND tier = :tier ORDER BY seq LIMIT 1"
WAITING_SINCE = """
SELECT j.id, {now}, j.created_at, s.due_at, (SELECT MAX(e.finished_at) FROM {executions} e WHERE e.job_id = j.id)
FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id WHERE j.id {among:ids:uuid}
"""
OLD = "DELETE FROM {rollups} WHERE span = :span AND begins_at < {now} - :age"
OLD_SAMPLES = "DELETE FROM {queue_samples} WHERE span = :span AND begins_at < {now} - :age"


class RollupSpan(StrEnum):
    """The length of time that a roll-up covers."""

    MINUTE = "minute"
    TEN_MINUTES = "ten_minutes"
    HOUR = "hour"

    @property
    def micros(self) -> int:
        return {"minute": 1, "ten_minutes": 10, "hour": 60}[self.value] * MINUTE

    @property
    def kept(self) -> float:
        """Seconds for which its roll-ups are kept."""
        day = 86_400.0
        return {"minute": day / 4, "ten_minutes": 3 * day, "hour": 90 * day}[self.value]

    def begin(self, at: int) -> int:
        return at - at % self.micros


class QueueSample(NamedTuple):
    """How long a queue was at a moment, and for how long the first of it had waited, in microseconds."""

    queue: str
    available: int
    lag: int


class CrashedJob(Protocol):
    """A job whose holder died."""

    @property
    def task(self) -> str: ...

    @property
    def status(self) -> JobStatus: ...


def count(tx: Transaction, attempts: Sequence[Attempt]) -> None:
    """Write the tallies of settled attempts that ran, by task, queue and outcome."""
    counted: dict[tuple[str, str, str], list[int]] = {}
    for attempt in attempts:
        if not attempt.began or attempt.kept:
            continue
        held, outcome = attempt.claim, attempt.outcome
        took = attempt.began_ago - attempt.ended_ago
        failed = outcome.status is JobStatus.FAILED
        sums = counted.setdefault((held.task, held.queue, outcome.kind.value), [0, 0, 0, 0])
        sums[0] += 1
        sums[1] += failed
        sums[2] += took
        sums[3] = max(sums[3], took)
    _write(tx, counted)


def count_crashes(tx: Transaction, crashed: Iterable[tuple[Mapping[str, object], CrashedJob]]) -> None:
    """Write the tallies of attempts whose process died."""
    counted: dict[tuple[str, str, str], list[int]] = {}
    for place, job in crashed:
        sums = counted.setdefault((job.task, str(place["queue"]), CRASHED), [0, 0, 0, 0])
        sums[0] += 1
        sums[1] += job.status is JobStatus.FAILED
    _write(tx, counted)


def _write(tx: Transaction, counted: dict[tuple[str, str, str], list[int]]) -> None:
    if counted:
        tx.stage("tally")
        rows = [
            {
                "task": task,
                "queue": queue,
                "outcome": outcome,
                "attempts": sums[0],
                "failed": sums[1],
                "run_micros": sums[2],
                "longest": sums[3],
            }
            for (task, queue, outcome), sums in counted.items()
        ]
        tx.insert("tallies", rows, tallied_at="{now}")


def are_there(tx: Transaction) -> bool:
    """True if there are tallies to fold."""
    return tx.row(ANY) is not None


def first(tx: Transaction, left: Collection[int] = (), limit: int = BATCH) -> list[int]:
    """The tallies that `fold` would find."""
    given = {"left": sorted(left)} if left else {}
    template = SEQS + (BUT if left else "") + " ORDER BY seq LIMIT :limit"
    return [int(seq) for (seq,) in tx.rows(template, limit=limit, **given)]


def fold(
    tx: Transaction, limit: int = BATCH, left: Collection[int] = (), only: Collection[int] | None = None
) -> bool:
    """Add some tallies to the roll-ups; True if there may be more.

    `left`: tallies that are set aside. `only`: of all that there are, these.
    """
    tx.stage("fold")
    given: dict[str, list[int]] = {"left": sorted(left)} if left else {}
    some = BUT if left else ""
    if only is not None:
        given, some = {"only": sorted(only)}, ONLY
    rows = tx.rows(PICK + some + FIRST, limit=limit, **given)
    if not rows:
        return False
    sums: dict[tuple[str, int, str, str, str], Counter[str]] = defaultdict(Counter)
    for _seq, at, task, queue, outcome, attempts, failed, run_micros, longest in rows:
        for span in RollupSpan:
            one = sums[span.value, span.begin(at), task, queue, outcome]
            one.update(attempts=attempts, failed=failed, run_micros=run_micros)
            one["longest"] = max(one["longest"], longest)
    keys = ("span", "begins_at", "task", "queue", "outcome")
    zero = {"attempts": 0, "failed": 0, "run_micros": 0, "longest": 0}
    named = [(dict(zip(keys, key, strict=True)), sums[key]) for key in sorted(sums)]
    tx.insert("rollups", [{**key, **zero} for key, _ in named], ignore_duplicates=True)
    for key, one in named:
        tx.run(ADD, **key, **{name: min(max(one[name], 0), MOST_SUMMED) for name in zero})
    tx.run(REMOVE, seqs=[row[0] for row in rows])
    return len(rows) == limit


def sample(tx: Transaction, samples: Sequence[QueueSample]) -> None:
    """Write the present length of queues; for each span of time the largest is kept."""
    row = tx.row(NOW)
    if not samples or row is None:
        return
    tx.stage("sample")
    keys = [
        {"span": span.value, "begins_at": span.begin(int(row[0])), "queue": one.queue}
        for span in RollupSpan
        for one in sorted(samples)
    ]
    tx.insert("queue_samples", [{**key, "available": 0, "lag": 0} for key in keys], ignore_duplicates=True)
    known = {one.queue: one for one in samples}
    for key in keys:
        one = known[str(key["queue"])]
        tx.run(SAMPLE, **key, available=one.available, lag=one.lag)


def measure(tx: Transaction) -> list[QueueSample]:
    """The queues as they are now, each counted up to a limit."""
    found = queue_lengths(tx, MOST_COUNTED)
    return [
        QueueSample(queue, length, int((lag or 0.0) * 1_000_000))
        for queue, (length, lag) in sorted(found.items())
    ]


def queue_lengths(tx: Transaction, limit: int) -> dict[str, tuple[int, float | None]]:
    """Of every queue with something ready: how many, counted up to a limit, and for how long its first have waited.

    Index probes; in a few statements, however many queues there are, if the database can. `None`: its first was taken
    meanwhile.
    """
    at_once = tx.dialect.probes_in_recursion
    queues = [str(queue) for (queue,) in tx.rows(QUEUES)] if at_once else list(claim.ready_queues(tx))
    lengths: dict[str, int] = {}
    heads: dict[str, list[str]] = {}
    for start in range(0, len(queues), TOGETHER):
        some = queues[start : start + TOGETHER]
        named = {f"queue{place}": queue for place, queue in enumerate(some)}
        for place, length, first, last, head in tx.rows(_of_queues(len(some)), limit=limit, **named):
            queue = some[int(place)]
            lengths[queue] = int(length)
            heads[queue] = [] if head is None else [str(head), *_other_heads(tx, queue, first, last)]
    waited = _waited(tx, [head for some in heads.values() for head in some])
    lags = {queue: [waited[head] for head in some if head in waited] for queue, some in heads.items()}
    return {queue: (length, max(lags[queue], default=None)) for queue, length in lengths.items()}


@cache
def _of_queues(count: int) -> str:
    return " UNION ALL ".join(OF_QUEUE % ((place,) * 5) for place in range(count))


def _other_heads(tx: Transaction, queue: str, first: int, last: int) -> list[str]:
    """The heads of all tiers but the first: most queues have one tier only."""
    if first == last:
        return []
    lanes = claim.discover(tx, [queue], (queue, first))
    found = [tx.row(HEAD, queue=queue, tier=tier) for _, tier in lanes]
    return [str(row[0]) for row in found if row is not None]


def _waited(tx: Transaction, ids: Sequence[str]) -> dict[str, float]:
    """For how many seconds jobs have been ready: since they were enqueued, were due, or last ran."""
    found: dict[str, float] = {}
    for start in range(0, len(ids), BATCH):
        for id, now, *moments in tx.rows(WAITING_SINCE, ids=ids[start : start + BATCH]):
            found[str(id)] = (now - max(moment or 0 for moment in moments)) / 1_000_000
    return found


def prune(tx: Transaction) -> None:
    """Remove roll-ups that are older than their span is kept."""
    tx.stage("prune_rollups")
    for span in RollupSpan:
        tx.run(OLD, span=span.value, age=int(span.kept * 1_000_000))
        tx.run(OLD_SAMPLES, span=span.value, age=int(span.kept * 1_000_000))
