"""pipelines/advance/values: a run's result has the types of the tasks it comes from, whatever way it came."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel

from penstock import Penstock, first, stop_run, switch
from penstock.testing import drain


class Order(BaseModel):
    number: int
    day: date


ORDER = Order(number=1, day=date(2026, 11, 17))


class Shop:
    def __init__(self, app: Penstock) -> None:
        self.app = app

        @app.task(name="same")
        def same(value: Any) -> Any:
            return value

        @app.task(name="place")
        def place(order: Order) -> Order:
            return order

        @app.task(name="fail", retries=0)
        def fail(order: Order) -> Order:
            raise ValueError

        @app.pipeline(name="child")
        def child(order: Order) -> Any:
            return place(order)

        self.same, self.place, self.fail, self.child = same, place, fail, child

    def result(self, body: Callable[..., Any], *args: object) -> Any:
        run = self.app.pipeline(name=f"pipeline {len(self.app.pipelines)}")(body).trigger(*args)
        drain(self.app)
        return run.result(timeout=0)


@pytest.fixture
def shop(app: Penstock) -> Shop:
    return Shop(app)


def test_of_the_arm_that_ran(shop: Shop) -> None:
    def body(kind: str) -> Any:
        return switch(shop.same(kind), {"order": lambda: shop.place(ORDER)}, otherwise=None)

    assert shop.result(body, "order") == ORDER
    assert shop.result(body, "other") == "other"


def test_of_the_arms_of_each_element(shop: Shop) -> None:
    def body() -> Any:
        kind = shop.same.map(["order", "other"])
        return switch(kind, {"order": lambda: shop.place(ORDER)}, otherwise=None).collect()

    assert shop.result(body) == [ORDER, "other"]


def test_of_the_first(shop: Shop) -> None:
    place = shop.place
    assert shop.result(lambda: first(shop.fail.options(optional=True)(ORDER), place(ORDER))) == ORDER
    assert shop.result(lambda: first(place(ORDER), place(ORDER), count=2)) == [ORDER, ORDER]


def test_of_the_step_that_takes_over(shop: Shop) -> None:
    assert shop.result(lambda: shop.fail.options(on_failure=shop.place)(ORDER)) == ORDER


def test_of_a_child_run(shop: Shop) -> None:
    assert shop.result(lambda: shop.child(ORDER)) == ORDER
    assert shop.result(lambda: {"all": shop.child.map([ORDER, ORDER]).collect()}) == {"all": [ORDER, ORDER]}


def test_of_a_child_of_the_same_pipeline(shop: Shop) -> None:
    @shop.app.pipeline(name="again")
    def again(order: Order, times: int) -> Any:
        left = shop.same(times)
        return switch(left, {0: lambda: shop.place(order)}, otherwise=lambda: again(order, 0))

    run = again.trigger(ORDER, 1)
    drain(shop.app)
    assert run.status == "succeeded"
    assert Order.model_validate(run.result(timeout=0)) == ORDER


def test_of_a_parameter(shop: Shop) -> None:
    def body(order: Order) -> Any:
        return [shop.same(1), order]

    assert shop.result(body, ORDER) == [1, ORDER]


def test_elements_that_are_given_are_written_as_the_step_says(shop: Shop) -> None:
    assert shop.result(lambda: shop.place.map([ORDER]).collect()) == [ORDER]


def test_and_so_have_the_outputs_of_its_steps(shop: Shop) -> None:
    @shop.app.pipeline(name="steps")
    def steps(order: Order) -> Any:
        return shop.child(order), shop.place.map([ORDER]).collect(), shop.same(1)

    run = steps.trigger(ORDER)
    drain(shop.app)
    assert {step.key: step.output for step in run.steps()} == {"child": ORDER, "place": ORDER, "same": 1}


def test_an_output_that_does_not_fit_any_more_is_a_plain_one(shop: Shop) -> None:
    @shop.app.task(name="stop")
    def stop() -> Order:
        stop_run("early")

    run = shop.app.flow("stopping").start(stop).trigger()
    drain(shop.app)
    assert [step.output for step in run.steps()] == ["early"]
