"""pipelines/lifecycle/start: Many runs at once: in one transaction, by a few statements, each with its key; or none
of them.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from sqlalchemy import text

from penstock import Penstock
from penstock.errors import ArgumentError, ConfigurationError
from penstock.telemetry import fault_points
from penstock.testing import SimulatedCrash, crash_at, drain, inline, travel
from tests.conformance.pipelines.runs.test_definitions import together
from tests.conformance.rows import count, rows


@pytest.fixture
def adding(app: Penstock) -> Any:
    @app.task(name="add")
    def add(x: int, y: int) -> int:
        return x + y

    @app.pipeline(name="adding")
    def adding(x: int, y: int = 10) -> Any:
        return add(add(x, y), add(x, 0))

    return adding


def test_every_call_is_a_run_in_their_order(app: Penstock, adding: Any) -> None:
    runs = adding.trigger_many([(1,), (2, 20), {"x": 3, "y": 30}])
    drain(app)
    assert [run.result(1) for run in runs] == [12, 24, 36]
    assert adding.trigger_many([]) == []


def test_async_callers_have_it_too(app: Penstock, adding: Any) -> None:
    runs = asyncio.run(adding.trigger_many_async([(1,), (2,)], keys=["a", "b"]))
    assert asyncio.run(adding.trigger_many_async([(2,)], keys=["b"])) == runs[1:]
    drain(app)
    assert [run.result(1) for run in runs] == [12, 14]


def test_a_key_is_one_run_whichever_caller_has_it_first(app: Penstock, adding: Any) -> None:
    first = adding.options(key="b").trigger(1)
    runs = adding.trigger_many([(1,), (2,), (3,), (4,), (5,)], keys=["a", "b", None, "a", None])
    assert (runs[1], runs[3]) == (first, runs[0])
    assert len(set(runs)) == 4
    assert adding.trigger_many([(1,), (2,)], keys=["a", "b"]) == [runs[0], first]
    assert count(app, "runs") == 4
    drain(app)
    assert [run.result(1) for run in runs] == [12, 12, 16, 12, 20]


def test_what_is_wrong_with_one_is_wrong_with_all(app: Penstock, adding: Any) -> None:
    with pytest.raises(ArgumentError):
        adding.trigger_many([(1,), ("x", "y", "z")])
    with pytest.raises(ArgumentError, match="trigger_many takes a tuple or a mapping"):
        adding.trigger_many([1, 2])
    with pytest.raises(ConfigurationError, match="2 calls, but 1 key$"):
        adding.trigger_many([(1,), (2,)], keys=["a"])
    with pytest.raises(ConfigurationError, match=r"keys=\[...\]"):
        adding.options(key="a").trigger_many([(1,), (2,)])
    app.prepare()
    assert count(app, "runs") == 0


def test_options_are_those_of_all(app: Penstock, adding: Any) -> None:
    runs = adding.options(delay=60).trigger_many([(1,), (2,)])
    drain(app)
    assert [run.status for run in runs] == ["pending", "pending"]
    with travel(app, 61):
        drain(app)
    assert [run.result(1) for run in runs] == [12, 14]


def test_in_the_callers_transaction_they_are_there_if_that_commits(app: Penstock, adding: Any) -> None:
    app.prepare()
    for commits in (False, True):
        with app.database.engine.connect() as connection:
            connection.execute(text("SELECT 1"))
            runs = adding.options(connection=connection).trigger_many([(1,), (2,)], keys=["a", "b"])
            connection.commit() if commits else connection.rollback()
        assert count(app, "runs") == (2 if commits else 0)
    drain(app)
    assert [run.result(1) for run in runs] == [12, 14]


def test_the_number_of_statements_does_not_depend_on_the_number_of_runs(app: Penstock, adding: Any) -> None:
    adding.trigger(1)

    def statements(number: int) -> int:
        passed: list[str] = []
        keys = [f"{number}-{each}" for each in range(number)]
        here = threading.current_thread()

        def note(point: str) -> None:
            if threading.current_thread() is here:  # others may be sending wake-ups meanwhile
                passed.append(point)

        with fault_points.watching(note):
            adding.trigger_many([(each,) for each in range(number)], keys=keys)
        return len(passed)

    assert statements(40) == statements(4)


def test_killed_at_any_statement_all_are_there_or_none(app: Penstock, adding: Any) -> None:
    adding.trigger_many([(1,), (2,)], keys=["a", "b"])
    passed: list[str] = []
    with fault_points.watching(passed.append):
        adding.trigger_many([(1,), (2,)], keys=["c", "d"])
    for number, point in enumerate(dict.fromkeys(passed)):
        before = count(app, "runs")
        keys = [f"{number}-1", f"{number}-2"]
        with crash_at(point) as crash, pytest.raises(SimulatedCrash):
            adding.trigger_many([(1,), (2,)], keys=keys)
        assert crash.crashed
        assert count(app, "runs") - before == (2 if point.endswith(".committed") else 0), point
        assert len(set(adding.trigger_many([(1,), (2,)], keys=keys))) == 2
        assert count(app, "runs") - before == 2
    drain(app)
    assert {status for (status,) in rows(app, "SELECT status FROM {runs}")} == {"succeeded"}


def test_two_with_the_same_keys_in_other_orders_agree(app: Penstock, adding: Any) -> None:
    app.prepare()
    keys = [f"key {number}" for number in range(12)]
    found: list[dict[str, Any]] = []

    def trigger(order: list[str]) -> None:
        runs = adding.trigger_many([(1,) for _ in order], keys=order)
        found.append(dict(zip(order, runs, strict=True)))

    works: list[Any] = [
        [lambda order=order: trigger(order)] * 3 for order in (keys, keys[::-1], keys[::2], keys[1::2])
    ]
    together(works)
    assert all(one[key] == each[key] for one in found for each in found for key in one.keys() & each.keys())
    assert count(app, "runs") == 12


def test_inline_they_are_run_on_the_spot(app: Penstock, adding: Any) -> None:
    with inline(app):
        runs = adding.trigger_many([(1,), (2,)])
        assert [run.result(0) for run in runs] == [12, 14]
