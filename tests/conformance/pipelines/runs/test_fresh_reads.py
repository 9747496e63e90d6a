"""pipelines/run: a read sees the present state, whatever was queried before and not read."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from penstock import Penstock
from penstock.database.postgres.pipeline import Wire
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


@pytest.mark.standard_profile  # which sends several statements at a time
def test_the_result_of_a_run_is_one_round_trip(
    app: Penstock, monkeypatch: pytest.MonkeyPatch, database_kind: str
) -> None:
    if database_kind != "postgres":
        pytest.skip("only PostgreSQL is sent several statements at a time")

    @app.task(name="double")
    def double(number: int) -> int:
        return 2 * number

    @app.pipeline(name="twice")
    def twice(number: int) -> Any:
        return double(double(number))

    twice.trigger(1)
    run = twice.trigger(3)
    drain(app)
    waits: list[int] = []
    wait = Wire.wait

    caller = threading.get_ident()

    def count(wire: Wire) -> None:
        # The thread that sends wake-ups may still be at work. And there may be nothing to wait for.
        if threading.get_ident() == caller and wire._expected:
            waits.append(len(wire._expected))
        wait(wire)

    monkeypatch.setattr(Wire, "wait", count)
    assert run.result(5) == 12
    assert len(waits) == 1
