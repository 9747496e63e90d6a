"""pipelines/plan/tokens: `first(a, b, c, count=2)`: goes on when two have succeeded, with their values in the order
of the definition.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from penstock import Penstock, first, wait_for
from penstock.errors import DefinitionError
from penstock.testing import drain


@pytest.fixture
def voting(app: Penstock) -> Any:
    @app.task(name="decide")
    def decide(votes: list[str] | None) -> str:
        return "+".join(votes or ["nothing"])

    @app.task(name="vote", retries=0)
    def vote(name: str, fails: list[str]) -> str:
        if name in fails:
            raise ValueError(name)
        return name

    @app.pipeline(name="voting")
    def voting() -> Any:
        return decide(first(wait_for("a"), wait_for("b"), wait_for("c"), count=2))

    @app.pipeline(name="failing", on_failure="continue")
    def failing(fails: list[str]) -> Any:
        return decide(first(vote("a", fails), vote("b", fails), vote("c", fails), count=2))

    @app.pipeline(name="ignoring", on_failure="ignore")
    def ignoring(fails: list[str]) -> Any:
        return decide(first(vote("a", fails), vote("b", fails), vote("c", fails), count=2))

    return app.pipelines


def step(run: Any, key: str) -> Any:
    return next((step for step in run.steps() if step.key == key), None)


def test_the_first_two_count_whatever_their_order(app: Penstock, voting: Any) -> None:
    for order in permutations("abc"):
        run = voting["voting"].trigger()
        drain(app)
        run.signal(order[0], order[0])
        drain(app)
        assert step(run, "decide") is None, "one is not enough"
        run.signal(order[1], order[1])
        drain(app)
        assert step(run, "decide").output == "+".join(sorted(order[:2]))
        assert step(run, order[2]).reason == "first_decided", "the third is not waited for"
        assert run.result(1) == "+".join(sorted(order[:2]))


def test_all_at_once_are_two_of_them(app: Penstock, voting: Any) -> None:
    run = voting["voting"].trigger()
    for name in "abc":
        run.signal(name, name)
    drain(app)
    assert run.result(1) in ("a+b", "a+c", "b+c")


@pytest.mark.parametrize(
    ("fails", "status", "decided"),
    [([], "succeeded", "succeeded"), (["b"], "failed", "succeeded"), (["a", "b"], "failed", "skipped")],
)
def test_failures_count_against_it(
    app: Penstock, voting: Any, fails: list[str], status: str, decided: str
) -> None:
    run = voting["failing"].trigger(fails)
    drain(app)
    assert (run.status, step(run, "decide").status) == (status, decided)
    if fails == ["b"]:
        assert step(run, "decide").output == "a+c"


def test_where_failures_are_ignored_and_too_few_are_left_it_has_none(app: Penstock, voting: Any) -> None:
    run = voting["ignoring"].trigger(["a", "b"])
    drain(app)
    assert (run.status, step(run, "decide").output) == ("failed", "nothing")


@pytest.mark.parametrize("count", [0, 1, 4, True, "2"])
def test_a_count_that_makes_no_sense_is_refused(app: Penstock, voting: Any, count: Any) -> None:
    @app.pipeline(name="wrong")
    def wrong() -> Any:
        return first(wait_for("a"), wait_for("b"), wait_for("c"), count=count)

    with pytest.raises(DefinitionError, match="of 3 steps, it can wait for 2 to 3"):
        wrong.trigger()
