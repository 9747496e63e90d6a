"""pipelines/advance, pipelines/lifecycle: Kill between every two statements of everything a run does; each kill is
seen to strike. Invariants 3 to 6.

Each play runs twice undisturbed, the second time with all its points noted; then once for each of them, killed there
and begun again. Where there are too many, as on servers, where it takes longer, they are taken at even distances.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from penstock import Penstock
from penstock.database.transaction import Transaction
from penstock.pipelines.advance.expand import Advancer
from penstock.queue import reclaim
from penstock.queue.jobs import Attempt
from penstock.queue.settle import settle
from penstock.telemetry import fault_points
from penstock.testing import crash_at, drain
from penstock.testing.crash import Crash
from penstock.values.outcome import Outcome
from penstock.values.status import OutcomeKind
from tests.conformance.pipelines.kill_scenarios import WINDOWS, Stage, Window
from tests.conformance.pipelines.random_worker import RandomWorker
from tests.conformance.rows import rows

MOST = {"sqlite": 40, "postgres": 8, "mariadb": 5}
TABLES = ("runs", "jobs", "job_states", "joins", "executions", "availabilities", "advancements")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("window", WINDOWS, ids=lambda window: window.name)
def test_killed_anywhere_it_ends_the_same(
    make_app: Callable[..., Penstock], database_kind: str, window: Window
) -> None:
    stage = Stage(make_app(inline_fanout=3))
    window.play(stage, "clean")
    reached: list[str] = []
    with fault_points.watching(reached.append):
        window.play(stage, "noted")
    visits: Counter[str] = Counter()
    found = []
    for point in reached:
        visits[point] += 1
        if point.partition(".")[0] in window.stages:
            found.append((point, visits[point]))
    assert {point.partition(".")[0] for point, _ in found} == window.stages, "every stage is passed"
    step = -(-len(found) // MOST[database_kind])
    for point, visit in found[::step]:
        crash = play_until(stage, window, f"{point}:{visit}", point, visit)
        if not crash.crashed and visit > 1:
            # How often a timer is looked at depends on how long everything takes.
            crash = play_until(stage, window, f"{point}:1 for {visit}", point, 1)
        assert crash.crashed, (point, visit)
        nothing_is_left(stage.app, (point, visit))


def play_until(stage: Stage, window: Window, key: str, point: str, visit: int) -> Crash:
    """Play with a kill at the point, and then once more without, which takes up what was left.

    By a key of its own: where that was played before, everything is over.
    """
    with crash_at(point, visit) as crash:
        window.play(stage, key)
    window.play(stage, key)
    return crash


def nothing_is_left(app: Penstock, seen: object) -> None:
    succeeded = rows(app, "SELECT job_id FROM {executions} WHERE outcome = 'succeeded'")
    assert max(Counter(succeeded).values()) == 1, seen
    for table in ("advancements", "claims", "availabilities"):
        assert rows(app, f"SELECT COUNT(*) FROM {{{table}}}")[0][0] == 0, (seen, table)
    assert rows(app, "SELECT id FROM {runs} WHERE ended_at IS NULL") == [], seen


# Frozen, and awake again


def everything(app: Penstock) -> dict[str, list[Any]]:
    return {table: sorted(rows(app, f"SELECT * FROM {{{table}}}"), key=repr) for table in TABLES}


def test_a_worker_that_was_frozen_while_others_went_on_changes_nothing(app: Penstock) -> None:
    stage = Stage(app)
    run = stage.run("joined", "one")
    frozen = RandomWorker(app, 0)
    with app.database.transaction() as tx:
        frozen.source.lanes.force_sweep()
        claims = frozen.source.complete(tx, frozen.source.claim(tx, 10))
    assert len(claims) == 1
    app.database.in_transaction(reclaim.remove_process, frozen.identity.id)
    drain(app)
    assert run.result(0) == 14
    before = everything(app)
    late = [Attempt(claim, Outcome(OutcomeKind.SUCCEEDED, output="99")) for claim in claims]
    settled = app.database.in_transaction(settle, late, frozen.identity.id, (), app.follow)
    assert not settled.accepted
    assert everything(app) == before
    assert run.result(0) == 14


def test_an_advancer_that_was_frozen_between_two_chunks_changes_nothing(
    make_app: Callable[..., Penstock],
) -> None:
    app = make_app(inline_fanout=3)
    stage = Stage(app)
    run = stage.run("wide", "one")
    frozen = Advancer(app.engine.engine_state, chunk=2)
    assert app.database.in_transaction(frozen.turn) is True
    drain(app)
    assert run.result(0) == 5
    before = everything(app)
    assert app.database.in_transaction(frozen.turn) is False
    assert everything(app) == before


@pytest.mark.standard_profile
@pytest.mark.parametrize("point", ["expand.3", "expand.commit"])
def test_an_advancer_that_was_frozen_within_a_chunk_changes_nothing(
    make_app: Callable[..., Penstock], database_kind: str, point: str
) -> None:
    """Others pass it by while it holds its row; when its connection is gone they do the chunk, and it learns of it."""
    if database_kind == "sqlite":
        pytest.skip("a frozen writer holds the whole file; no other process could go on meanwhile")
    app = make_app(inline_fanout=3)
    stage = Stage(app)
    run = stage.run("wide", "one")
    frozen = Frozen(app, point)
    frozen.reached.wait(30)
    assert app.database.in_transaction(Advancer(app.engine.engine_state, chunk=2).turn) is False, (
        "it is passed by"
    )
    frozen.cut_off()
    drain(app)
    assert run.result(0) == 5
    before = everything(app)
    frozen.wake()
    assert frozen.problem is not None
    assert everything(app) == before


class Frozen:
    """An advancer in a thread of its own that stops at a point."""

    def __init__(self, app: Penstock, point: str) -> None:
        self.app = app
        self.point = point
        self.reached, self.go_on = threading.Event(), threading.Event()
        self.connection = 0
        self.problem: BaseException | None = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        with fault_points.watching(self._watch):
            try:
                with self.app.database.transaction() as tx:
                    self._turn(tx)
            except BaseException as error:
                self.problem = error

    def _turn(self, tx: Transaction) -> None:
        ask = "SELECT pg_backend_pid()" if self._is_postgres else "SELECT CONNECTION_ID()"
        row = tx.row(ask)
        assert row is not None
        self.connection = int(row[0])
        Advancer(self.app.engine.engine_state, chunk=2).turn(tx)

    def _watch(self, point: str) -> None:
        if point == self.point and threading.current_thread() is self.thread:
            self.reached.set()
            self.go_on.wait(60)

    @property
    def _is_postgres(self) -> bool:
        return self.app.database.url.backend == "postgresql"

    def cut_off(self) -> None:
        kill = "SELECT pg_terminate_backend({})" if self._is_postgres else "KILL {}"
        self.app.database.in_transaction(lambda tx: tx.run(kill.format(self.connection)))

    def wake(self) -> None:
        self.go_on.set()
        self.thread.join(30)
        assert not self.thread.is_alive()
