"""run_context: Values of a run's context are compared as values, and nothing gets in that cannot be read again."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Penstock, Retry, current
from penstock.errors import OverwriteError, PayloadTooLarge, PenstockError
from penstock.pipelines.run import Run
from penstock.testing import drain, travel


@pytest.fixture
def run(app: Penstock) -> Run:
    @app.task(name="one")
    def one() -> int:
        return 1

    @app.pipeline(name="ones")
    def ones() -> Any:
        return one()

    return ones.trigger()


def test_equal_is_what_python_says(run: Run) -> None:
    context = run.context
    context["place"] = {"shelf": 1, "row": [2]}
    context["place"] = {"row": [2], "shelf": 1}
    assert context.compare_and_set("place", {"row": [2], "shelf": 1}, 7) is True
    assert context.compare_and_set("place", 7.0, 8) is True
    assert context.compare_and_set("place", 7, 9) is False
    context["nothing"] = None
    assert context.compare_and_set("nothing", None, 1) is True


def test_its_keys_can_be_gone_through(run: Run) -> None:
    run.context["a"], run.context["b"] = 1, 2
    assert sorted(run.context) == ["a", "b"]


def test_a_sum_that_is_no_number_is_refused(run: Run) -> None:
    run.context.increment("sum", 1e308)
    with pytest.raises(PenstockError, match="too large"):
        run.context.increment("sum", 1e308)
    assert run.context.all() == {"sum": 1e308}


def test_a_key_stays_that_of_who_has_set_it_first(app: Penstock) -> None:
    """The same value again, by another writer, is no second writing: the step's retry may still set its key."""

    @app.task(name="count", retries=Retry(max=1, delay=1, jitter=0))
    def count() -> None:
        job = current()
        job.context["cursor"] = job.attempt
        if job.attempt == 1:
            raise ValueError

    @app.pipeline(name="counting")
    def counting() -> Any:
        return count()

    run = counting.trigger()
    drain(app)
    run.context["cursor"] = 1
    with travel(app, 5):
        drain(app)
    assert (run.status, run.context["cursor"]) == ("succeeded", 2)
    with pytest.raises(OverwriteError):
        run.context["cursor"] = 3


def test_a_value_that_is_too_large_is_refused(run: Run) -> None:
    run.context["kept"] = "small"
    for write in (run.context.set, lambda key, value: run.context.compare_and_set(key, "small", value)):
        with pytest.raises(PayloadTooLarge, match="the context value 'kept' takes"):
            write("kept", "x" * 1_100_000)
    assert run.context.all() == {"kept": "small"}
