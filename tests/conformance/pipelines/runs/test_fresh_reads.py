"""Whoever looks sees what is there now, whatever was asked for before and not read."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Penstock
from penstock.errors import ResultTimeout, RunFailed
from penstock.testing import drain


def test_a_result_that_is_an_error_leaves_nothing_open(app: Penstock, make_app: Any) -> None:
    """A query that was sent ahead and never read kept SQLite's connection at what was true then, for as long as the
    error was kept: runs were not there, and nothing could be written."""

    @app.task(name="fail", retries=0)
    def fail() -> None:
        raise ValueError("no")

    @app.task(name="work")
    def work() -> int:
        return 1

    @app.pipeline(name="failing", on_failure="continue")
    def failing() -> Any:
        return [work(), fail()]

    run = failing.trigger()
    with pytest.raises(ResultTimeout):
        run.result(0)  # it has looked once: the next time it asks for the value along with the status
    drain(app)
    with pytest.raises(RunFailed) as kept:
        run.result(0)
    task = (other := make_app()).task(name="work")(work.function)
    elsewhere = other.flow("elsewhere").start(task).trigger()

    def see(rest: int) -> list[int]:
        """How many runs each connection sees, while all of them are in use."""
        with app.database.reading() as tx:
            found = len(tx.rows("SELECT id FROM {runs}"))
            return [found, *(see(rest - 1) if rest else [])]

    assert see(rest=2) == [2, 2, 2]
    assert app.run(elsewhere.id).status == "running"
    assert kept.value.run_id == run.id
