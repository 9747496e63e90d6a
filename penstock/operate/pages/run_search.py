"""Searches runs and pipelines, page by page.

A statement looks at a window of rows, never at the whole history. If a window has fewer matching runs than a page has
room for, the next page continues after the window.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.database.transaction import Transaction
from penstock.operate.runs import RunRow, run_row
from penstock.pipelines.advance import read
from penstock.values.ids import LAST_ID
from penstock.values.status import RunStatus

WINDOW = 4_000
COUNT_LIMIT = 10_000
"""At most so many are counted; a larger count is shown with a plus."""
IN_WINDOW = "SELECT id, status, run_key FROM {runs} WHERE id < :before"
IS_ACTIVE = " AND ended_at IS NULL"
OF_PIPELINE = " AND pipeline = :pipeline"
WITH_LABEL = " AND id IN (SELECT run_id FROM {run_labels} WHERE label = :label)"
NEWEST = " ORDER BY id DESC LIMIT :window"
WITH_STATUS = " AND status = :status"
WITH_KEY = " AND run_key = :key"
ACTIVE = tuple([status.value for status in RunStatus if not status.terminal])
ACTIVE_COUNTS = """
SELECT status, COUNT(*) FROM (SELECT status FROM {runs} WHERE ended_at IS NULL LIMIT :limit) a GROUP BY status
"""
VERSIONS = "SELECT name, hash, created_at FROM {definitions} ORDER BY created_at DESC, hash LIMIT :limit"
VERSIONS_OF = """
SELECT hash, created_at FROM {definitions} WHERE name = :name ORDER BY created_at DESC, hash LIMIT :limit
"""
UNDER_WAY = """
SELECT pipeline, COUNT(*) FROM (SELECT pipeline FROM {runs} WHERE ended_at IS NULL LIMIT :limit) a GROUP BY pipeline
"""
NEWEST_RUNS = "SELECT id, status FROM {runs} WHERE pipeline = :pipeline ORDER BY id DESC LIMIT :limit"
TOOK = """
SELECT j.node, e.started_at, e.finished_at, j.created_at
FROM (SELECT id, node, created_at FROM {jobs} WHERE run_id {among:runs:uuid} LIMIT :limit) j
JOIN {executions} e ON e.job_id = j.id WHERE e.outcome = 'succeeded'
"""
TEXT = "SELECT text FROM {definitions} WHERE hash = :hash"


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Selects runs; None: the field does not matter."""

    pipeline: str | None = None
    status: str | None = None
    key: str | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True)
class RunPage:
    """A page of runs, newest first. `before`: where the next page begins; None: there are no more."""

    runs: list[RunRow]
    before: str | None


def page_of_runs(tx: Transaction, wanted: RunFilter, limit: int, before: str | None = None) -> RunPage:
    """The newest runs that match, older than `before`."""
    window = IN_WINDOW + (IS_ACTIVE if wanted.status in ACTIVE else "")
    window += (OF_PIPELINE if wanted.pipeline else "") + (WITH_LABEL if wanted.label else "") + NEWEST
    given: dict[str, object] = {"before": LAST_ID if before is None else before, "window": WINDOW}
    given |= {"pipeline": wanted.pipeline} if wanted.pipeline else {}
    given |= {"label": wanted.label} if wanted.label else {}
    matching = (WITH_STATUS if wanted.status else "") + (WITH_KEY if wanted.key else "")
    rest = {"status": wanted.status} if wanted.status else {}
    rest |= {"key": wanted.key} if wanted.key else {}
    template = f"SELECT id FROM ({window}) w WHERE 1 = 1{matching} ORDER BY id DESC LIMIT :limit"
    found = [str(id) for (id,) in tx.rows(template, limit=limit + 1, **given, **rest)]
    ids, more = found[:limit], len(found) > limit
    states = read.run_states(tx, ids) if ids else {}
    rows = [run_row(states[id]) for id in ids if id in states]
    if more:
        return RunPage(rows, ids[-1])
    last = tx.row(
        f"SELECT id FROM ({window}) w ORDER BY id DESC LIMIT 1 OFFSET :last", last=WINDOW - 1, **given
    )
    return RunPage(rows, None if last is None else str(last[0]))


def active_counts(tx: Transaction) -> dict[str, int]:
    """Count the runs that have not ended, by status; at most 10,000 are counted."""
    return {str(status): int(count) for status, count in tx.rows(ACTIVE_COUNTS, limit=COUNT_LIMIT)}


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """A definition that has had runs."""

    hash: str
    created_at: int


def versions(tx: Transaction, most: int = 2_000) -> dict[str, list[StoredVersion]]:
    """The definitions of each pipeline, the newest first."""
    found: dict[str, list[StoredVersion]] = {}
    for name, key, created in tx.rows(VERSIONS, limit=most):
        found.setdefault(str(name), []).append(StoredVersion(str(key), int(created)))
    return found


def versions_of(tx: Transaction, pipeline: str, most: int = 50) -> list[StoredVersion]:
    """The definitions of one pipeline, the newest first."""
    return [StoredVersion(str(key), int(at)) for key, at in tx.rows(VERSIONS_OF, name=pipeline, limit=most)]


def definition_text(tx: Transaction, key: str) -> str | None:
    row = tx.row(TEXT, hash=key)
    return None if row is None else str(row[0])


def under_way(tx: Transaction) -> dict[str, int]:
    """Count the runs that have not ended, by pipeline; at most 10,000 are counted in all."""
    return {str(name): int(count) for name, count in tx.rows(UNDER_WAY, limit=COUNT_LIMIT)}


@dataclass(frozen=True, slots=True)
class StepTimes:
    """How long the steps of a node took, in seconds, from a sample of the newest runs."""

    node: str
    count: int
    middle: float
    slow: float
    """Nine in ten steps took no longer."""
    waited: float
    """The median time from the creation of a step until its attempt began."""


def newest_statuses(tx: Transaction, pipeline: str, most: int = 30) -> list[tuple[str, str]]:
    """The newest runs of a pipeline: id and status."""
    return [(str(id), str(status)) for id, status in tx.rows(NEWEST_RUNS, pipeline=pipeline, limit=most)]


def step_times(tx: Transaction, runs: list[str], most: int = 2_000) -> list[StepTimes]:
    """Measure the successful attempts of at most so many steps in these runs."""
    sample: dict[str, list[tuple[float, float]]] = {}
    for node, started, finished, created in tx.rows(TOOK, runs=runs, limit=most) if runs else ():
        times = ((int(finished) - int(started)) / 1e6, max(0, int(started) - int(created)) / 1e6)
        sample.setdefault(str(node), []).append(times)
    return [_times(node, found) for node, found in sorted(sample.items())]


def _times(node: str, found: list[tuple[float, float]]) -> StepTimes:
    took, waited = sorted([one for one, _ in found]), sorted([one for _, one in found])
    return StepTimes(
        node, len(found), took[len(took) // 2], took[(len(took) * 9) // 10], waited[len(waited) // 2]
    )
