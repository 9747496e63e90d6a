"""The function that describes a pipeline does nothing else."""

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


def test_a_name_that_somebody_else_has_is_refused_whatever_has_it(app: Penstock) -> None:
    """What is callable need not have a name of its own."""

    @app.task(name="same")
    def same(value: int) -> int:
        return value

    app.pipeline(name="one")(partial(_acting, same, int))
    with pytest.raises(DefinitionError, match="one"):
        app.pipeline(name="one")(partial(_acting, same, str))


def _acting(same: Any, act: Callable[[], object]) -> Any:
    act()
    return same(2)
