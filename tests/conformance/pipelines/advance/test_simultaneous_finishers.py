"""pipelines/advance/join_rows: a join fires once, whichever step brings the last token; no deadlock stays."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from penstock import Penstock
from penstock.queue.jobs import Attempt, Claim
from penstock.queue.settle import settle
from penstock.testing import drain
from penstock.values.outcome import Outcome
from penstock.values.status import OutcomeKind, RunStatus
from tests.conformance.pipelines.random_worker import RandomWorker
from tests.conformance.rows import rows

FINISHERS = 50
THREADS = 8
ROUNDS = {"sqlite": 2, "postgres": 6, "mariadb": 4}


@pytest.fixture
def many(app: Penstock) -> Any:
    @app.task(name="one")
    def one(x: int) -> int:
        return x

    @app.task(name="left")
    def left(x: int) -> int:
        return x

    @app.task(name="both")
    def both(a: int, b: int) -> int:
        return a + b

    @app.task(name="fold")
    def fold(xs: list[int]) -> int:
        return sum(xs)

    @app.pipeline(name="many")
    def many(xs: list[int]) -> Any:
        x = one.map(xs)
        joined: Any = both(left(x), left(x))
        return fold(joined.collect())

    return many


def settle_at_once(app: Penstock, claims: list[Claim], process: str) -> None:
    """Each thread settles its share, one claim per transaction, all beginning together."""
    barrier = threading.Barrier(THREADS)
    problems: list[BaseException] = []

    def work(share: list[Claim]) -> None:
        try:
            barrier.wait()
            for claim in share:
                attempt = Attempt(claim, Outcome(OutcomeKind.SUCCEEDED, output="1"))
                app.database.in_transaction(settle, [attempt], process, (), app.follow)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(claims[n::THREADS],)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def claim_all(worker: RandomWorker) -> list[Claim]:
    claims: list[Claim] = []
    while True:
        with worker.app.database.transaction() as tx:
            worker.source.lanes.force_sweep()
            some = worker.source.claim(tx, 500)
            some = some if worker.source.is_complete(some) else worker.source.complete(tx, some)
        worker.source.committed()
        if not some:
            return claims
        claims += some


def test_a_join_fires_once_whichever_step_comes_last(app: Penstock, many: Any, database_kind: str) -> None:
    for _ in range(ROUNDS[database_kind]):
        run = many.trigger([1] * FINISHERS)
        worker = RandomWorker(app, 0)
        while claims := claim_all(worker):
            settle_at_once(app, claims, worker.identity.id)
        assert run.status is RunStatus.SUCCEEDED
        nodes = rows(app, "SELECT node, COUNT(*) FROM {jobs} WHERE run_id = :run GROUP BY node", run=run.id)
        assert dict(nodes) == {"one": 50, "left": 50, "left_2": 50, "both": 50, "fold": 1}
        open_joins = rows(app, "SELECT node FROM {joins} WHERE run_id = :run AND still_open <> 0", run=run.id)
        assert open_joins == []


def test_two_runs_settled_together_never_deadlock_for_good(app: Penstock, many: Any) -> None:
    """Batches that hold steps of several runs, settled by several workers at once."""
    runs = [many.trigger([1] * 5) for _ in range(6)]
    workers = [RandomWorker(app, seed) for seed in range(4)]
    problems: list[BaseException] = []

    def work(worker: RandomWorker) -> None:
        try:
            while worker.turn():
                pass
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    drain(app)
    assert [run.result(0) for run in runs] == [10] * 6


@pytest.mark.parametrize("width", [1_500])
def test_wide_expands(app: Penstock, many: Any, width: int) -> None:
    run = many.trigger([1] * width)
    worker = RandomWorker(app, 0)
    while True:
        while claims := claim_all(worker):
            for start in range(0, len(claims), 500):
                attempts = [
                    Attempt(
                        claim, Outcome(OutcomeKind.SUCCEEDED, output="1" if claim.node != "both" else "2")
                    )
                    for claim in claims[start : start + 500]
                ]
                app.database.in_transaction(settle, attempts, worker.identity.id, (), app.follow)
        if not app.engine.chores.turn():
            break
    assert run.status is RunStatus.SUCCEEDED
    assert run.graph().nodes[-1].key == "fold"
    count = rows(app, "SELECT COUNT(*) FROM {jobs} WHERE run_id = :run", run=run.id)[0][0]
    assert count == 4 * width + 1
