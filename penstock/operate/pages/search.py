"""Finds what a text names: a job or a run by its id, its key or its label; a schedule by its name.

Every look-up goes by a key or an index, and ends after a few rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.database.transaction import Transaction
from penstock.operate.jobs import LABELLED, WITH_PREFIX, id_range
from penstock.operate.pages.job_search import KEYED
from penstock.values.ids import LAST_ID

MOST = 10
SHORTEST_ID = 4
ID = re.compile(r"[0-9a-fA-F-]+")

RUN_WITH_PREFIX = "SELECT id, pipeline FROM {runs} WHERE id >= :low AND id <= :high ORDER BY id LIMIT 3"
RUN_KEYED = "SELECT run_id FROM {run_keys} WHERE pipeline {among:pipelines:text} AND run_key = :key"
RUN_LABELLED = "SELECT run_id FROM {run_labels} WHERE label = :label ORDER BY run_id DESC LIMIT :limit"
PROCESS = "SELECT id FROM {processes} WHERE id >= :low AND id <= :high ORDER BY id LIMIT 3"
SCHEDULES = "SELECT name FROM {schedules} WHERE name = :name"
JOBS = "SELECT id, task FROM {jobs} WHERE id {among:ids:uuid} ORDER BY id DESC"
RUNS = "SELECT id, pipeline FROM {runs} WHERE id {among:ids:uuid} ORDER BY id DESC"


@dataclass(frozen=True, slots=True)
class SearchHit:
    """Something that a text names. `by` says how: "id", "key", "label" or "name"."""

    kind: str
    name: str
    by: str
    detail: str = ""


def look_up(tx: Transaction, text: str, tasks: Sequence[str], pipelines: Sequence[str]) -> list[SearchHit]:
    """Everything in the database that a text names."""
    found: list[SearchHit] = []
    digits = text.replace("-", "")
    if ID.fullmatch(text) and SHORTEST_ID <= len(digits) <= 32:
        found += _by_id(tx, text)
    jobs = [str(id) for (id,) in tx.rows(KEYED, tasks=list(tasks), key=text)] if tasks else []
    found += _jobs(tx, jobs, "key")
    runs = [str(id) for (id,) in tx.rows(RUN_KEYED, pipelines=list(pipelines), key=text)] if pipelines else []
    found += _runs(tx, runs, "key")
    labelled = [str(id) for (id,) in tx.rows(LABELLED, label=text, before=LAST_ID, limit=MOST)]
    found += _jobs(tx, labelled, "label")
    found += _runs(tx, [str(id) for (id,) in tx.rows(RUN_LABELLED, label=text, limit=MOST)], "label")
    found += [SearchHit("schedule", str(name), "name") for (name,) in tx.rows(SCHEDULES, name=text)]
    return found


def _by_id(tx: Transaction, text: str) -> list[SearchHit]:
    low, high = id_range(text)
    jobs = [str(id) for (id,) in tx.rows(WITH_PREFIX, low=low, high=high, limit=MOST)]
    runs = [
        SearchHit("run", str(id), "id", str(name))
        for id, name in tx.rows(RUN_WITH_PREFIX, low=low, high=high)
    ]
    processes = [SearchHit("process", str(id), "id") for (id,) in tx.rows(PROCESS, low=low, high=high)]
    return [*_jobs(tx, jobs, "id"), *runs, *processes]


def _jobs(tx: Transaction, ids: Sequence[str], by: str) -> list[SearchHit]:
    rows = tx.rows(JOBS, ids=ids[:MOST]) if ids else []
    return [SearchHit("job", str(id), by, str(task)) for id, task in rows]


def _runs(tx: Transaction, ids: Sequence[str], by: str) -> list[SearchHit]:
    rows = tx.rows(RUNS, ids=ids[:MOST]) if ids else []
    return [SearchHit("run", str(id), by, str(pipeline)) for id, pipeline in rows]
