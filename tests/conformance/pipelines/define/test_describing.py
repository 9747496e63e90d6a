"""pipelines/define/graph: the function that describes a pipeline does nothing else."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from penstock import Penstock
from penstock.errors import DefinitionError
from penstock.testing import drain


def test_nothing_is_done_while_a_pipeline_is_described(app: Penstock) -> None:
    """A job or a run was written at every boot, before anything was checked."""

    @app.task(name="same")
    def same(value: int) -> int:
        return value

    @app.pipeline(name="child")
    def child() -> Any:
        return same(1)

    acts: list[Callable[[], object]] = [
        partial(same.enqueue, 1),
        partial(same.enqueue_many, [(1,)]),
        child.trigger,
        partial(child.trigger_many, [()]),
    ]
    for number, act in enumerate(acts):
        with pytest.raises(DefinitionError, match="inside a pipeline, which only describes its steps: call"):
            app.pipeline(name=f"acting {number}")(partial(_acting, same, act)).trigger()
    assert drain(app) == 0
    assert app.runs() == []


def test_a_name_that_is_taken_is_refused_whatever_has_it(app: Penstock) -> None:
    """What is callable need not have a name of its own."""

    @app.task(name="same")
    def same(value: int) -> int:
        return value

    app.pipeline(name="one")(partial(_acting, same, int))
    with pytest.raises(DefinitionError, match="one"):
        app.pipeline(name="one")(partial(_acting, same, str))


def test_an_error_of_its_function_says_which_pipeline_and_is_the_step_s_own(
    app: Penstock, make_app: Callable[..., Penstock]
) -> None:
    """In a child run it was the worker's: it claimed nothing any more, of whatever task."""
    _, _, parent = _with_a_child(make_app(), 0)
    same, child, _ = _with_a_child(app, 1)
    run = parent.trigger(1)
    beside = same.options(priority=-1).enqueue(3)
    with pytest.raises(DefinitionError, match="pipeline 'child' cannot be described: IndexError") as caught:
        child.trigger(2)
    assert isinstance(caught.value.__cause__, IndexError)
    drain(app)
    assert (run.status, run.reasons) == ("halted", ["child_run_failed"])
    assert "IndexError" in str(run.steps()[-1].error)
    assert beside.result(timeout=0) == 3


def _with_a_child(app: Penstock, place: int) -> tuple[Any, Any, Any]:
    @app.task(name="same")
    def same(value: int) -> int:
        return value

    @app.pipeline(name="child")
    def child(value: int) -> Any:
        return same([value][place])

    @app.pipeline(name="parent")
    def parent(value: int) -> Any:
        return child(same(value))

    return same, child, parent


def _acting(same: Any, act: Callable[[], object]) -> Any:
    act()
    return same(2)
