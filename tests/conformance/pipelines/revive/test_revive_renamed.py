"""pipelines/lifecycle/child_runs: a deploy has renamed the parameters of a pipeline: what keeps its definition is
given them by the names it has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import Penstock
from penstock.errors import ReviveError
from penstock.pipelines.run import Run
from penstock.testing import drain, travel


class Deploys:
    """`inner` as different versions describe it, `outer` with a child of it, and the calls of `last`, which fails."""

    def __init__(self, make_app: Callable[..., Penstock]) -> None:
        self.make_app = make_app
        self.calls: list[tuple[str, Any, Any]] = []
        self.broken = True

    def __call__(self, describe: Callable[..., Any], call: Callable[..., Any] | None = None) -> Penstock:
        app = self.make_app()

        @app.task(name="one")
        def one(x: Any, y: Any = None) -> Any:
            self.calls.append(("one", x, y))
            return x

        @app.task(name="last", retries=0)
        def last(x: Any, y: Any = None) -> Any:
            self.calls.append(("last", x, y))
            if self.broken:
                raise ValueError("not yet")
            return [x, y]

        inner: Any = app.pipeline(name="inner")(describe(one, last))

        @app.pipeline(name="outer")
        def outer(n: int) -> Any:
            return call(inner, one(n)) if call is not None else inner(n)

        return app

    def mended(self) -> None:
        self.broken = False
        self.calls.clear()


def first_version(one: Any, last: Any) -> Any:
    def inner(x: int, y: int = 3) -> Any:
        return last(x, one(y))

    return inner


def renamed(one: Any, last: Any) -> Any:
    def inner(a: int, b: int = 4) -> Any:
        return last(a, one(b))

    return inner


def swapped(one: Any, last: Any) -> Any:
    def inner(y: int, x: int = 4) -> Any:
        return last(x, one(y))

    return inner


def shorter(one: Any, last: Any) -> Any:
    def inner(a: int, *, why: str = "") -> Any:
        return last(a, one(why))

    return inner


@pytest.fixture
def deploys(make_app: Callable[..., Penstock]) -> Deploys:
    return Deploys(make_app)


def halted(app: Penstock, pipeline: str, *args: Any) -> Run:
    run: Run = app.pipelines[pipeline].trigger(*args)
    drain(app)
    assert run.status == "halted"
    return run


@pytest.mark.parametrize("now", [renamed, swapped, shorter])
@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda inner, n: inner(n, 7), [5, 7]),
        (lambda inner, n: inner(y=n, x=8), [8, 5]),
        (lambda inner, n: inner(n), [5, 3]),
    ],
)
def test_a_child_that_keeps_its_definition_is_given_the_parameters_of_that(
    deploys: Deploys, now: Any, call: Any, expected: list[int]
) -> None:
    run = halted(deploys(first_version, call), "outer", 5)
    deploys.mended()
    later = deploys(now)
    again = later.run(run.id).revive()
    drain(later)
    assert again.result(1) == expected
    assert deploys.calls == [("last", *expected)], "what the child had finished is kept"


@pytest.mark.parametrize("args", [[8, 9], {"x": 8, "y": 9}])
@pytest.mark.parametrize("now", [renamed, swapped])
def test_new_arguments_are_for_the_definition_that_the_run_keeps(
    deploys: Deploys, now: Any, args: Any
) -> None:
    run = halted(deploys(first_version), "inner", 1, 2)
    deploys.mended()
    later = deploys(now)
    again = later.run(run.id).revive(args=args)
    drain(later)
    assert again.result(1) == [8, 2], "a finished step keeps its output"
    assert again.args == {"x": 8, "y": 9}


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({"a": 8}, r"argument 'a' of inner: there is no such parameter"),
        ([], r"argument 'x' of inner: missing"),
        ([1, 2, 3], r"inner: takes 2 arguments, but 3 were given"),
    ],
)
def test_what_it_does_not_take_is_refused_with_the_way_out(deploys: Deploys, args: Any, problem: str) -> None:
    run = halted(deploys(first_version), "inner", 1)
    deploys.mended()
    later = deploys(renamed)
    with pytest.raises(ReviveError, match=rf"parameters \(x, y\): {problem}.*definition='current'.*\(a, b\)"):
        later.run(run.id).revive(args=args)
    again = later.run(run.id).revive(args=[8, 9], definition="current")
    drain(later)
    assert again.result(1) == [8, 9]


@pytest.mark.parametrize("warm", [False, True])
def test_a_parameter_of_which_nothing_is_stored_is_an_error_of_the_step(deploys: Deploys, warm: bool) -> None:
    app = deploys(first_version)
    deploys.mended()
    if warm:
        app.pipelines["inner"].trigger(1)
        drain(app)
    run = app.pipelines["inner"].options(delay=5).trigger(1)
    lose = "UPDATE {runs} SET args = :args WHERE id = :id"
    app.database.in_transaction(lambda tx: tx.run(lose, args='{"y": 3}', id=run.id))
    deploys.calls.clear()
    with travel(app, 6):
        drain(app)
    assert (run.status, run.reasons) == ("halted", ["arguments_invalid"])
    assert deploys.calls == [("one", 3, None)]
    (failed,) = [step for step in run.steps() if step.status == "failed"]
    assert failed.key == "last"
    assert "argument 'x' of inner: nothing is stored for this parameter" in str(failed.error)
