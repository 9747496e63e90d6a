"""pipelines/define/validation: Pipelines that start each other: refused if nothing can end them, and brought to an
end if nothing does.
"""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Penstock, switch
from penstock.errors import DefinitionError, RunFailed
from penstock.operate.check import check_pipelines
from penstock.pipelines.lifecycle import child_runs
from penstock.testing import drain
from tests.conformance.pipelines.define.test_wrong_values import rows


def circle(app: Penstock, *names: str) -> dict[str, Any]:
    """Each starts the next in every run, and the last the first."""

    def declare(name: str, following: str) -> Any:
        return app.pipeline(name=name)(lambda value: [made[following](value)])

    made: dict[str, Any] = {}
    made |= {name: declare(name, names[(at + 1) % len(names)]) for at, name in enumerate(names)}
    return made


@pytest.fixture
def less(app: Penstock) -> Any:
    @app.task(name="less")
    def less(value: int) -> int:
        return value - 1

    return less


def test_pipelines_that_start_each_other_in_every_run_are_refused(app: Penstock, less: Any) -> None:
    made = circle(app, "a", "b", "c")
    outside = app.pipeline(name="outside")(lambda value: made["b"](less(value)))
    flow = app.flow("flow").start(less).chain(outside)
    before = rows(app)
    with pytest.raises(DefinitionError, match=r"a → b → c → a start each other again in every run.* switch"):
        made["a"].trigger(1)
    with pytest.raises(DefinitionError, match="b → c → a → b"):
        outside.options(key="k").trigger(1)
    with pytest.raises(DefinitionError, match="b → c → a → b"):
        flow.trigger_many([(1,), (2,)])
    assert rows(app) == before
    with pytest.raises(DefinitionError, match="c → a → b → c"):
        app.flow("alone").start(less).trigger(1).then(made["c"], 1)
    assert [problem.subject for problem in check_pipelines(app)] == ["a", "b", "c", "flow", "outside"]


def test_a_flow_that_was_in_order_is_asked_again_after_another_verb(app: Penstock, less: Any) -> None:
    made = circle(app, "a", "b")
    flow = app.flow("flow").start(less)
    run = flow.trigger(2)
    drain(app)
    assert run.result(0) == 1
    with pytest.raises(DefinitionError):
        flow.chain(made["a"]).trigger(1)


def test_with_a_condition_they_may(app: Penstock, less: Any) -> None:
    @app.pipeline(name="even")
    def even(value: int) -> Any:
        return switch(less(value), {0: None}, otherwise=odd)

    @app.pipeline(name="odd")
    def odd(value: int) -> Any:
        return switch(less(value), {0: None}, otherwise=even)

    run = even.trigger(7)
    drain(app)
    assert run.result(0) == 0
    assert len(app.runs()) == 7


def test_what_nothing_ends_is_ended_by_its_depth(
    app: Penstock, less: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_runs, "DEEPEST", 5)

    @app.pipeline(name="down")
    def down(value: int) -> Any:
        return switch(less(value), {0: None}, otherwise=further)

    @app.pipeline(name="further")
    def further(value: int) -> Any:
        return down(value)

    run = down.trigger(-1)
    drain(app)
    assert (run.status, run.reasons) == ("halted", ["child_run_failed"])
    assert len(app.runs()) == 5
    (last,) = [step for step in app.runs()[0].steps() if step.status == "failed"]
    assert "one inside the other" in str(last.error)
    with pytest.raises(
        RunFailed, match="because of step 'further': .*DefinitionError: .*one inside the other"
    ) as caught:
        run.result(0)
    assert str(caught.value).count("because of") == 1, "the innermost alone"


def test_a_circle_that_came_with_a_deploy_is_met_by_the_worker(
    app: Penstock, less: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = circle(app, "a", "b")
    with monkeypatch.context() as before_the_deploy:
        before_the_deploy.setattr("penstock.pipelines.pipeline.refuse_circles", lambda *_: None)
        run = made["a"].options(key="old").trigger(1)
    drain(app)
    assert run.status == "halted"
    assert len(app.runs()) == 1
