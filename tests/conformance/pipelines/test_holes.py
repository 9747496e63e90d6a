"""Steps that fail and may: what comes behind them runs with None in their place, whatever its annotations say."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from penstock import Penstock
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
