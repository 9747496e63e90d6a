"""Where a revived run comes from: the runs before it, and what they made of a step.

They may have had another definition. Then only those steps count that come to the same in both: they and all that they
were made from are not changed. The others are new, and have new idempotency keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.database.transaction import Transaction
from penstock.pipelines.desk import Desk
from penstock.pipelines.moving import stable_nodes
from penstock.pipelines.runs import RunView, wiring_for
from penstock.values.status import JobStatus

ANCESTOR = "SELECT revived_from, definition FROM {runs} WHERE id = :id"
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


def ancestors(tx: Transaction, run: str) -> dict[str, str]:
    """The run and those it was revived from, nearest first, each with its definition."""
    found: dict[str, str] = {}
    next_one: str | None = run
    while next_one is not None and (row := tx.row(ANCESTOR, id=next_one)) is not None:
        found[next_one] = str(row[1])
        next_one = None if row[0] is None else str(row[0])
    return found


def before(desk: Desk, tx: Transaction, run: RunView, places: Iterable[Place]) -> dict[Place, Before]:
    """What the runs that this one was revived from made of the steps at these places."""
    definitions, wanted = ancestors(tx, str(run.revived_from)), set(places)
    nodes, paths = sorted({node for node, _ in wanted}), sorted({path for _, path in wanted})
    found: dict[Place, Before] = {}
    lineage = list(definitions)
    rows = tx.rows(STEPS_BEFORE, runs=lineage, nodes=nodes, paths=paths)
    # Nearest ancestor first: its word counts; the farthest one gives the key.
    for row in sorted(rows, key=lambda row: lineage.index(str(row[0]))):
        where = (str(row[1]), str(row[2] or ""))
        if _is_same(desk, tx, definitions[str(row[0])], run, where[0]):
            found[where] = _added(found.get(where), str(row[3]), JobStatus(row[4]), row[5])
    return found


def _is_same(desk: Desk, tx: Transaction, definition: str, run: RunView, node: str) -> bool:
    if definition == run.definition:
        return True
    pair = (definition, run.definition)
    if pair not in desk.stable:
        desk.stable[pair] = stable_nodes(wiring_for(desk, tx, definition), run.wiring)
    return node in desk.stable[pair]


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


def children(desk: Desk, tx: Transaction, run: RunView, places: Iterable[Place]) -> dict[Place, Child]:
    """The child runs that steps at these places had, each in the nearest run that had one."""
    definitions, wanted = ancestors(tx, str(run.revived_from)), set(places)
    nodes, paths = sorted({node for node, _ in wanted}), sorted({path for _, path in wanted})
    lineage = list(definitions)
    rows = tx.rows(CHILDREN, runs=lineage, nodes=nodes, paths=paths)
    found: dict[Place, Child] = {}
    for parent, node, path, *child in sorted(rows, key=lambda row: (lineage.index(str(row[0])), str(row[3]))):
        if _is_same(desk, tx, definitions[str(parent)], run, str(node)):
            found.setdefault((str(node), str(path or "")), Child(*[str(part) for part in child]))
    return found
