"""pipelines/plan/inputs: Steps that fail and may: what comes behind them runs with None in their place, whatever its
annotations say.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from penstock import Penstock, first, switch
from penstock.testing import drain


@dataclass
class Price:
    amount: Decimal


@pytest.fixture
def seen(app: Penstock) -> list[Any]:
    """What the steps that take something were given."""
    seen: list[Any] = []

    @app.task(name="look_up", retries=0)
    def look_up(number: int) -> Price:
        if number == 1:
            raise LookupError(number)
        return Price(Decimal(number))

    @app.task(name="one", retries=0)
    def one(price: Price, *, other: int = 3) -> None:
        seen.append((price, other))

    @app.task(name="listed")
    def listed(prices: list[Price]) -> None:
        seen.append(prices)

    @app.task(name="nested")
    def nested(prices: Sequence[list[Price]]) -> None:
        seen.append(prices)

    @app.task(name="streamed")
    def streamed(prices: Iterable[Price]) -> None:
        seen.append(list(prices))

    @app.task(name="nothing", retries=0)
    def nothing(_: int) -> None:
        pass

    return seen


def run(app: Penstock, describe: Any, *args: Any) -> Any:
    started = app.pipeline(name="p")(describe).trigger(*args)
    drain(app)
    return started


@pytest.mark.parametrize(
    ("how", "status"), [({"on_failure": "ignore"}, "failed"), ({"optional": True}, "succeeded")]
)
def test_a_step_behind_one_that_failed_gets_none(
    app: Penstock, seen: list[Any], how: dict[str, Any], status: str
) -> None:
    """It was refused its arguments, and halted the run."""
    look_up, one = app.tasks["look_up"].options(**how), app.tasks["one"]
    ended = run(app, lambda number: one(look_up(number), other=look_up.options(key="again")(number)), 1)
    assert ended.status == status
    assert seen == [(None, None)]


@pytest.mark.parametrize("taker", ["listed", "streamed"])
def test_a_list_of_elements_has_none_where_one_failed(app: Penstock, seen: list[Any], taker: str) -> None:
    look_up, take = app.tasks["look_up"].options(optional=True), app.tasks[taker]
    ended = run(app, lambda numbers: take(look_up.map(numbers).collect()), [1, 2])
    assert ended.status == "succeeded"
    assert seen == [[None, Price(Decimal(2))]]


def test_lists_of_lists_too(app: Penstock, seen: list[Any]) -> None:
    look_up, nested = app.tasks["look_up"].options(optional=True), app.tasks["nested"]

    def describe(numbers: list[int]) -> Any:
        return nested([[look_up(1), look_up(2)], look_up.map(numbers).collect()])

    assert run(app, describe, [2, 1]).status == "succeeded"
    assert seen == [[[None, Price(Decimal(2))], [Price(Decimal(2)), None]]]


def test_none_that_was_returned_must_fit(app: Penstock, seen: list[Any]) -> None:
    one, nothing = app.tasks["one"], app.tasks["nothing"]
    ended = run(app, lambda number: one(nothing(number)), 1)
    assert (ended.status, ended.reasons) == ("halted", ["arguments_invalid"])
    assert seen == []


def test_the_result_of_a_run_whose_last_step_failed_is_none(app: Penstock, seen: list[Any]) -> None:
    """The run had succeeded, and asking for its result raised an error."""
    look_up = app.tasks["look_up"].options(optional=True)
    ended = app.flow("p").start(look_up).trigger(1)
    drain(app)
    assert ended.result(0) is None


def test_a_result_made_from_several_steps_has_their_types(app: Penstock, seen: list[Any]) -> None:
    look_up = app.tasks["look_up"].options(optional=True)

    def describe(numbers: list[int]) -> Any:
        return {"two": look_up(2), "all": [look_up(1), look_up.map(numbers).collect()], "count": 5}

    two = Price(Decimal(2))
    assert run(app, describe, [1, 2]).result(0) == {"two": two, "all": [None, [None, two]], "count": 5}


def child_of(app: Penstock, kind: str) -> Any:
    """A pipeline that hands what it is given to a task which says that it takes a price."""
    one, listed = app.tasks["one"], app.tasks["listed"]

    def annotated(price: Price) -> Any:
        return one(price)

    def open_to_all(price):  # type: ignore[no-untyped-def]
        return one(price)

    def deep(price: Price) -> Any:
        return app.pipeline(name="inner")(annotated)(price)

    def of_list(prices: list[Price]) -> Any:
        return listed(prices)

    def over_list(prices: list[Price]) -> Any:
        return one.map(prices).collect()

    def chosen(price: Price) -> Any:
        return switch(price, {"None": one}, otherwise=app.tasks["nothing"])

    if kind == "flow":
        return app.flow("child").start(one)
    of: dict[str, Any] = {
        "annotated": annotated,
        "open": open_to_all,
        "deep": deep,
        "list": of_list,
        "expand": over_list,
        "switch": chosen,
    }
    return app.pipeline(name="child")(of[kind])


@pytest.mark.parametrize("how", [{"on_failure": "ignore"}, {"optional": True}])
@pytest.mark.parametrize("kind", ["annotated", "open", "deep", "flow", "switch"])
def test_a_child_run_behind_one_that_failed_is_given_none(
    app: Penstock, seen: list[Any], kind: str, how: dict[str, Any]
) -> None:
    """It was refused its arguments, or the first step in it was."""
    look_up, child = app.tasks["look_up"].options(**how), child_of(app, kind)
    ended = run(app, lambda number: child(look_up(number)), 1)
    assert ended.status == ("succeeded" if "optional" in how else "failed")
    assert seen == [(None, 3)]


@pytest.mark.parametrize("kind", ["list", "expand"])
def test_a_child_run_is_given_lists_with_none_in_them(app: Penstock, seen: list[Any], kind: str) -> None:
    look_up, child = app.tasks["look_up"].options(optional=True), child_of(app, kind)
    ended = run(app, lambda numbers: child(look_up.map(numbers).collect()), [1, 2])
    assert ended.status == "succeeded"
    two = Price(Decimal(2))
    assert seen in ([[None, two]], [(None, 3), (two, 3)])


WAYS: dict[str, Any] = {
    "map": lambda take, look_up, numbers: take(look_up.map(numbers)).collect(),
    "map of a list": lambda take, look_up, numbers: take.map(look_up.map(numbers).collect()).collect(),
    "first": lambda take, look_up, _: take(first(look_up(1), look_up.options(key="again")(1))),
    "switch": lambda take, look_up, _: switch(look_up(1), {"None": take}, otherwise=take),
    "converge": lambda take, look_up, numbers: take(
        switch(numbers, {"[1]": lambda: look_up(1)}, otherwise=lambda: look_up.options(key="other")(2))
    ),
    "empty arm": lambda take, look_up, _: take(switch(look_up(1), {"x": take}, otherwise=None)),
    "by name": lambda take, look_up, _: take(price=look_up(1)),
}


@pytest.mark.parametrize("kind", ["task", "annotated", "flow"])
@pytest.mark.parametrize("way", WAYS)
def test_it_is_none_whichever_way_it_comes(app: Penstock, seen: list[Any], way: str, kind: str) -> None:
    look_up = app.tasks["look_up"].options(optional=True)
    take = app.tasks["one"] if kind == "task" else child_of(app, kind)
    ended = run(app, lambda numbers: WAYS[way](take, look_up, numbers), [1])
    assert (ended.status, ended.reasons) == ("succeeded", [])
    assert seen == [(None, 3)]


def test_what_comes_out_of_a_child_run_is_none_as_well(app: Penstock, seen: list[Any]) -> None:
    look_up, one = app.tasks["look_up"].options(optional=True), app.tasks["one"]
    child = app.pipeline(name="child")(look_up)
    ended = run(app, lambda number: one(child(number)), 1)
    assert ended.status == "succeeded"
    assert seen == [(None, 3)]
    (inner,) = app.runs(pipeline="child")
    assert inner.result(0) is None


@pytest.mark.parametrize("kind", ["annotated", "flow"])
def test_a_child_run_is_not_given_a_none_that_does_not_fit(app: Penstock, seen: list[Any], kind: str) -> None:
    """Nor beside one that is missing."""
    look_up, nothing, child = (
        app.tasks["look_up"].options(optional=True),
        app.tasks["nothing"],
        child_of(app, kind),
    )
    ended = run(app, lambda number: child(nothing.options(after=[look_up(number)])(number)), 1)
    assert (ended.status, ended.reasons) == ("halted", ["arguments_invalid"])
    assert seen == []


@pytest.mark.parametrize("definition", ["own", "current"])
def test_a_revived_child_run_has_it_still(app: Penstock, seen: list[Any], definition: str) -> None:
    broken = [True]

    @app.task(name="fragile", retries=0)
    def fragile(price: Price) -> None:
        if broken[0]:
            raise LookupError(price)
        seen.append(price)

    look_up = app.tasks["look_up"].options(optional=True)

    @app.pipeline(name="child")
    def child(price: Price):  # type: ignore[no-untyped-def]
        return fragile(price)

    before = run(app, lambda number: child(look_up(number)), 1)
    assert before.status == "halted"
    broken[0] = False
    (inner,) = app.runs(pipeline="child")
    assert inner.args == {"price": None}
    revived = before.revive(definition=definition)
    drain(app)
    assert (revived.status, seen) == ("succeeded", [None])
    inner.rerun()
    drain(app)
    assert seen == [None, None]
