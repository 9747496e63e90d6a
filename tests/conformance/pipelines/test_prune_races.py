"""A run that is revived while it is being pruned: either its revival finds all that it had finished, or there is none.

Prune and revive both lock the run's row first, and what the other has done is asked under that lock. So each of them is
stopped at every point of its transaction, and the other comes in between: it waits, or passes the run over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from penstock import Penstock
from penstock.errors import ReviveError
from penstock.pipelines import retention
from penstock.pipelines.run import Run
from penstock.telemetry import points
from penstock.testing import drain
from tests.conformance.pipelines.test_keeping import Shop
from tests.conformance.tasks.looking import count

Act = Callable[[], object]
BLOCKED = 0.2
"""Whoever has not come back after that waits for us: we go on, and let it come after us."""


@pytest.fixture(autouse=True)
def _several_writers(database_kind: str) -> None:
    if database_kind == "sqlite":
        pytest.skip("one writer at a time: there is nothing between the two")


class Scene:
    """A run that has halted, whom somebody prunes and somebody revives."""

    def __init__(self, app: Penstock) -> None:
        self.app = app
        self.shop = Shop(app)

    def begin(self) -> None:
        """Nothing is there but the run."""
        while self.app.database.in_transaction(retention.prune, 0)[1]:
            pass
        self.shop.charges.clear()
        self.shop.broken = True
        self.run: Run = self.shop.order.trigger()
        drain(self.app)
        self.shop.broken = False
        self.revived: Run | None = None

    def prune(self) -> None:
        self.app.database.in_transaction(retention.prune, 0)

    def revive(self) -> None:
        with suppress(ReviveError):
            self.revived = self.run.revive()

    def check(self, point: str) -> None:
        """What was begun is whole; and what was done is not done again."""
        drain(self.app)
        if self.revived is None:
            assert (list(self.app.runs()), count(self.app, "jobs")) == ([], 0), point
        else:
            assert len(self.run.steps()) == 4, f"{point}: the run that was revived has lost its steps"
            assert self.revived.result(0) == 3, point
        assert sorted(self.shop.charges) == ["charge", "pack 1", "pack 2", "pack 3"], point


def beside(act: Act, other: Act, at: int | None = None) -> list[str]:
    """Act, and at one of the points that it comes to, let somebody else act. The points."""
    mine, reached = threading.get_ident(), list[str]()
    thread = threading.Thread(target=other)

    def reach(point: str) -> None:
        if threading.get_ident() == mine:
            reached.append(point)
            if len(reached) - 1 == at:
                thread.start()
                thread.join(BLOCKED)

    with points.watching(reach):
        act()
    if at is not None:
        thread.join()
    return reached


@pytest.mark.parametrize("first", ["prune", "revive"])
def test_whoever_comes_first_has_the_run(app: Penstock, first: str) -> None:
    scene = Scene(app)
    second = "revive" if first == "prune" else "prune"
    scene.begin()
    met = beside(getattr(scene, first), bool)
    assert f"{'prune_runs' if first == 'prune' else first}.commit" in met
    outcomes = set()
    for at, point in enumerate(met):
        scene.begin()
        beside(getattr(scene, first), getattr(scene, second), at)
        scene.check(point)
        outcomes.add(scene.revived is not None)
    assert outcomes == {True, False}, "it comes before the lock as well as after it"
