"""operate/diagnosis/step_types: `penstock check` reports values between steps that can never fit, in both spellings,
and only those.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypedDict

import pytest
from pydantic import BaseModel

from penstock import Penstock, Snooze, first, switch
from penstock.operate.check import check_app
from penstock.operate.diagnosis.step_types import never_fits


@dataclass
class User:
    name: str


class Row(TypedDict):
    name: str


class Model(BaseModel):
    name: str


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (int, list[str]),
        (str, list[str]),
        (int, str),
        (list[int], list[str]),
        (list[int], int),
        (dict[str, int], int),
        (dict[str, int], list[int]),
        (list[list[int]], list[int]),
        (list[int] | None, dict[str, int]),
        (int | str, list[str]),
        (int, User),
        (list[str], User),
        (str, Row),
        (dict[str, str], dict[str, dict[str, str]]),
        (tuple[str, int], int),
        (datetime, list[str]),
        (datetime, str),
    ],
)
def test_what_never_fits(given: Any, wanted: Any) -> None:
    assert never_fits(given, wanted)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (int, int),
        (int, float),
        (str, int),
        (str, datetime),
        (list[int], tuple[int, ...]),
        (list[int], set[int]),
        (list[int], Iterator[int]),
        (list[str], list[int]),
        (int, int | None),
        (int | list[str], list[str]),
        (dict[str, str], User),
        (dict[str, Any], User),
        (int, Any),
        (int, list[Any] | int),
        (int, Model),
        (str, Literal["a"]),
        (User, dict[str, Any]),
        (User, int),
        (None, int),
        (Any, int),
        (tuple[str, int], tuple[str, int]),
    ],
)
def test_what_may_fit(given: Any, wanted: Any) -> None:
    assert not never_fits(given, wanted)


@dataclass
class Tasks:
    app: Penstock
    ids: Any
    load: Any
    count: Any
    report: Any


@pytest.fixture
def tasks() -> Tasks:
    app = Penstock("sqlite://")

    @app.task(name="ids")
    def ids(days: int) -> Iterator[int]:
        yield days

    @app.task(name="load")
    async def load(id: int) -> dict[str, int] | Snooze:
        return {"id": id}

    @app.task(name="count")
    def count(rows: list[dict[str, int]]) -> int:
        return len(rows)

    @app.task(name="report")
    def report(names: list[str], note: str = "") -> str:
        return note

    return Tasks(app, ids, load, count, report)


DESCRIBED: dict[str, tuple[Callable[[Tasks], object], list[str]]] = {
    "all is well": (lambda t: t.count(t.load.map(t.ids(1)).collect()), []),
    "int into list[str]": (
        lambda t: t.report(t.count([t.load(1)])),
        ["step 'report' takes 'names' as list[str], and is given int, the value of 'count'"],
    ),
    "by keyword": (
        lambda t: t.report(names=["a"], note=t.count([t.load(1)])),
        ["step 'report' takes 'note' as str, and is given int, the value of 'count'"],
    ),
    "collected": (
        lambda t: t.report(t.load.map(t.ids(1)).collect()),
        ["step 'report' takes 'names' as list[str], and is given list[dict[str, int]], the values of 'load'"],
    ),
    "an element": (
        lambda t: t.report.map(t.ids(1)).collect(),
        ["step 'report' takes 'names' as list[str], and is given int"],
    ),
    "in a list": (
        lambda t: t.report([t.load(1), t.load(2)]),
        ["step 'report' takes 'names' as list[str], and is given list[dict[str, int]]"],
    ),
    "of a switch, nothing is known": (
        lambda t: t.report(switch(t.count([t.load(1)]), {"1": t.ids}, otherwise=None)),
        [],
    ),
    "of a first, nothing is known": (lambda t: t.report(first(t.count([t.load(1)]), t.load(2))), []),
}


@pytest.mark.parametrize("case", DESCRIBED)
def test_the_graph_spelling(tasks: Tasks, case: str) -> None:
    describe, said = DESCRIBED[case]
    tasks.app.pipeline(name="p")(lambda: describe(tasks))
    assert [problem.message for problem in check_app(tasks.app)] == said


def test_parameters_of_the_run(tasks: Tasks) -> None:
    @tasks.app.pipeline(name="p")
    def described(days: str, number: int) -> Any:
        return tasks.ids(days), tasks.report(number)

    assert [problem.message for problem in check_app(tasks.app)] == [
        "step 'report' takes 'names' as list[str], and is given int, the parameter 'number' of the run"
    ]


def test_the_fluent_spelling(tasks: Tasks) -> None:
    tasks.app.flow("right").start(tasks.ids).expand(tasks.load).collapse(tasks.count)
    tasks.app.flow("wrong").start(tasks.ids).expand(tasks.load).collapse(tasks.count).chain(tasks.report)
    assert [(problem.subject, problem.message) for problem in check_app(tasks.app)] == [
        ("wrong", "step 'report' takes 'names' as list[str], and is given int, the value of 'count'")
    ]
