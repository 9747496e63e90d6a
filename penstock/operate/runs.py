"""Looking at runs: lists of them, and one by the beginning of its id."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.database.transaction import Transaction
from penstock.errors import PenstockError
from penstock.operate.jobs import UnknownId, find_job, id_range
from penstock.pipelines import reading
from penstock.pipelines.definition import Definition, Kind
from penstock.pipelines.reading import RunStanding

WITH_PREFIX = "SELECT id FROM {runs} WHERE id >= :low AND id <= :high ORDER BY id LIMIT 2"

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


def find_run(tx: Transaction, prefix: str) -> str:
    """The run whose id begins so; refused if there is none or more than one."""
    found = _beginning(tx, prefix)
    if not found:
        raise PenstockError(f"there is no run {prefix}; it may have been pruned. Look at: penstock runs")
    if len(found) > 1:
        raise PenstockError(
            f"{prefix} is the beginning of several runs, such as {' and '.join(found)}: give more"
        )
    return found[0]


def find_run_or_job(tx: Transaction, prefix: str) -> tuple[str, bool]:
    """The id that begins so, and whether it is a run's; a run goes before the jobs that were made with it."""
    found = _beginning(tx, prefix)
    if len(found) == 1:
        return found[0], True
    if len(found) > 1:
        return find_run(tx, prefix), True
    try:
        return find_job(tx, prefix), False
    except UnknownId:
        ways = "Look at: penstock runs, penstock jobs"
        raise UnknownId(f"there is no run and no job {prefix}; it may have been pruned. {ways}") from None


def signals_of(tx: Transaction, run: str) -> set[str]:
    """The signals that steps of this run wait for, at some time."""
    row = tx.row(DEFINITION, id=run)
    nodes = Definition.from_text(str(row[0])).nodes if row is not None else ()
    return {node.target for node in nodes if node.kind is Kind.WAIT}


def _beginning(tx: Transaction, prefix: str) -> list[str]:
    low, high = id_range(prefix)
    return [str(row[0]) for row in tx.rows(WITH_PREFIX, low=low, high=high)]


def list_runs(
    tx: Transaction,
    pipeline: str | None,
    status: str | None,
    key: str | None,
    limit: int,
    label: str | None = None,
) -> list[RunRow]:
    """Runs, newest first."""
    ids = reading.ids_of_runs(tx, pipeline, status, key, limit, label)
    standings = reading.standings(tx, ids) if ids else {}
    return [run_row(standings[id]) for id in ids if id in standings]


def run_row(standing: RunStanding) -> RunRow:
    return RunRow(
        standing.id,
        standing.pipeline,
        standing.status.value,
        standing.key,
        standing.reasons,
        standing.created_at,
        standing.started_at,
        standing.ended_at,
        standing.parent_run,
        standing.revived_from,
        standing.rerun_of,
    )


def find_definition(tx: Transaction, pipeline: str, prefix: str) -> Definition:
    """The stored definition of a pipeline whose hash begins so; refused if there is none or more than one."""
    rows = tx.rows(DEFINITIONS, name=pipeline)
    found = [Definition.from_text(str(text)) for key, text in rows if str(key).startswith(prefix.lower())]
    if len(found) != 1:
        known = ", ".join(sorted([str(key)[:12] for key, _ in rows])) or "none"
        many = "several begin so" if found else "there is none"
        raise PenstockError(f"{prefix} names no one definition of {pipeline}: {many}; stored are {known}")
    return found[0]
