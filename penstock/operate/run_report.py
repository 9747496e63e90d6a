"""Reads the report on one run that `penstock show` prints: in one read, of bounded size whatever the run's size.

The steps of a run, with their outputs and tracebacks, are read in pages: by node, then by path, which an index has in
that order. Each page is a read of its own, so that no transaction is open while a reader takes its time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.database.database import Database
from penstock.database.transaction import Transaction
from penstock.errors import PenstockError
from penstock.operate import audit
from penstock.operate.audit import Act
from penstock.operate.diagnosis.explain import why_pending
from penstock.operate.runs import OpenWait, notable_steps, open_waits
from penstock.pipelines.advance import read, values
from penstock.pipelines.advance.read import RunStatusRow
from penstock.pipelines.advance.run_rows import of_run, view, wiring_for
from penstock.pipelines.advance.state import EngineState, RunHeader
from penstock.pipelines.model.graph_view import Graph, graph_of
from penstock.pipelines.model.wiring import Wiring
from penstock.pipelines.plan.changes import RunMode
from penstock.pipelines.plan.inputs import result_of
from penstock.pipelines.run import Step, step_of
from penstock.values.status import JobStatus, RunStatus
from penstock.values.typed_json.json_text import decode

PAGE = 200
MOST_RESULT = 1_000_000
"""If the outputs of which a result is made are longer than this, the result is read only on request."""
RESULT_SIZE = """
SELECT COUNT(*), COALESCE(SUM(LENGTH(e.output)), 0) FROM {jobs} j
JOIN {executions} e ON e.job_id = j.id AND e.outcome = 'succeeded'
WHERE j.run_id = :run AND j.node {among:nodes:text}
"""
STEPS = """
SELECT j.id, j.node, j.path, j.task, s.status, s.reason, s.claimed_at, s.finished_at, j.created_at
FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id WHERE j.run_id = :run AND j.node = :node
"""
AFTER = " AND j.path > :after"
IN_ORDER = " ORDER BY j.path LIMIT :limit"
ATTEMPTS = """
SELECT job_id, generation, process_id, started_at, finished_at, outcome, error_type, error, traceback, output
FROM {executions} WHERE job_id {among:ids:uuid} ORDER BY job_id, generation
"""


@dataclass(frozen=True, slots=True)
class RunResult:
    """The value of a run that has succeeded, with the number and the size of the outputs of which it is made."""

    value: Any
    steps: int = 1
    size: int = 0
    """The length of those outputs together."""
    is_read: bool = True
    """False if the outputs are too long: then `value` is not set."""


@dataclass(frozen=True, slots=True)
class RunReport:
    """A run with everything that `penstock show` prints."""

    run: RunStatusRow
    wiring: Wiring
    graph: Graph
    nodes: list[str]
    """All nodes that may have steps; at the end those that the definition lacks, because the run was migrated."""
    labels: list[str]
    steps: list[Step]
    """Some steps, without outputs; steps that failed come first."""
    acts: list[Act]
    pending: list[str]
    """The causes for which the run has not begun."""
    waits: list[OpenWait]
    result: RunResult | None


def run_report(
    tx: Transaction,
    engine_state: EngineState,
    run: str,
    acts: int,
    waits: int,
    steps: Callable[[Graph], int],
    whole: bool,
) -> RunReport:
    """Read a run, at most so many of its acts, open waits and steps, and its result, if the result is short or `whole`
    is true."""
    state = read.run_states(tx, [run]).get(run)
    if state is None:
        raise PenstockError(f"there is no run {run}; it may have been pruned")
    wiring = wiring_for(engine_state, tx, state.definition, state.pipeline)
    counted = tx.rows(read.COUNTS, run=run)
    graph = graph_of(wiring, state.status, counted)
    is_pending = state.status is RunStatus.PENDING
    is_waiting = any(node.counts.get(JobStatus.WAITING) for node in graph.nodes)
    return RunReport(
        state,
        wiring,
        graph,
        [*wiring.order, *sorted({str(node) for node, _, _ in counted} - set(wiring.order))],
        of_run(tx, run),
        notable_steps(tx, run, steps(graph)),
        audit.acts(tx, run, None, {}, acts),
        _pending(tx, run, engine_state) if is_pending else [],
        open_waits(tx, run, waits) if is_waiting else [],
        _result(tx, engine_state, state, wiring, whole),
    )


def _pending(tx: Transaction, run: str, engine_state: EngineState) -> list[str]:
    """Why the run has not begun."""
    return [cause.text for cause in why_pending(tx, run, engine_state.host.settings.reap_after)]


def _result(
    tx: Transaction, engine_state: EngineState, state: RunStatusRow, wiring: Wiring, whole: bool
) -> RunResult | None:
    if state.status is not RunStatus.SUCCEEDED:
        return None
    if state.mode == RunMode.STOPPED:
        return RunResult(decode(state.result or "null"))
    nodes = sorted({cell.node for cell in result_of(wiring).outputs})
    count, size = tx.rows(RESULT_SIZE, run=state.id, nodes=nodes)[0] if nodes and not whole else (1, 0)
    if int(size) > MOST_RESULT:
        return RunResult(None, int(count), int(size), is_read=False)
    header = RunHeader(state.pipeline, state.definition, state.args)
    value = values.natural_result(engine_state, tx, view(engine_state, tx, state.id, header))
    return RunResult(value, int(count), int(size))


def pages_of_steps(database: Database, engine_state: EngineState, report: RunReport) -> Iterator[list[Step]]:
    """Every step that was reached, in pages: in the order of the nodes in the definition, then of the elements."""
    unreached = {node.key for node in report.graph.nodes if not node.total}
    for node in [key for key in report.nodes if key not in unreached]:
        after: str | None = None
        while True:
            rows, steps = database.read(_page, engine_state, report, node, after)
            if steps:
                yield steps
            if len(rows) < PAGE:
                break
            after = str(rows[-1][2])


def _page(
    tx: Transaction, engine_state: EngineState, report: RunReport, node: str, after: str | None
) -> tuple[Sequence[Sequence[Any]], list[Step]]:
    template = STEPS + (AFTER if after is not None else "") + IN_ORDER
    behind = {} if after is None else {"after": after}
    rows = tx.rows(template, run=report.run.id, node=node, limit=PAGE, **behind)
    attempts: dict[str, list[Sequence[Any]]] = {}
    ids = [str(row[0]) for row in rows]
    for job, *attempt in tx.rows(ATTEMPTS, ids=ids) if ids else ():
        attempts.setdefault(str(job), []).append(attempt)
    decoded = values.reader(engine_state, report.wiring, report.run.pipeline)
    return rows, [step_of(row, attempts.get(str(row[0]), []), decoded) for row in rows]
