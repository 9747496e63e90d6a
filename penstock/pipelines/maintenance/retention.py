"""Removes old runs, oldest end first, each with all its steps at once unless it is very large; the run's row last.

A run stays as long as a stored run may need it. A run that was revived asks all those before it what they made of a
step, also for its idempotency key, under which `once()` remembers; so the one before it stays while it
is there. A child is continued when its parent is revived, to any depth, or the last of its own revivals is; so all of
these stay while its parent is there. A run stays while a fork of it is there, which asks like a revived one. And a run
stays until those that follow it have ended.

Small runs go together: a transaction for each would be most of what it costs. Their rows are locked first, as by every
transaction that would build on one, and what holds them back is asked again under those locks; a run that another
transaction has locked stays, and none is waited for. A run so large that it goes in pieces goes alone, and cannot be
revived once the first piece is gone: it is marked as revived, by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from penstock.database.dialect import Row
from penstock.database.transaction import Transaction
from penstock.pipelines.lifecycle import revivals
from penstock.queue.retention import REMOVALS

BATCH = 1000
"""The most steps that one transaction removes."""
TOGETHER = 100
"""The most runs that one transaction removes."""
MOST_LOOKED_AT = 500
"""How many runs are read at once, if the runs before them must stay."""

FREE = """
SELECT r.id, r.pipeline, r.run_key, r.revived_from, r.forked_from FROM {runs} r WHERE r.ended_at <= {now} - :age
  AND NOT EXISTS (SELECT 1 FROM {chains} c JOIN {runs} d ON d.id = c.downstream_id
    WHERE c.upstream_id = r.id AND d.ended_at IS NULL)
  AND NOT EXISTS (SELECT 1 FROM {runs} p WHERE p.id = r.parent_run_id)
  AND NOT EXISTS (SELECT 1 FROM {runs} f WHERE f.forked_from = r.id)
"""
OLDEST = FREE + "ORDER BY r.ended_at, r.id LIMIT :limit OFFSET :skip"
STILL_FREE = FREE + "AND r.id {among:runs:uuid}"
LOCK = "SELECT id FROM {runs} {by_key} WHERE id {among:runs:uuid} {lock_skip}"
BEFORE = """
SELECT r.revived_from, r.forked_from, p.id FROM {runs} r LEFT JOIN {runs} p ON p.id = r.parent_run_id WHERE r.id = :run
"""
CONTINUED = """
SELECT k.run_key, k.run_id FROM {run_keys} k JOIN {runs} d ON d.id = k.run_id
WHERE k.pipeline {among:pipelines:text} AND k.run_key {among:keys:text}
"""
STEPS = "SELECT id FROM {jobs} WHERE run_id {among:runs:uuid} LIMIT :limit"
OF_RUNS = (
    "DELETE FROM {joins} WHERE run_id {among:runs:uuid}",
    "DELETE FROM {run_places} WHERE run_id {among:runs:uuid}",
    "DELETE FROM {run_labels} WHERE run_id {among:runs:uuid}",
    "DELETE FROM {signals} WHERE run_id {among:runs:uuid}",
    "DELETE FROM {element_signals} WHERE run_id {among:runs:uuid}",
    "DELETE FROM {tuples} WHERE run_id {among:runs:uuid}",
    "DELETE FROM {chains} WHERE downstream_id {among:runs:uuid}",
    "DELETE FROM {chains} WHERE upstream_id {among:runs:uuid}",
    "DELETE FROM {advancements} WHERE run_id {among:runs:uuid}",
    "DELETE FROM {runs} WHERE id {among:runs:uuid}",
)
FORGET_KEYS = """
DELETE FROM {run_keys} WHERE pipeline {among:pipelines:text} AND run_key {among:keys:text} AND run_id {among:runs:uuid}
"""
FORGET_REVIVALS = "DELETE FROM {run_keys} WHERE pipeline {among:pipelines:text} AND run_key {among:keys:text}"


def prune(
    tx: Transaction, age: float, left: Collection[str] = (), only: Collection[str] | None = None
) -> tuple[int, bool]:
    """Remove some runs, or a batch of the steps of one: how many runs are gone for good, and whether there is more.

    `left`: runs that are set aside. `only`: of all that may go, these.
    """
    tx.stage("prune_runs")
    found = _leaving(tx, int(age * 1_000_000), left, only)
    if not found:
        return 0, False
    rows, ids = _fitting(tx, found)
    if ids:
        for removal in REMOVALS:
            tx.run(removal, ids=ids)
    if len(ids) == BATCH:
        run, pipeline, *_ = rows[0]
        revivals.claim_revival(tx, str(pipeline), str(run), str(run))
        return 0, True
    _forget(tx, rows)
    return len(rows), True


def leaving(tx: Transaction, age: float, left: Collection[str] = ()) -> list[str]:
    """The runs that `prune` would find."""
    return [str(row[0]) for row in _leaving(tx, int(age * 1_000_000), left, None)]


def _leaving(tx: Transaction, age: int, left: Collection[str], only: Collection[str] | None) -> list[Row]:
    """Some of the oldest runs that may be removed, all locked."""
    skip, limit = 0, TOGETHER
    while found := tx.rows(OLDEST, age=age, limit=limit, skip=skip):
        continued = _continued(tx, found)
        wanted = [row for row in found if str(row[0]) not in left and (only is None or str(row[0]) in only)]
        free = [row for row in wanted if str(row[0]) not in continued and not _is_for_a_parent(tx, *row[3:])]
        if leaving := _locked(tx, age, free[:TOGETHER]):
            return leaving
        skip, limit = skip + limit, MOST_LOOKED_AT
    return []


def _locked(tx: Transaction, age: int, found: Sequence[Row]) -> list[Row]:
    """The runs that no other transaction has locked, and that nothing holds back even now."""
    if not found:
        return []
    ours = [str(id) for (id,) in tx.rows(LOCK, runs=sorted(str(row[0]) for row in found))]
    if not ours:
        return []
    still = {str(row[0]) for row in tx.rows(STILL_FREE, age=age, runs=ours)}
    still -= _continued(tx, found)
    return [row for row in found if str(row[0]) in still]


def _fitting(tx: Transaction, rows: Sequence[Row]) -> tuple[Sequence[Row], list[str]]:
    """As many of these runs as have less than a batch of steps together, and those; or the first, with a batch."""
    first = _steps(tx, rows[:1])
    while len(first) < BATCH and len(rows) > 1:
        ids = _steps(tx, rows)
        if len(ids) < BATCH:
            return rows, ids
        rows = rows[: len(rows) // 2]
    return rows[:1], first


def _steps(tx: Transaction, rows: Sequence[Row]) -> list[str]:
    found = tx.rows(STEPS, runs=[str(row[0]) for row in rows], limit=BATCH)
    return [str(id) for (id,) in found]


def _forget(tx: Transaction, rows: Sequence[Row]) -> None:
    """Remove all rows of these runs except their steps."""
    runs = sorted(str(row[0]) for row in rows)
    pipelines = sorted({str(row[1]) for row in rows})
    keys = sorted(str(row[2]) for row in rows if row[2] is not None)
    if keys:
        tx.run(FORGET_KEYS, pipelines=pipelines, keys=keys, runs=runs)
    tx.run(FORGET_REVIVALS, pipelines=pipelines, keys=[revivals.key_of(run) for run in runs])
    for removal in OF_RUNS:
        tx.run(removal, runs=runs)


def _is_for_a_parent(tx: Transaction, before: object, forked_from: object) -> bool:
    """True if the run continues a child whose parent is stored: a revival of the parent goes on from here.

    A fork continues no child: a revival of the parent goes on from the child itself, or from a revival of it.
    """
    while before is not None and forked_from is None and (row := tx.row(BEFORE, run=before)) is not None:
        before, forked_from, parent = row
        if parent is not None:
            return True
    return False


def _continued(tx: Transaction, found: Sequence[Row]) -> set[str]:
    """The runs whose revival is stored. A run that is marked as its own revival is half removed."""
    runs = {revivals.key_of(str(row[0])): str(row[0]) for row in found}
    pipelines = sorted({str(row[1]) for row in found})
    rows = tx.rows(CONTINUED, pipelines=pipelines, keys=sorted(runs))
    return {runs[key] for key, run in rows if runs[key] != str(run)}
