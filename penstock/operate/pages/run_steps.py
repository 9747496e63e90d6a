"""Reads one run for its page: the status of its steps (a part of them where they are many), waits, values and
relatives.

Every statement has a limit of its own, so a run of a million elements is shown as quickly as one of ten. Counts are
exact up to a limit, and say so where they are not. The engine counts the ended elements of an expand in its joins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.database.transaction import Transaction
from penstock.pipelines.model.definition import Node
from penstock.pipelines.model.wiring import Wiring
from penstock.run_context import HEADERS

MOST_COUNTED = 2_000
MOST_PER_NODE = 1_000
MOST_NODES = 200
WINDOW = 2_000
FEW = 5
RUN = """
SELECT id, pipeline, definition, run_key, args, status, mode, failed, reasons, result, parent_run_id, parent_job_id,
  revived_from, rerun_of, only_step, created_at, started_at, paused_at, ended_at, scheduled_for,
  forked_from, {now}
FROM {runs} WHERE id = :id
"""
COUNTED = """
SELECT node, status, COUNT(*) FROM (
  SELECT j.node AS node, s.status AS status FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id
  WHERE j.run_id = :run LIMIT :limit) c GROUP BY node, status
"""
COUNTED_OF_NODE = """
SELECT status, COUNT(*) FROM (
  SELECT s.status AS status FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id
  WHERE j.run_id = :run AND j.node = :node LIMIT :limit) c GROUP BY status
"""
PROGRESS = """
SELECT node, still_open, width FROM {joins}
WHERE run_id = :run AND node {among:nodes:text} AND path = '' AND width IS NOT NULL
"""
STEP = """
SELECT j.id, j.node, j.path, j.task, s.status, s.reason, s.claimed_at, s.finished_at, j.created_at, s.retry_count,
  s.crash_count, s.due_at
FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id WHERE j.run_id = :run
"""
OF_NODE = " AND j.node = :node"
AFTER = " AND j.path > :after"
AT = " AND j.path = :path"
IN_ORDER = " ORDER BY j.path LIMIT :limit"
ATTEMPTS = """
SELECT job_id, generation, process_id, started_at, finished_at, outcome, error_type, error
FROM {executions} WHERE job_id {among:ids:uuid} ORDER BY job_id, generation LIMIT :limit
"""
WAITING = """
SELECT j.id, j.node, j.path, j.created_at FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id
WHERE j.run_id = :run AND j.node = :node AND s.status = 'waiting' ORDER BY j.path LIMIT :limit
"""
SIGNALS = "SELECT name, value, signalled_at FROM {signals} WHERE run_id = :run ORDER BY name LIMIT :limit"
ELEMENT_SIGNALS = """
SELECT name, path, value, signalled_at FROM {element_signals} WHERE run_id = :run ORDER BY name, path LIMIT :limit
"""
CONTEXT = """
SELECT tuple_key, value, set_at FROM {tuples} WHERE run_id = :run AND tuple_key <> :headers
ORDER BY tuple_key LIMIT :limit
"""
CHILDREN = """
SELECT r.id, r.pipeline, r.status, r.parent_job_id, j.node, j.path
FROM {runs} r LEFT JOIN {jobs} j ON j.id = r.parent_job_id WHERE r.parent_run_id = :run ORDER BY r.id LIMIT :limit
"""
FOLLOWS = """
SELECT r.id, r.pipeline, r.status FROM {chains} c JOIN {runs} r ON r.id = c.upstream_id
WHERE c.downstream_id = :run ORDER BY r.id LIMIT :limit
"""
FOLLOWED_BY = """
SELECT r.id, r.pipeline, r.status FROM {chains} c JOIN {runs} r ON r.id = c.downstream_id
WHERE c.upstream_id = :run ORDER BY r.id LIMIT :limit
"""
BRIEFLY = "SELECT id, pipeline, status FROM {runs} WHERE id {among:ids:uuid}"
OUTPUT = """
SELECT output FROM {executions} WHERE job_id = :job AND outcome = 'succeeded' ORDER BY generation DESC LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class RunDetail:
    """A run's row, with everything its page shows. `now` is the database's clock."""

    id: str
    pipeline: str
    definition: str
    key: str | None
    args: str
    status: str
    mode: str
    failed: int
    reasons: str
    result: str | None
    parent: str | None
    parent_job: str | None
    revived_from: str | None
    rerun_of: str | None
    only_step: str | None
    created_at: int
    started_at: int | None
    paused_at: int | None
    ended_at: int | None
    scheduled_for: int | None
    forked_from: str | None
    now: int


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step of a run. Times in microseconds."""

    id: str
    node: str
    path: str
    task: str
    status: str
    reason: str | None
    claimed_at: int | None
    finished_at: int | None
    created_at: int
    retries: int
    crashes: int
    due_at: int | None


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """An attempt that has ended."""

    number: int
    process: str | None
    started_at: int
    finished_at: int
    outcome: str
    error_type: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class StepPage:
    """Some steps of a node, in the order of their paths. `after`: where the next page begins; None: no more."""

    steps: list[StepRow]
    after: str | None


@dataclass(frozen=True, slots=True)
class StepCounts:
    """The number of steps by node and status. `capped`: nodes that have more steps than were counted."""

    counts: Mapping[str, Mapping[str, int]]
    capped: frozenset[str]

    @property
    def total(self) -> int:
        return sum([sum(each.values()) for each in self.counts.values()])


@dataclass(frozen=True, slots=True)
class RelatedRun:
    """A run that is related to another."""

    id: str
    pipeline: str
    status: str
    job: str | None = None
    node: str | None = None
    path: str | None = None


@dataclass(frozen=True, slots=True)
class Relatives:
    """The runs around a run: steps of it, those it follows, and those that follow it."""

    children: list[RelatedRun]
    follows: list[RelatedRun]
    followed_by: list[RelatedRun]


def run_detail(tx: Transaction, id: str) -> RunDetail | None:
    row = tx.row(RUN, id=id)
    return None if row is None else RunDetail(*row)


def step_counts(tx: Transaction, run: str, nodes: Sequence[str]) -> StepCounts:
    """Count the steps exactly; if there are too many, count each node up to a limit."""
    counts: dict[str, dict[str, int]] = {}
    for node, status, count in tx.rows(COUNTED, run=run, limit=MOST_COUNTED):
        counts.setdefault(str(node), {})[str(status)] = int(count)
    if sum([sum(each.values()) for each in counts.values()]) < MOST_COUNTED:
        return StepCounts(counts, frozenset())
    counts = {}
    for node in nodes[:MOST_NODES]:
        rows = tx.rows(COUNTED_OF_NODE, run=run, node=node, limit=MOST_PER_NODE)
        counts[node] = {str(status): int(count) for status, count in rows}
    capped = [node for node, each in counts.items() if sum(each.values()) >= MOST_PER_NODE]
    return StepCounts({node: each for node, each in counts.items() if each}, frozenset(capped))


def expand_progress(tx: Transaction, run: str, wiring: Wiring) -> dict[str, tuple[int, int]]:
    """For each expand of the outermost scope: how many of its elements have ended, and how many there are."""
    closers = {
        key: expand
        for expand, place in wiring.places.items()
        for key in place.closers
        if not place.node.scope
    }
    found: dict[str, tuple[int, int]] = {}
    for node, still_open, width in tx.rows(PROGRESS, run=run, nodes=sorted(closers)) if closers else ():
        per_element = max(wiring.places[str(node)].count, 1)
        ended = int(width) - -(-int(still_open) // per_element)
        found[closers[str(node)]] = (max(ended, 0), int(width))
    return found


def steps_of_node(
    tx: Transaction, run: str, node: str, limit: int, after: str | None = None, status: str | None = None
) -> StepPage:
    """A page of a node's steps. With a status, only a window of steps is searched."""
    template = STEP + OF_NODE + (AFTER if after is not None else "") + IN_ORDER
    given = {"run": run, "node": node} | ({"after": after} if after is not None else {})
    if status is None:
        found = [_step(row) for row in tx.rows(template, limit=limit + 1, **given)]
        return StepPage(found[:limit], found[limit - 1].path if len(found) > limit else None)
    window = [_step(row) for row in tx.rows(template, limit=WINDOW, **given)]
    found = [step for step in window if step.status == status]
    if len(found) > limit:
        return StepPage(found[:limit], found[limit - 1].path)
    return StepPage(found, window[-1].path if len(window) == WINDOW else None)


def step_at(tx: Transaction, run: str, node: str, path: str) -> StepRow | None:
    row = tx.row(STEP + OF_NODE + AT, run=run, node=node, path=path)
    return None if row is None else _step(row)


def sampled_steps(tx: Transaction, run: str, known: StepCounts, limit: int) -> list[StepRow]:
    """All steps, if there are no more than `limit`; else the first few of every node, and some that failed.

    In the order in which they were made.
    """
    if known.total <= limit and not known.capped:
        found = [_step(row) for row in tx.rows(STEP + " LIMIT :limit", run=run, limit=limit)]
    else:
        share = max(limit // max(len(known.counts), 1), 2)
        found = []
        for node in list(known.counts)[: limit // 2]:
            found += steps_of_node(tx, run, node, share).steps
        for node in [node for node, counts in known.counts.items() if counts.get("failed")][:FEW]:
            found += steps_of_node(tx, run, node, FEW, status="failed").steps
        found = list({step.id: step for step in found}.values())
    return sorted(found, key=lambda step: (step.created_at, step.id))[:limit]


def attempts_of(tx: Transaction, jobs: Sequence[str], limit: int = 1_000) -> dict[str, list[AttemptRow]]:
    """The attempts of each job, in order."""
    found: dict[str, list[AttemptRow]] = {}
    for job, *row in tx.rows(ATTEMPTS, ids=list(jobs), limit=limit) if jobs else ():
        found.setdefault(str(job), []).append(AttemptRow(*row))
    return found


def waiting_steps(
    tx: Transaction, run: str, node: Node, limit: int
) -> list[tuple[str, str, int, int | None]]:
    """Steps that wait for the node's signal: (job, path, since when, until when)."""
    timeout = None if node.wait is None else node.wait.timeout
    found = []
    for job, _, path, created in tx.rows(WAITING, run=run, node=node.key, limit=limit):
        until = None if timeout is None else int(created) + int(timeout * 1_000_000)
        found.append((str(job), str(path or ""), int(created), until))
    return found


def signals_given(tx: Transaction, run: str, limit: int) -> list[tuple[str, str, str, int]]:
    """Signals that were given: (name, path, value as JSON, time)."""
    to_all = [
        (str(name), "", str(value), int(at)) for name, value, at in tx.rows(SIGNALS, run=run, limit=limit)
    ]
    to_one = tx.rows(ELEMENT_SIGNALS, run=run, limit=limit)
    return [*to_all, *[(str(name), str(path), str(value), int(at)) for name, path, value, at in to_one]][
        :limit
    ]


def context_values(tx: Transaction, run: str, limit: int) -> list[tuple[str, str, int]]:
    """The run's context: (key, value as JSON, time at which it was set)."""
    found = tx.rows(CONTEXT, run=run, headers=HEADERS, limit=limit)
    return [(str(key), str(value), int(at)) for key, value, at in found]


def relatives(tx: Transaction, run: str, limit: int) -> Relatives:
    children = [RelatedRun(*_texts(row)) for row in tx.rows(CHILDREN, run=run, limit=limit)]
    follows = [RelatedRun(*_texts(row)) for row in tx.rows(FOLLOWS, run=run, limit=limit)]
    behind = [RelatedRun(*_texts(row)) for row in tx.rows(FOLLOWED_BY, run=run, limit=limit)]
    return Relatives(children, follows, behind)


def briefly(tx: Transaction, ids: Sequence[str]) -> dict[str, RelatedRun]:
    """Runs by id; pruned runs are missing."""
    rows = tx.rows(BRIEFLY, ids=sorted(set(ids))) if ids else ()
    return {str(row[0]): RelatedRun(*_texts(row)) for row in rows}


def output_of(tx: Transaction, job: str) -> str | None:
    """The output of a step that succeeded, as JSON."""
    row = tx.row(OUTPUT, job=job)
    return None if row is None else row[0]


def _step(row: Sequence[object]) -> StepRow:
    id, node, path, *rest = row
    return StepRow(str(id), str(node), str(path or ""), *rest)  # type: ignore[arg-type]


def _texts(row: Sequence[object]) -> list[str]:
    return [None if value is None else str(value) for value in row]  # type: ignore[misc]
