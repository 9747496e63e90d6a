"""Looking at runs: where one stands, its steps, its attempts, and lists of runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.database.dialect import Row
from penstock.database.transaction import Transaction
from penstock.errors import ConfigurationError, PenstockError
from penstock.pipelines.model.definition import Definition, Strategy
from penstock.pipelines.model.expressions import path_of
from penstock.pipelines.plan.plan import strategy_of
from penstock.queue.job_records import LAST_ERROR
from penstock.values.ids import LAST_ID
from penstock.values.parse import nearest
from penstock.values.status import RunStatus
from penstock.values.typed_json.json_text import loads

RUN_STATES = """
SELECT id, pipeline, definition, run_key, args, status, mode, reasons, result, parent_run_id, revived_from,
  created_at, started_at, ended_at, rerun_of, forked_from
FROM {runs} WHERE id {among:ids:uuid}
"""
STEPS = """
SELECT j.id, j.node, j.path, j.task, s.status, s.reason, s.claimed_at, s.finished_at, j.created_at
FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id WHERE j.run_id = :run
"""
ATTEMPTS = """
SELECT e.job_id, e.generation, e.process_id, e.started_at, e.finished_at, e.outcome, e.error_type, e.error,
  e.traceback, e.output
FROM {jobs} j JOIN {executions} e ON e.job_id = j.id WHERE j.run_id = :run
"""
FAILED = """
SELECT j.id, j.node, j.path FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id
WHERE j.run_id = :run AND s.status = 'failed' ORDER BY s.finished_at, j.id LIMIT :limit
"""
COUNTS = """
SELECT j.node, s.status, COUNT(*) FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id
WHERE j.run_id = :run GROUP BY j.node, s.status
"""
OF_PIPELINE = "SELECT id, NULL, status, args FROM {runs} WHERE pipeline = :pipeline ORDER BY id"
LIST = "SELECT id FROM {runs} WHERE id < :before"
BY_PIPELINE = " AND pipeline = :pipeline"
BY_STATUS = " AND status = :status"
BY_KEY = " AND run_key = :key"
BY_LABEL = " AND id IN (SELECT run_id FROM {run_labels} WHERE label = :label)"
SOME = 100
"""So many failed steps are looked at for the one that counts."""
NEWEST = " ORDER BY id DESC LIMIT :limit"


class RunStatusRow(NamedTuple):
    """A run's row."""

    id: str
    pipeline: str
    definition: str
    key: str | None
    args: str
    status: RunStatus
    mode: str
    reasons: tuple[str, ...]
    result: str | None
    parent_run: str | None
    revived_from: str | None
    created_at: int
    started_at: int | None
    ended_at: int | None
    rerun_of: str | None
    forked_from: str | None


def run_states(tx: Transaction, ids: Sequence[str]) -> dict[str, RunStatusRow]:
    """The runs with these ids."""
    return parse_run_states(tx.rows(RUN_STATES, ids=ids))


def stored_reasons(text: str) -> tuple[str, ...]:
    """The reasons of a run, as its row has them; a text that is no list is shown as the only one."""
    try:
        known = loads(text)
    except PenstockError:
        known = None
    return tuple(map(str, known)) if isinstance(known, list) else (text,)


def parse_run_states(rows: Iterable[Row]) -> dict[str, RunStatusRow]:
    found = {}
    for row in rows:
        values = [*row[:5], RunStatus.stored(row[5]), row[6], stored_reasons(row[7]), *row[8:]]
        found[str(row[0])] = RunStatusRow(*values)
    return found


def first_failure(tx: Transaction, run: str, definition: Definition) -> tuple[str, str]:
    """The step because of which a run has no result, and its error: the first that failed, one that halts before one
    that does not. Empty: there is none."""
    found: dict[bool, tuple[str, str]] = {}
    for job, key, path in tx.rows(FAILED, run=run, limit=SOME):
        node = definition.by_key.get(str(key))
        strategy = Strategy.CONTINUE if node is None else strategy_of(definition, node)
        if strategy is Strategy.OPTIONAL or (strategy is Strategy.HALT) in found:
            continue
        error = tx.row(LAST_ERROR, id=str(job))
        name = f"{key}{list(path_of(str(path)))}" if path else str(key)
        found[strategy is Strategy.HALT] = (name, f"{error[0]}: {error[1]}" if error else "")
    return found.get(True) or found.get(False) or ("", "")


def runs_of(tx: Transaction, pipeline: str) -> list[tuple[str, None, str, str]]:
    """All runs of a pipeline, oldest first: how each stands, and its arguments."""
    rows = tx.rows(OF_PIPELINE, pipeline=pipeline)
    return [(str(id), None, str(status), str(args)) for id, _, status, args in rows]


def ids_of_runs(
    tx: Transaction,
    pipeline: str | None,
    status: str | None,
    key: str | None,
    limit: int,
    label: str | None = None,
) -> list[str]:
    """The newest runs first."""
    if status is not None and status not in list(RunStatus):
        raise ConfigurationError(
            f"status={status!r}: a run is {', '.join(RunStatus)}{nearest(str(status), list(RunStatus))}"
        )
    template = LIST
    template += BY_PIPELINE if pipeline is not None else ""
    template += BY_STATUS if status is not None else ""
    template += BY_KEY if key is not None else ""
    template += BY_LABEL if label is not None else ""
    given = {"pipeline": pipeline, "status": status, "key": key, "label": label}
    wanted = {name: value for name, value in given.items() if value is not None}
    return [str(id) for (id,) in tx.rows(template + NEWEST, before=LAST_ID, limit=limit, **wanted)]
