"""pipelines/lifecycle/fork: Forks at the same moment. Actors: two clients that fork one run, a client that revives it,
workers that claim.

Each fork locks the row of the old run, reads that it has ended, and inserts a run of its own; that insert decides.
Forks take no key of the old run, so none of them shuts out another, or the revival.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from penstock import Penstock
from penstock.pipelines.run import Run
from penstock.runtime.worker import Worker
from penstock.telemetry import fault_points
from penstock.testing import crash_at, drain
from tests.conformance.embedded import beside_a_worker
from tests.conformance.pipelines.revive.test_retry_step import Parts
from tests.conformance.rows import rows

BLOCKED = 0.2


def broken_run(app: Penstock, parts: Parts) -> Run:
    fetch, charge = parts.task("fetch"), parts.task("charge")

    @app.pipeline(name="paying")
    def paying() -> Any:
        return charge(fetch(1))

    run = paying.trigger()
    drain(app)
    parts.mended()
    return run


def test_a_fork_comes_between_any_two_statements_of_another(app: Penstock, database_kind: str) -> None:
    run = broken_run(app, Parts(app, "charge"))
    reached: list[str] = []
    with fault_points.watching(reached.append):
        forks = [run.fork("charge")]
    points = [point for point in dict.fromkeys(reached) if point.startswith("fork.")]
    assert "fork.commit" in points
    for point in points:
        other: list[Run] = []
        thread = threading.Thread(target=lambda other=other: other.append(run.fork("charge")))
        mine = threading.get_ident()

        def reach(met: str, point: str = point, thread: Any = thread, mine: int = mine) -> None:
            if met == point and threading.get_ident() == mine and not thread.is_alive() and not thread.ident:
                thread.start()
                thread.join(BLOCKED)

        with fault_points.watching(reach):
            forks.append(run.fork("charge"))
        thread.join()
        forks += other
    drain(app)
    assert len(forks) == 1 + 2 * len(points)
    assert {fork.result(0) for fork in forks} == {"charge(fetch(1))"}
    assert run.revive().status == "running", "a fork is no revival: that is still to be had"


def test_the_async_twin_beside_a_worker(app: Penstock) -> None:
    parts = Parts(app, "charge")
    run = broken_run(app, parts)

    async def main(_: Worker) -> list[Run]:
        forks = await asyncio.gather(*[run.fork_async("charge") for _ in range(4)])
        for fork in forks:
            assert await fork.result_async(60) == "charge(fetch(1))"
        return forks

    forks = beside_a_worker(app, main)
    assert len({fork.id for fork in forks}) == 4
    assert parts.calls == ["charge fetch(1)"] * 4
    assert len(set(parts.keys["charge"])) == 5


def test_a_client_that_dies_in_the_middle_leaves_a_whole_fork_or_none(app: Penstock) -> None:
    """Crash points: all of the transaction. The commit decides; a worker goes on from there."""
    parts = Parts(app, "charge")
    run = broken_run(app, parts)
    reached: list[str] = []
    with fault_points.watching(reached.append):
        run.fork("charge")
    seen = set()
    for point in [point for point in dict.fromkeys(reached) if point.startswith("fork.")]:
        before = len(_forks(app, run))
        with crash_at(point) as crash:
            run.fork("charge")
        assert crash.crashed, point
        drain(app)
        forks = _forks(app, run)
        seen.add(len(forks) - before)
        assert {fork.status for fork in forks} == {"succeeded"}, point
    assert seen == {0, 1}, "both sides of the commit"


def _forks(app: Penstock, run: Run) -> list[Run]:
    found = rows(app, "SELECT id FROM {runs} WHERE forked_from = :run", run=run.id)
    return [app.run(str(id)) for (id,) in found]
