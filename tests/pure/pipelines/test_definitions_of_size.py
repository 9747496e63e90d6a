"""pipelines/model/wiring: a definition of four times as many steps takes about four times as long to build, whatever
its shape.
"""

import gc
import time
from collections.abc import Callable
from typing import Any

import pytest

from penstock import Penstock, barrier, first, switch

SMALL, LARGE = 300, 1_200
MOST = 8
"""Times as long. If each step were compared with each, it would be sixteen."""

Steps = dict[str, Any]
Shape = Callable[[Steps, int, Any], object]


def _parallel(tasks: Steps, size: int, value: Any) -> object:
    return tasks["total"]([tasks["one"](value) for _ in range(size)])


def _loose(tasks: Steps, size: int, value: Any) -> object:
    steps = [tasks["one"](value) for _ in range(size)]
    return steps[0]


def _row(tasks: Steps, size: int, value: Any) -> object:
    for _ in range(size):
        value = tasks["one"](value)
    return value


def _after_keys(tasks: Steps, size: int, value: Any) -> object:
    for number in range(size):
        before = [f"s{number - 1}"] if number else []
        tasks["one"].options(key=f"s{number}", after=before)(value)
    return None


def _expands(tasks: Steps, size: int, value: Any) -> object:
    numbers = tasks["numbers"](value)
    return [tasks["one"].map(numbers).collect() for _ in range(size // 4)]


def _switches(tasks: Steps, size: int, value: Any) -> object:
    return [switch(value, {1: tasks["one"]}, otherwise=tasks["one"]) for _ in range(size // 4)]


def _arms(tasks: Steps, size: int, value: Any) -> object:
    return switch(value, dict.fromkeys(range(size), tasks["one"]), otherwise=None)


def _fallbacks(tasks: Steps, size: int, value: Any) -> object:
    return [tasks["one"].options(on_failure=tasks["one"])(value) for _ in range(size // 4)]


def _first(tasks: Steps, size: int, value: Any) -> object:
    return first(*[tasks["one"](value) for _ in range(size)])


def _barrier(tasks: Steps, size: int, value: Any) -> object:
    passed = barrier(*[tasks["one"](value) for _ in range(size)])
    return tasks["one"].options(after=[passed])(value)


def _divide(app: Penstock, tasks: Steps, size: int, name: str) -> Any:
    return app.flow(name).start(tasks["one"]).divide(*[tasks["one"]] * size).combine(tasks["total"])


SHAPES: dict[str, Shape] = {
    "parallel": _parallel,
    "loose": _loose,
    "in a row": _row,
    "after keys": _after_keys,
    "expands": _expands,
    "switches": _switches,
    "arms": _arms,
    "fallbacks": _fallbacks,
    "first": _first,
    "barrier": _barrier,
}


@pytest.mark.parametrize("shape", [*SHAPES, "divide"])
def test_the_time_grows_with_the_steps(shape: str) -> None:
    app = Penstock("sqlite:///:memory:")

    @app.task
    def one(value: int) -> int:
        return value

    @app.task
    def numbers(value: int) -> list[int]:
        return [value]

    @app.task
    def total(values: list[int]) -> int:
        return sum(values)

    tasks = {"one": one, "numbers": numbers, "total": total}

    def declared(size: int, name: str) -> Any:
        def described(value: int) -> object:
            return SHAPES[shape](tasks, size, value)

        return app.pipeline(name=name)(described)

    def build(size: int, turn: int) -> float:
        name = f"p{size}_{turn}"
        began = time.thread_time()
        made = declared(size, name) if shape in SHAPES else _divide(app, tasks, size, name)
        assert len(made.definition.nodes) >= size // 4
        return time.thread_time() - began

    gc.disable()
    try:
        build(SMALL, -1)
        small, large = (min(build(size, turn) for turn in range(2)) for size in (SMALL, LARGE))
    finally:
        gc.enable()
    assert large < MOST * small
