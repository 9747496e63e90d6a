"""Chains: runs that follow runs. An edge is a row, and so is the run at its end, from the moment it is registered.

Registering locks the runs that are followed, and the end of a run reads its edges under the same lock, so one of the
two sees the other. The one that sees it leaves a timer, and the timer decides: all succeeded, start; one ended
otherwise, skip, which is an end like any other and goes on along the chain.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.database.transaction import Transaction
from penstock.errors import ActionRefused
from penstock.pipelines.advance import timers
from penstock.pipelines.advance.run_rows import CERTIFY
from penstock.pipelines.advance.state import EngineState
from penstock.pipelines.lifecycle import cancel, start
from penstock.pipelines.lifecycle.start import NewRun
from penstock.queue import audit
from penstock.values.status import Reason, RunStatus

MOST_TOLD = 10

LOCK = "SELECT id FROM {runs} WHERE id {among:ids:uuid} ORDER BY id {lock}"
PENDING = "SELECT status FROM {runs} WHERE id = :id {lock}"
UPSTREAM = """
SELECT r.status, r.ended_at FROM {chains} c JOIN {runs} r ON r.id = c.upstream_id WHERE c.downstream_id = :id
"""


def register(
    engine_state: EngineState, tx: Transaction, upstream: Sequence[str], news: Sequence[NewRun]
) -> None:
    """Write runs that wait for others; those whose upstream runs have ended already are decided at once."""
    tx.stage("chain")
    known = [str(id) for (id,) in tx.rows(LOCK, ids=sorted(upstream))]
    tx.certify(CERTIFY, ids=sorted(known))
    missing = sorted(set(upstream) - set(known))
    if missing:
        raise ActionRefused(f"there is no run {missing[0]} to follow; it may have been pruned")
    start.open_runs(engine_state, tx, news)
    edges = [{"downstream_id": new.id, "upstream_id": id} for new in news for id in known]
    tx.insert("chains", edges, created_at="{now}")
    for new in news:
        timers.set(tx, timers.CHAIN, new.id)
    told = [{"run": new.id, "pipeline": new.definition.name} for new in news[:MOST_TOLD]]
    audit.of_runs(tx, "then", known, followed_by=told)


def decide(engine_state: EngineState, tx: Transaction, run: str) -> None:
    """Start or skip a run that follows others, if all of these have ended; at most once."""
    tx.stage("chain_start")
    row = tx.row(PENDING, id=run)
    if row is None or row[0] != RunStatus.PENDING:
        return
    # If two processes decide at once, each for the end of another upstream run, the later one sees both ends.
    tx.certify(CERTIFY, ids=[run])
    upstream = tx.rows(UPSTREAM, id=run)
    if any(ended_at is not None and status != RunStatus.SUCCEEDED for status, ended_at in upstream):
        reasons = (Reason.UPSTREAM_RUN_NOT_SUCCEEDED.value,)
        cancel.close_unstarted(engine_state, tx, run, RunStatus.SKIPPED, reasons)
    elif all(ended_at is not None for _, ended_at in upstream):
        start.start(engine_state, tx, run)
