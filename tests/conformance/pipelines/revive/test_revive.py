"""pipelines/lifecycle/revive: Revive keeps finished work, does the rest again, and keeps idempotency keys."""

from collections.abc import Callable
from typing import Any

import pytest

import penstock
from penstock import Penstock, wait_for
from penstock.errors import ReviveError
from penstock.testing import crash_at, drain


class Shop:
    """A pipeline whose middle can be made to fail."""

    def __init__(self, app: Penstock, **settings: Any) -> None:
        self.app = app
        self.broken: set[int] = set()
        self.calls: list[tuple[str, object, str]] = []

        @app.task(retries=0)
        def items(count: int) -> list[int]:
            self.note("items", count)
            return list(range(count))

        @app.task(retries=0)
        def pack(item: int) -> int:
            self.note("pack", item)
            if item in self.broken:
                raise ValueError(f"no box for {item}")
            return item * 10

        @app.task(retries=0)
        def ship(boxes: list[int]) -> int:
            self.note("ship", len(boxes))
            return sum(boxes)

        @app.pipeline(name="shop", **settings)
        def shop(count: int) -> object:
            return ship(pack.map(items(count)).collect())

        self.pipeline = shop

    def note(self, name: str, value: object) -> None:
        self.calls.append((name, value, penstock.current().idempotency_key))


def test_finished_work_is_kept_and_the_rest_done_again(app: Penstock) -> None:
    shop = Shop(app, on_failure="continue")
    shop.broken = {1}
    run = shop.pipeline.trigger(3)
    drain(app)
    assert run.status == "failed"
    key = next(key for name, value, key in shop.calls if (name, value) == ("pack", 1))
    shop.broken, shop.calls = set(), []
    again = run.revive()
    drain(app)
    assert again.result(1) == 30
    assert [(name, value) for name, value, _ in shop.calls] == [("pack", 1), ("ship", 3)]
    assert shop.calls[0][2] == key, "the same work has the same idempotency key"
    assert again.revived_from == run
    assert run.status == "failed"


def test_keys_are_the_first_incarnations_over_several_revivals(app: Penstock) -> None:
    shop = Shop(app)
    shop.broken = {0}
    run = shop.pipeline.trigger(1)
    for _ in range(3):
        drain(app)
        run = run.revive()
    shop.broken = set()
    drain(app)
    assert run.result(1) == 0
    assert len({key for name, _, key in shop.calls if name == "pack"}) == 1


def test_a_run_is_revived_once_and_only_if_it_ended_badly(app: Penstock) -> None:
    shop = Shop(app)
    good = shop.pipeline.trigger(1)
    with pytest.raises(ReviveError, match="running"):
        good.revive()
    drain(app)
    with pytest.raises(ReviveError, match="succeeded"):
        good.revive()
    shop.broken = {0}
    bad = shop.pipeline.trigger(1)
    drain(app)
    new = bad.revive()
    with pytest.raises(ReviveError, match=new.id):
        bad.revive()


def test_a_step_that_spent_its_crashes_is_run_again(app: Penstock) -> None:
    runs_left = [0]

    @app.task(max_crashes=0)
    def fragile() -> str:
        runs_left[0] += 1
        return "whole"

    @app.pipeline(name="fragile_run")
    def fragile_run() -> object:
        return fragile()

    run = fragile_run.trigger()
    with crash_at("execute.before") as crash:
        drain(app)
    assert crash.crashed
    drain(app)
    assert (run.status, run.reasons) == ("halted", ["crashes_exhausted"])
    again = run.revive()
    drain(app)
    assert again.result(1) == "whole"
    assert runs_left == [1]


def test_a_fan_out_that_was_too_wide_is_revived_where_it_may_be_wider(
    make_app: Callable[..., Penstock],
) -> None:
    narrow, wide = make_app(max_fanout=2), make_app()
    run = Shop(narrow).pipeline.trigger(3)
    drain(narrow)
    assert (run.status, run.reasons) == ("halted", ["max_fanout_exceeded"])
    shop = Shop(wide)
    again = wide.run(run.id).revive()
    drain(wide)
    assert again.result(1) == 30
    assert "items" not in {name for name, _, _ in shop.calls}


def test_retry_step_does_one_failed_step_again_and_keeps_other_failures(app: Penstock) -> None:
    broken = {"left", "right"}
    calls: list[str] = []

    def part(name: str) -> str:
        calls.append(name)
        if name in broken:
            raise ValueError(name)
        return name

    @app.task(name="left", retries=0)
    def left() -> str:
        return part("left")

    @app.task(name="right", retries=0)
    def right() -> str:
        return part("right")

    @app.pipeline(name="both", on_failure="continue")
    def both() -> object:
        return [left(), right()]

    run = both.trigger()
    drain(app)
    assert run.status == "failed"
    broken.clear()
    calls.clear()
    with pytest.raises(ReviveError, match="left, right"):
        run.retry_step("middle")
    again = run.retry_step("left")
    drain(app)
    assert calls == ["left"]
    assert {step.key: step.status.value for step in again.steps()} == {"left": "succeeded", "right": "failed"}
    assert again.status == "failed"


def test_signals_given_are_given_to_the_revived_run_and_context_on_request(app: Penstock) -> None:
    broken = [True]

    @app.task(retries=0)
    def pay(answer: str) -> str:
        if broken:
            raise ValueError("no")
        return answer

    @app.pipeline(name="approval")
    def approval() -> object:
        return pay(wait_for("approve"))

    run = approval.trigger()
    run.context["cursor"] = 7
    drain(app)
    run.signal("approve", "yes")
    drain(app)
    assert run.status == "halted"
    broken.clear()
    again = run.revive(duplicate_context=True)
    drain(app)
    assert again.result(1) == "yes"
    assert again.context["cursor"] == 7


@pytest.mark.parametrize("point", ["revive.1", "revive.commit", "revive.committed", "hydrate.commit"])
def test_a_revival_survives_the_death_of_anybody(app: Penstock, point: str) -> None:
    shop = Shop(app)
    shop.broken = {1}
    run = shop.pipeline.trigger(2)
    drain(app)
    shop.broken = set()
    with crash_at(point) as crash:
        run.revive()
        drain(app)
    assert crash.crashed
    revived = [found for found in app.runs() if found != run]
    again = revived[0] if revived else run.revive()
    drain(app)
    assert again.result(1) == 10
    assert len(app.runs()) == 2
