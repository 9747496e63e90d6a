"""pipelines/maintenance/retention: Small runs go together, in one transaction; large ones in pieces, alone. A crash
leaves each whole or gone.
"""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Penstock
from penstock.errors import ReviveError
from penstock.pipelines.maintenance import retention
from penstock.pipelines.run import Run
from penstock.telemetry import fault_points
from penstock.testing import crash_at, drain
from tests.conformance.rows import count

TABLES = ("runs", "jobs", "job_states", "executions", "joins", "tuples", "run_keys", "run_labels", "chains")


class Yard:
    """Runs with as many steps as they are told, and one more."""

    def __init__(self, app: Penstock) -> None:
        self.app = app

        @app.task(name="one", retries=0)
        def one(number: int) -> int:
            return number

        @app.task(name="total", retries=0)
        def total(numbers: list[int]) -> int:
            raise ValueError("not today")

        @app.pipeline(name="wide")
        def wide(count: int) -> Any:
            return total(one.map(list_of(count)).collect())

        @app.task(name="list_of")
        def list_of(count: int) -> list[int]:
            return list(range(count))

        self.wide = wide

    def ended(self, *widths: int) -> list[Run]:
        """Halted runs of these widths, in this order; each has two steps more, a key, a label and a context."""
        runs = []
        for number, width in enumerate(widths):
            run = self.wide.options(key=f"{number}", labels=["old"]).trigger(width)
            run.context["width"] = width
            drain(self.app)
            runs.append(run)
        return runs

    def prune(self) -> tuple[int, bool]:
        return self.app.database.in_transaction(retention.prune, 0)

    def rows(self) -> dict[str, int]:
        return {table: count(self.app, table) for table in TABLES}


@pytest.fixture
def yard(app: Penstock) -> Yard:
    return Yard(app)


def test_small_runs_go_together_with_all_that_is_theirs(yard: Yard) -> None:
    runs = yard.ended(*[1] * 7)
    runs[0].then(yard.wide, 1)
    runs[1].revive()
    drain(yard.app)
    assert yard.prune() == (8, True), "the one that was revived stays for the one that continues it"
    assert yard.prune() == (1, True)
    assert yard.prune() == (0, False)
    assert yard.rows() == dict.fromkeys(TABLES, 0)


def test_no_more_of_them_than_have_a_batch_of_steps(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH", 10)
    yard.ended(1, 1, 1, 1, 1)
    assert [yard.prune() for _ in range(4)] == [(2, True), (3, True), (0, False), (0, False)]


def test_a_large_one_among_them_goes_in_pieces(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH", 10)
    small, large, last = yard.ended(1, 20, 1)
    assert yard.prune() == (1, True), "the first of them, because not even two fit"
    for _ in range(2):
        assert yard.prune() == (0, True)
        with pytest.raises(ReviveError, match="just being pruned"):
            large.revive()
    assert yard.prune() == (2, True), "what is left of it goes with the next"
    assert yard.rows() == dict.fromkeys(TABLES, 0)
    for run in (small, last):
        with pytest.raises(ReviveError, match="may have been pruned"):
            run.revive()


def test_a_crash_anywhere_leaves_all_of_them_or_none(yard: Yard) -> None:
    met: list[str] = []
    yard.ended(1, 1, 1)
    with fault_points.watching(met.append):
        yard.prune()
    assert "prune_runs.commit" in met
    # A thread that another test has left behind may read something meanwhile.
    for point in [point for point in met if not point.startswith("transaction")]:
        yard.ended(1, 1, 1)
        before = yard.rows()
        with crash_at(point) as crash:
            yard.prune()
        assert crash.crashed, point
        if point.endswith("committed"):
            assert yard.rows() == dict.fromkeys(TABLES, 0)
            break
        assert yard.rows() == before, point
        assert yard.prune() == (3, True), point
