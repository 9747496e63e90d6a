"""Looking at runs: lists of them, and one by the beginning of its id."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.database.transaction import Transaction
from penstock.operate.jobs import id_range
from penstock.pipelines import reading
from penstock.pipelines.reading import RunStanding

WITH_PREFIX = "SELECT id FROM {runs} WHERE id >= :low AND id <= :high ORDER BY id LIMIT 2"


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


def find_run(tx: Transaction, prefix: str) -> str | None:
    """The run whose id begins so; None if there is none or more than one."""
    low, high = id_range(prefix)
    found = [str(row[0]) for row in tx.rows(WITH_PREFIX, low=low, high=high)]
    return found[0] if len(found) == 1 else None


def list_runs(
    tx: Transaction, pipeline: str | None, status: str | None, key: str | None, limit: int
) -> list[RunRow]:
    """Runs, newest first."""
    ids = reading.ids_of_runs(tx, pipeline, status, key, limit)
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
    )
