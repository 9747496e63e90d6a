"""pipelines/maintenance/retention: a run that is revived, forked or followed while it is being pruned: the act finds
all of the run, or is refused.

All of them lock the run's row first, and what the other has done is asked under that lock. So each of them is stopped
at every point of its transaction, and the other comes in between: it waits, or passes the run over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from penstock import Penstock
from penstock.errors import ActionRefused, ReviveError
from penstock.pipelines.maintenance import retention
from penstock.pipelines.run import Run
from penstock.telemetry import fault_points
from penstock.testing import crash_at, drain
from tests.conformance.pipelines.retention.test_retention_keeps_what_is_needed import Shop
from tests.conformance.rows import count

Act = Callable[[], object]
BLOCKED = 0.1
"""A thread that has not come back after that waits for this one: this one goes on first."""


@pytest.fixture(autouse=True)
def _several_writers(database_kind: str) -> None:
    if database_kind == "sqlite":
        pytest.skip("one writer at a time: there is nothing between the two")


class Scene:
    """A run that has halted, which one process prunes and another revives, and a run that goes with it if it goes."""

    def __init__(self, app: Penstock) -> None:
        self.app = app
        self.shop = Shop(app)

    def begin(self) -> None:
        """Nothing is there but these two."""
        drain(self.app)
        while retention_goes_on(self.app):
            pass
        self.shop.broken = True
        self.beside: Run = self.shop.order.trigger()
        drain(self.app)
        self.shop.charges.clear()
        self.run: Run = self.shop.order.trigger()
        drain(self.app)
        self.shop.broken = False
        self.revived: Run | None = None
        self.followed = False
        self.redone: list[str] = []

    def prune(self) -> None:
        self.app.database.in_transaction(retention.prune, 0)

    def revive(self) -> None:
        with suppress(ReviveError):
            self.revived = self.run.revive()

    def fork(self) -> None:
        """Redo the step that failed. That is new work, so it charges again."""
        with suppress(ReviveError):
            self.revived = self.run.fork("charge")
            self.redone = ["charge"]

    def follow(self) -> None:
        """The process that asks for it dies before it looks at the end of the run."""
        with suppress(ActionRefused), crash_at("chain.committed") as crash:
            self.run.then(self.shop.order)
        self.followed = crash.crashed

    def check(self, point: str) -> None:
        """What was begun is whole; what was done is not done again; and the other one goes."""
        drain(self.app)
        assert self.beside not in self.app.runs(), point
        if self.followed:
            assert {run.status for run in self.app.runs()} == {"halted", "skipped"}, point
        elif self.revived is None:
            assert (list(self.app.runs()), count(self.app, "jobs")) == ([], 0), point
        else:
            assert len(self.run.steps()) == 4, f"{point}: the run that was revived has lost its steps"
            assert self.revived.result(0) == 3, point
        assert sorted(self.shop.charges) == ["charge", *self.redone, "pack 1", "pack 2", "pack 3"], point


def beside(act: Act, other: Act, at: int | None = None) -> list[str]:
    """Act, and at one of the points that it comes to, let another process act. The points."""
    mine, reached = threading.get_ident(), list[str]()
    thread = threading.Thread(target=other)

    def reach(point: str) -> None:
        if threading.get_ident() == mine:
            reached.append(point)
            if len(reached) - 1 == at:
                thread.start()
                thread.join(BLOCKED)

    with fault_points.watching(reach):
        act()
    if at is not None:
        thread.join()
    return reached


@pytest.mark.parametrize(
    ("first", "second"),
    [pair for act in ("revive", "fork", "follow") for pair in (("prune", act), (act, "prune"))],
)
def test_the_first_to_come_has_the_run(app: Penstock, first: str, second: str) -> None:
    scene = Scene(app)
    stages = {"prune": "prune_runs", "follow": "chain"}
    scene.begin()
    met = beside(getattr(scene, first), bool)
    assert f"{stages.get(first, first)}.commit" in met
    outcomes = set()
    for at, point in enumerate(met):
        scene.begin()
        beside(getattr(scene, first), getattr(scene, second), at)
        scene.check(point)
        outcomes.add(scene.revived is None and not scene.followed)
    assert outcomes == {True, False}, "it comes before the lock as well as after it"


def test_two_who_prune_at_once_share_what_there_is(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of the one follow runs of the other, in both directions."""
    monkeypatch.setattr(retention, "TOGETHER", 2)
    scene = Scene(app)
    gone: list[int] = []

    def prune() -> None:
        gone.append(app.database.in_transaction(retention.prune, 0)[0])

    def begin() -> None:
        scene.begin()
        gone.clear()
        scene.shop.broken = True
        first, second = [scene.shop.order.trigger() for _ in range(2)]
        drain(app)
        edges = [(scene.beside, first), (second, scene.run)]
        chains = [{"downstream_id": after.id, "upstream_id": before.id} for after, before in edges]
        app.database.in_transaction(lambda tx: tx.insert("chains", chains, created_at="{now}"))

    begin()
    for at, point in enumerate(beside(prune, bool)):
        begin()
        beside(prune, prune, at)
        prune()
        assert sum(gone) == 4, point
        assert [count(app, table) for table in ("runs", "jobs", "chains")] == [0, 0, 0], point


def retention_goes_on(app: Penstock) -> bool:
    return app.database.in_transaction(retention.prune, 0)[1]
