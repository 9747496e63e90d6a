"""pipelines/plan/plan, pipelines/advance/run_rows: how wide, and how much in all: `max_fanout` of steps, pipelines
and apps, `max_steps` of a run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import Penstock
from penstock.errors import DefinitionError
from penstock.pipelines.advance import run_rows
from penstock.pipelines.advance.run_rows import RunView
from penstock.testing import drain
from tests.conformance.rows import rows


@pytest.fixture
def make(app: Penstock) -> Callable[..., Any]:
    """`make(max_steps=12)`: one step, an expand of two steps an element, inside it another one of one step."""

    @app.task(name="numbers")
    def numbers(n: int) -> list[int]:
        return list(range(n))

    @app.task(name="size")
    def size(xs: list[Any]) -> int:
        return len(xs)

    @app.task(name="same")
    def same(x: int) -> int:
        return x

    def make(widest: int | None = None, **settings: Any) -> Any:
        options: Any = {} if widest is None else {"max_fanout": widest}

        @app.pipeline(name="nested", **settings)
        def nested(n: int) -> Any:
            inner = numbers.options(**options).map(numbers(n))
            return size(size(same.map(inner).collect()).collect())

        return nested

    return make


# 1 numbers, 1 size; 2 an element (numbers, size); 0 + 1 + ... + n-1 of `same`
TOTALS = {3: 2 + 6 + 3, 4: 2 + 8 + 6}


@pytest.mark.parametrize("n", [3, 4])
def test_a_run_that_stays_within_it_is_not_disturbed(app: Penstock, make: Any, n: int) -> None:
    run = make(max_steps=TOTALS[n]).trigger(n)
    drain(app)
    assert run.result(1) == n
    assert len(run.steps()) == TOTALS[n]
    assert rows(app, "SELECT reserved FROM {runs}") == [(TOTALS[n] - 2,)]


@pytest.mark.parametrize("most", [TOTALS[4] - 1, 10, 9, 2])
def test_one_step_more_halts_it(app: Penstock, make: Any, most: int) -> None:
    run = make(max_steps=most).trigger(4)
    drain(app)
    assert (run.status, run.reasons) == ("halted", ["max_steps_exceeded"])
    assert len([step for step in run.steps() if step.status == "succeeded"]) <= most
    assert any("max_steps=" in str(step.error) for step in run.steps())


def test_the_row_decides_when_two_have_seen_room_at_the_same_moment(
    app: Penstock, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def blind(_tx: Any, runs: list[RunView]) -> None:
        for run in runs:
            run.reserved = 0

    monkeypatch.setattr(run_rows, "read_reserved", blind)
    run = make(max_steps=TOTALS[4] - 1).trigger(4)
    drain(app)
    assert (run.status, run.reasons) == ("halted", ["max_steps_exceeded"])
    ran = [step for step in run.steps() if step.status == "succeeded"]
    assert len(ran) < TOTALS[4]
    assert {step.reason for step in run.steps() if step.status == "skipped"} == {"run_halted"}


def test_the_width_of_one_expand_is_limited_by_its_step(app: Penstock, make: Any) -> None:
    ok, wide = make(widest=3).trigger(3), make(widest=3).trigger(4)
    drain(app)
    assert ok.result(1) == 3
    assert (wide.status, wide.reasons) == ("halted", ["max_fanout_exceeded"])


def test_an_app_limits_divides_too(make_app: Callable[..., Penstock]) -> None:
    app = make_app(max_fanout=2)

    @app.task(name="same")
    def same(x: int) -> int:
        return x

    def divided(width: int, **settings: Any) -> Any:
        @app.pipeline(name=f"divided_{width}_{len(settings)}", **settings)
        def pipeline(x: int) -> Any:
            first = same(x)
            return [same(first) for _ in range(width)]

        return pipeline

    divided(2).trigger(1)
    with pytest.raises(DefinitionError, match="'same' is divided into 3; max_fanout is 2"):
        divided(3).trigger(1)
    divided(3, max_fanout=3).trigger(1)
