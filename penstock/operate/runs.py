"""Reads runs: lists of them, and one by the beginning of its id."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from penstock.database.transaction import Transaction
from penstock.errors import PenstockError
from penstock.operate.jobs import UnknownId, find_job, ids_like
from penstock.pipelines.advance import read
from penstock.pipelines.advance.read import RunStatusRow
from penstock.pipelines.model.definition import DamagedDefinition, Definition, Node, NodeKind, Wait
from penstock.pipelines.model.expressions import path_of
from penstock.pipelines.run import Step, step_of

WITH_PREFIX = "SELECT id FROM {runs} WHERE id >= :low AND id <= :high ORDER BY id LIMIT :limit"

NOTABLE = """
SELECT j.id, j.node, j.path, j.task, s.status, s.reason, s.claimed_at, s.finished_at, j.created_at
FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id WHERE j.run_id = :run
ORDER BY CASE s.status WHEN 'failed' THEN 0 WHEN 'succeeded' THEN 2 WHEN 'skipped' THEN 3 ELSE 1 END, j.id LIMIT :limit
"""
WAITING = """
SELECT j.node, j.path, j.created_at FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id
WHERE j.run_id = :run AND j.node {among:nodes:text} AND s.status = 'waiting' ORDER BY j.id LIMIT :limit
"""
ATTEMPTS = """
SELECT job_id, generation, process_id, started_at, finished_at, outcome, error_type, error, NULL, NULL
FROM {executions} WHERE job_id {among:ids:uuid} ORDER BY job_id, generation
"""
DEFINITION = "SELECT d.text FROM {runs} r JOIN {definitions} d ON d.hash = r.definition WHERE r.id = :id"
DEFINITIONS = "SELECT hash, text FROM {definitions} WHERE name = :name ORDER BY hash"


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run of a list. Times in microseconds of the database's clock."""

    id: str
    pipeline: str
    status: str
    key: str | None
    reasons: tuple[str, ...]
    created_at: int
    started_at: int | None
    ended_at: int | None
    parent: str | None
    revived_from: str | None
    rerun_of: str | None
    forked_from: str | None


def find_run(tx: Transaction, prefix: str) -> str:
    """The run whose id begins as given; refused if there is none, or more than one."""
    found = ids_like(tx, WITH_PREFIX, prefix)
    if not found:
        raise UnknownId(f"there is no run {prefix}; it may have been pruned. Look at: penstock runs")
    if len(found) > 1:
        raise PenstockError(
            f"{prefix} is the beginning of several runs, such as {' and '.join(found[:2])}: give more"
        )
    return found[0]


def find_run_or_job(tx: Transaction, prefix: str) -> tuple[str, bool]:
    """The id that begins as given, and whether it is a run's; a run goes before the jobs that were made with it."""
    found = ids_like(tx, WITH_PREFIX, prefix)
    if len(found) == 1:
        return found[0], True
    if len(found) > 1:
        return find_run(tx, prefix), True
    try:
        return find_job(tx, prefix), False
    except UnknownId:
        ways = "Look at: penstock runs, penstock jobs"
        raise UnknownId(f"there is no run and no job {prefix}; it may have been pruned. {ways}") from None


def notable_steps(tx: Transaction, run: str, limit: int) -> list[Step]:
    """At most so many steps of a run with their attempts, without outputs and tracebacks.

    Failed steps come first, then those that are not over, then succeeded steps, then skipped ones; each in the order in
    which they were made.
    """
    rows = tx.rows(NOTABLE, run=run, limit=limit) if limit else []
    attempts: dict[str, list[Sequence[object]]] = {}
    ids = [str(row[0]) for row in rows]
    for job, *attempt in tx.rows(ATTEMPTS, ids=ids) if ids else ():
        attempts.setdefault(str(job), []).append(attempt)
    return [step_of(row, attempts.get(str(row[0]), []), lambda _node, _text: None) for row in rows]


@dataclass(frozen=True, slots=True)
class OpenWait:
    """A step that waits for a signal. Times in microseconds of the database's clock."""

    node: str
    signal: str
    path: tuple[int, ...]
    since_at: int
    until_at: int | None
    """The time at which the wait ends; None: it has no timeout."""
    default: str | None
    """The step's value if no signal comes in time, as JSON; None: the step fails then."""


def open_waits(tx: Transaction, run: str, limit: int) -> list[OpenWait]:
    """The steps of a run that wait for signals, the earliest first."""
    waits = {node.key: node for node in _nodes(tx, run) if node.kind is NodeKind.WAIT}
    if not waits:
        return []
    found = []
    for name, path, since in tx.rows(WAITING, run=run, nodes=sorted(waits), limit=limit):
        node = waits[str(name)]
        wait = node.wait or Wait()
        until = None if wait.timeout is None else int(since) + int(wait.timeout * 1_000_000)
        found.append(OpenWait(node.key, node.target, path_of(path or ""), int(since), until, wait.default))
    return found


def _nodes(tx: Transaction, run: str) -> tuple[Node, ...]:
    row = tx.row(DEFINITION, id=run)
    return Definition.from_text(str(row[0])).nodes if row is not None else ()


def list_runs(
    tx: Transaction,
    pipeline: str | None,
    status: str | None,
    key: str | None,
    limit: int,
    label: str | None = None,
) -> list[RunRow]:
    """Runs, newest first."""
    ids = read.ids_of_runs(tx, pipeline, status, key, limit, label)
    states = read.run_states(tx, ids) if ids else {}
    return [run_row(states[id]) for id in ids if id in states]


def run_row(state: RunStatusRow) -> RunRow:
    return RunRow(
        state.id,
        state.pipeline,
        state.status.value,
        state.key,
        state.reasons,
        state.created_at,
        state.started_at,
        state.ended_at,
        state.parent_run,
        state.revived_from if state.forked_from is None else None,
        state.rerun_of,
        state.forked_from,
    )


def find_definition(tx: Transaction, pipeline: str, prefix: str) -> Definition:
    """The stored definition of a pipeline whose hash begins as given; refused if there is none, or more than one."""
    rows = tx.rows(DEFINITIONS, name=pipeline)
    found = [Definition.from_text(str(text)) for key, text in rows if str(key).startswith(prefix.lower())]
    if len(found) != 1:
        known = ", ".join(sorted([str(key)[:12] for key, _ in rows])) or "none"
        many = "several begin with it" if found else "there is none"
        raise PenstockError(
            f"{prefix} does not name one definition of {pipeline}: {many}; stored are {known}"
        )
    return found[0]


# Pipelines that a database knows: their newest definition, how many definitions there were, and active runs.

PIPELINE_DEFINITIONS = "SELECT name, text FROM {definitions} ORDER BY created_at, hash"
UNDER_WAY = "SELECT pipeline, COUNT(*) FROM {runs} WHERE ended_at IS NULL GROUP BY pipeline"


@dataclass(frozen=True, slots=True)
class Entry:
    """One pipeline. `versions`: how many definitions of it have had runs."""

    pipeline: str
    description: str = ""
    parameters: tuple[str, ...] = ()
    steps: int = 0
    definition: str = ""
    versions: int = 0
    under_way: int = 0

    def now(self, definition: Definition, description: str = "") -> Entry:
        """A copy with this definition."""
        steps = sum(node.kind.is_step for node in definition.nodes)
        return replace(
            self,
            description=description,
            parameters=definition.params,
            steps=steps,
            definition=definition.hash,
        )


def stored(tx: Transaction) -> dict[str, Entry]:
    """All pipelines by name."""
    found: dict[str, Entry] = {}
    for name, text in tx.rows(PIPELINE_DEFINITIONS):
        before = found.get(str(name)) or Entry(str(name))
        found[str(name)] = replace(before, versions=before.versions + 1)
        with suppress(DamagedDefinition):  # it is counted, and the last one that can be read is shown
            found[str(name)] = found[str(name)].now(Definition.from_text(str(text)))
    for name, count in tx.rows(UNDER_WAY):
        if name in found:
            found[str(name)] = replace(found[str(name)], under_way=int(count))
    return found
