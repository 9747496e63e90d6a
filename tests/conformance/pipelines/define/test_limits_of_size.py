"""pipelines/advance/expand: how large values may be: what is expanded counts as its elements, everything else as
one.
"""

from collections.abc import Callable

import pytest

from penstock import Penstock
from penstock.pipelines.run import Run
from penstock.testing import drain

Make = Callable[..., Run]
NUMBER = 10**11


@pytest.fixture
def spread(make_app: Callable[..., Penstock]) -> Make:
    """A run that expands a list of so many numbers of twelve digits, each for thirteen bytes."""
    app = make_app(payload_limit="1 KiB", expand_limit="4 KiB")

    @app.task(retries=0)
    def numbers(count: int) -> list[int]:
        return [NUMBER] * count

    @app.task
    def half(number: int) -> int:
        return number // 2

    @app.task
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    @app.task
    def as_a_whole(numbers: list[int]) -> int:
        return len(numbers)

    expanded = app.flow("expanded").start(numbers).expand(half).collapse(total)
    passed_on = app.flow("passed_on").start(numbers).chain(as_a_whole)

    def make(count: int, *, expand: bool = True) -> Run:
        run = (expanded if expand else passed_on).trigger(count)
        drain(app)
        return run

    return make


def test_what_is_expanded_may_be_larger_than_any_argument(spread: Make) -> None:
    assert spread(290).result(0) == 290 * (NUMBER // 2)


def test_but_not_without_end(spread: Make) -> None:
    run = spread(340)
    assert (run.status, run.reasons) == ("halted", ["payload_too_large"])
    (step,) = [step for step in run.steps() if step.key == "numbers"]
    assert "expand_limit" in str(step.error)


def test_what_is_passed_on_as_a_whole_has_the_usual_limit(spread: Make) -> None:
    assert spread(70, expand=False).result(0) == 70
    assert spread(290, expand=False).reasons == ["payload_too_large"]
