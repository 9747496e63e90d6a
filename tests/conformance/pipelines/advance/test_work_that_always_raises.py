"""pipelines/maintenance/chores: a piece of work for a run that raises whenever it is tried does not keep the others
waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import Penstock, wait_for
from penstock.telemetry.events import RowSetAside
from penstock.testing import drain, travel
from penstock.values.ids import new_id
from tests.conformance.rows import rows


@pytest.fixture
def small(make_app: Callable[..., Penstock]) -> Penstock:
    app = make_app(inline_fanout=2)

    @app.task(name="numbers")
    def numbers() -> list[int]:
        return [1, 2, 3, 4]

    @app.task(name="same")
    def same(x: int) -> int:
        return x

    @app.pipeline(name="wide")
    def wide() -> Any:
        return same.map(numbers()).collect()

    @app.pipeline(name="waiting")
    def waiting() -> Any:
        return wait_for("go", timeout=5, default="late")

    return app


def test_a_timer_that_raises_is_put_off(small: Penstock) -> None:
    bad, good = small.pipelines["waiting"].trigger(), small.pipelines["waiting"].trigger()
    job = bad.steps()[0].id
    small.database.in_transaction(
        lambda tx: tx.run("UPDATE {timers} SET data = 'nowhere' WHERE job_id = :job", job=job)
    )
    aside = set_aside(small)
    with travel(small, 6):
        drain(small)
        assert (good.status, bad.status) == ("succeeded", "running")
    assert [(one.what, one.error, one.seconds) for one in aside] == [
        ("the timer", "KeyError: 'nowhere'", 1.0)
    ]
    with travel(small, 70):
        drain(small)
    assert [one.seconds for one in aside] == [1.0, 2.0], "named each time, at growing intervals"


def test_an_expand_that_raises_is_put_off_and_says_why(small: Penstock) -> None:
    bad = small.pipelines["waiting"].trigger()
    row = {"id": new_id(), "run_id": bad.id, "node": "nowhere", "path": "", "width": 9, "phase": "stage"}
    small.database.in_transaction(
        lambda tx: tx.insert(
            "advancements", [{**row, "next_index": 0}], created_at="{now}", updated_at="{now}"
        )
    )
    good = small.pipelines["wide"].trigger()
    aside = set_aside(small)
    drain(small)
    assert [(one.what, one.row) for one in aside] == [("the expand", row["id"])]
    assert good.result(1) == [1, 2, 3, 4]
    assert rows(small, "SELECT node, problem FROM {advancements}") == [("nowhere", "KeyError: 'nowhere'")]
    with travel(small, 61):
        drain(small)
    assert [one.seconds for one in aside] == [1.0, 2.0]


def set_aside(app: Penstock) -> list[RowSetAside]:
    """What is set aside from now on."""
    told: list[RowSetAside] = []
    app.events.on(RowSetAside, told.append)
    return told
