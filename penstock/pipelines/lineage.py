"""Where a revived run comes from: the runs before it, and what they made of a step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.database.transaction import Transaction
from penstock.values.status import JobStatus

ANCESTOR = "SELECT revived_from FROM {runs} WHERE id = :id"
STEPS_BEFORE = """
SELECT j.run_id, j.node, j.path, j.id, s.status, s.reason FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id
WHERE j.run_id {among:runs:uuid} AND j.node {among:nodes:text} AND j.path {among:paths:text}
"""
OUTPUTS = "SELECT job_id, output FROM {executions} WHERE job_id {among:ids:uuid} AND outcome = 'succeeded'"
CHILDREN = """
SELECT r.parent_run_id, j.node, j.path, r.id, r.definition FROM {runs} r JOIN {jobs} j ON j.id = r.parent_job_id
WHERE r.parent_run_id {among:runs:uuid} AND j.node {among:nodes:text} AND j.path {among:paths:text}
"""

Place = tuple[str, str]
"""A node, and a path as text."""


class Before(NamedTuple):
    """What earlier runs made of a step."""

    first: str
    """The job of its first incarnation: its idempotency key."""
    succeeded: str | None
    """The job that has its output."""
    failed: tuple[str, str | None] | None
    """The job that failed last, and why."""


class Child(NamedTuple):
    """A run that was a step of another."""

    id: str
    definition: str


def ancestors(tx: Transaction, run: str) -> list[str]:
    """The run and those it was revived from, nearest first."""
    lineage = [run]
    while (row := tx.row(ANCESTOR, id=lineage[-1])) is not None and row[0] is not None:
        lineage.append(str(row[0]))
    return lineage


def before(tx: Transaction, origin: str, places: Iterable[Place]) -> dict[Place, Before]:
    """What the run `origin`, and those before it, made of the steps at these places."""
    lineage, wanted = ancestors(tx, origin), set(places)
    nodes, paths = sorted({node for node, _ in wanted}), sorted({path for _, path in wanted})
    found: dict[Place, Before] = {}
    rows = tx.rows(STEPS_BEFORE, runs=lineage, nodes=nodes, paths=paths)
    # Nearest ancestor first: its word counts; the farthest one gives the key.
    for row in sorted(rows, key=lambda row: lineage.index(str(row[0]))):
        where = (str(row[1]), str(row[2] or ""))
        found[where] = _added(found.get(where), str(row[3]), JobStatus(row[4]), row[5])
    return found


def outputs(tx: Transaction, known: Iterable[Before]) -> dict[str, str | None]:
    """The outputs of those that succeeded, by job; what was pruned is not there."""
    jobs = sorted({one.succeeded for one in known if one.succeeded is not None})
    return {str(job): output for job, output in tx.rows(OUTPUTS, ids=jobs)} if jobs else {}


def _added(known: Before | None, job: str, status: JobStatus, reason: str | None) -> Before:
    succeeded = known.succeeded if known is not None else None
    failed = known.failed if known is not None else None
    if succeeded is None and status is JobStatus.SUCCEEDED:
        succeeded = job
    if failed is None and status is JobStatus.FAILED:
        failed = (job, reason)
    return Before(job, succeeded, failed)


def children(tx: Transaction, origin: str, places: Iterable[Place]) -> dict[Place, Child]:
    """The child runs that steps at these places had, each in the nearest run that had one."""
    lineage, wanted = ancestors(tx, origin), set(places)
    nodes, paths = sorted({node for node, _ in wanted}), sorted({path for _, path in wanted})
    rows = tx.rows(CHILDREN, runs=lineage, nodes=nodes, paths=paths)
    found: dict[Place, Child] = {}
    for _, node, path, *child in sorted(rows, key=lambda row: (lineage.index(str(row[0])), str(row[3]))):
        found.setdefault((str(node), str(path or "")), Child(*[str(part) for part in child]))
    return found
