"""pipelines/define/builder: a step that stands in for one that has failed: `.options(on_failure=task)`."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Penstock, Retry, current
from penstock.errors import DefinitionError
from penstock.testing import drain, travel


class Shop:
    """A payment that may fail, and what then takes its place."""

    def __init__(self, app: Penstock) -> None:
        self.app = app
        self.broken: set[str] = {"pay"}
        self.calls: list[str] = []

        def say(name: str, value: Any) -> Any:
            self.calls.append(name)
            if name in self.broken:
                raise ValueError(f"{name} is broken")
            return value

        @app.task(name="pay", retries=0)
        def pay(order: int, note: str = "") -> None:
            return say("pay", None)  # type: ignore[no-any-return]

        @app.task(name="refund", retries=0)
        def refund(order: int, note: str = "") -> str:
            return str(say("refund", f"refunded {order}{note}"))

        @app.task(name="ship", retries=0)
        def ship(paid: str | None) -> str:
            return str(say("ship", f"shipped: {paid}"))

        @app.task(name="orders")
        def orders() -> list[int]:
            return [1, 2]

        self.pay, self.refund, self.ship, self.orders = pay, refund, ship, orders

    def pipeline(self, body: Any, **options: Any) -> Any:
        return self.app.pipeline(name=f"pipeline {len(self.app.pipelines)}", **options)(body)

    def run(self, body: Any, **options: Any) -> Any:
        run = self.pipeline(body, **options).trigger()
        drain(self.app)
        return run

    def safe(self) -> Any:
        return self.pay.options(on_failure=self.refund)


@pytest.fixture
def shop(app: Penstock) -> Shop:
    return Shop(app)


def statuses(run: Any) -> dict[str, str]:
    return {step.key + "".join(map(str, step.path)): str(step.status) for step in run.steps()}


def test_it_runs_only_if_the_step_fails_and_its_value_goes_on(shop: Shop) -> None:
    def body() -> Any:
        return shop.ship(shop.safe()(7, note="!"))

    run = shop.run(body)
    assert (run.status, run.reasons, run.result(0)) == ("succeeded", [], "shipped: refunded 7!")
    assert statuses(run) == {"pay": "failed", "refund": "succeeded", "ship": "succeeded"}
    shop.broken.clear()
    run = shop.run(body)
    assert run.result(0) == "shipped: None", "a step that returns nothing has not failed"
    assert statuses(run) == {"pay": "succeeded", "refund": "skipped", "ship": "succeeded"}


def test_it_waits_for_the_last_attempt(shop: Shop) -> None:
    pay = shop.pay.options(on_failure=shop.refund, retries=Retry(max=1, delay=60))
    run = shop.run(lambda: pay(1))
    assert shop.calls == ["pay"]
    with travel(shop.app, 600):
        drain(shop.app)
    assert (run.result(0), shop.calls) == ("refunded 1", ["pay", "pay", "refund"])


def test_what_takes_over_fails_as_any_step(shop: Shop) -> None:
    shop.broken.add("refund")
    halted = shop.run(lambda: shop.ship(shop.safe()(1)))
    assert (halted.status, halted.reasons) == ("halted", ["retries_exhausted"])
    refund = shop.refund.options(optional=True)
    lenient = shop.run(lambda: shop.ship(shop.pay.options(on_failure=refund)(1)))
    assert lenient.result(0) == "shipped: None"


def test_a_step_that_never_ran_is_not_stood_in_for(shop: Shop) -> None:
    shop.broken = {"ship"}
    run = shop.run(lambda: shop.safe()(shop.ship("x")), on_failure="continue")
    assert statuses(run) == {"ship": "failed", "pay": "skipped", "refund": "skipped"}


def test_in_every_element_in_flows_and_by_a_child_run(shop: Shop) -> None:
    app = shop.app
    notes = app.task(name="note")(lambda: "noted")
    compensation = shop.pipeline(lambda: notes())  # noqa: PLW0108 - it is a pipeline

    def body() -> Any:
        one = app.tasks["one"].map(shop.orders())
        return shop.safe()(one).collect()

    app.task(name="one")(lambda number: number)
    assert shop.run(body).result(0) == ["refunded 1", "refunded 2"]
    assert shop.run(lambda: shop.pay.options(on_failure=compensation)(1)).result(0) == "noted"
    flow = app.flow("flow").start(shop.safe()).chain(shop.ship)
    run = flow.trigger(5)
    drain(app)
    assert run.result(0) == "shipped: refunded 5"


def test_a_revival_does_not_undo_what_was_dealt_with(shop: Shop) -> None:
    shop.broken = {"pay", "ship"}
    run = shop.run(lambda: shop.ship(shop.safe()(1)))
    shop.broken, shop.calls = set(), []
    again = run.revive()
    drain(shop.app)
    assert (again.result(0), shop.calls) == ("shipped: refunded 1", ["ship"])


def test_a_revival_does_again_what_was_not_dealt_with(shop: Shop) -> None:
    shop.broken = {"pay", "refund"}
    run = shop.run(lambda: shop.ship(shop.safe()(1)))
    shop.broken, shop.calls = set(), []
    again = run.revive()
    drain(shop.app)
    assert (again.result(0), shop.calls) == ("shipped: None", ["pay", "ship"])


def test_what_makes_no_sense_is_refused(shop: Shop) -> None:
    for body, words in (
        (lambda: shop.pay.options(on_failure=shop.ship)(1, note="x"), "'ship' is called with arguments"),
        (lambda: shop.pay.options(on_failure=shop.refund, optional=True)(1), "belongs to that task"),
        (lambda: shop.safe().map([1]), "Let a step before it take the elements"),
        (lambda: shop.pay.options(on_failure=3)(1), "or a task that takes over"),  # type: ignore[arg-type]
    ):
        with pytest.raises(DefinitionError, match=words):
            _ = shop.pipeline(body).definition


def test_it_may_look_at_its_run(shop: Shop) -> None:
    @shop.app.task(name="tell")
    def tell() -> list[str]:
        return [str(step.error) for step in current().run.steps() if step.status == "failed"]

    run = shop.run(lambda: shop.pay.options(on_failure=tell)(1))
    assert run.result(0) == ["ValueError: pay is broken"]
