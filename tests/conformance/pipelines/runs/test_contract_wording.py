"""pipelines/run: Sentences of the contract that can be read in more than one way: every reading works."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import penstock
from penstock import Penstock, Retry, barrier, first, stop_run, wait_for
from penstock.errors import ConfigurationError, DefinitionError, RunFailed
from penstock.testing import drain, travel


def _yields() -> Any:
    yield 1
    yield 2


def _annotated() -> Iterator[int]:
    yield 1
    yield 2


async def _later() -> Any:
    yield 1
    yield 2


async def _annotated_later() -> AsyncIterator[int]:
    yield 1
    yield 2


def _expression() -> Any:
    return (number for number in (1, 2))


def _range() -> Any:
    return range(1, 3)


@pytest.mark.parametrize("function", [_yields, _annotated, _later, _annotated_later, _expression, _range])
def test_whatever_yields_can_be_expanded(app: Penstock, function: Callable[[], Any]) -> None:
    numbers = app.task(name="numbers")(function)
    double = app.task(name="double")(_double)

    @app.pipeline(name="p")
    def p() -> Any:
        return double.map(numbers()).collect()

    run = p.trigger()
    drain(app)
    assert run.result(0) == [2, 4]


def _double(x: int) -> int:
    return 2 * x


def test_the_code_of_a_generator_runs_as_the_step(app: Penstock) -> None:
    @app.task(name="stops")
    def stops() -> Any:
        yield penstock.current().id
        stop_run("early")

    @app.task(name="breaks", retries=0)
    def breaks() -> Any:
        yield 1
        raise ValueError("in the middle")

    stopped, broken = app.flow("stopped").start(stops).trigger(), app.flow("broken").start(breaks).trigger()
    drain(app)
    assert stopped.result(0) == "early"
    (step,) = broken.steps()
    assert (step.reason, step.error) == ("retries_exhausted", "ValueError: in the middle")


def test_nothing_to_expand_is_an_invalid_transition_that_names_the_type(app: Penstock) -> None:
    @app.task(name="nothing")
    def nothing() -> None: ...

    run = app.flow("p").start(nothing).expand(app.task(name="double")(_double)).trigger()  # type: ignore[call-overload]
    drain(app)
    assert (run.status, run.reasons) == ("halted", ["transition_invalid"])
    assert "NoneType" in str(run.steps()[-1].error)


def test_a_run_without_a_result_says_which_step_failed_and_with_what(app: Penstock) -> None:
    @app.task(name="fails", retries=0)
    def fails(text: str) -> None:
        raise ValueError(text)

    @app.pipeline(name="p", on_failure="continue")
    def p() -> Any:
        fails.options(key="optional", optional=True)("not this")
        fails.options(key="soft", on_failure="continue", delay=1)("nor this")
        hard = fails.options(key="hard", on_failure="halt", delay=2)
        return hard.map(app.task(name="two")(lambda: ["the reason."])()).collect()

    @app.pipeline(name="q")
    def q() -> Any:
        return wait_for("never", timeout=1)

    run, timed = p.trigger(), q.trigger()
    for second in (0, 1.5, 3, 4):
        with travel(app, second):
            drain(app)
    with pytest.raises(
        RunFailed, match=r"step 'hard\[0\]': ValueError: the reason\. run\.steps\(\)"
    ) as caught:
        run.result(0)
    assert (caught.value.step, caught.value.error) == ("hard[0]", "ValueError: the reason.")
    with pytest.raises(RunFailed) as caught:
        timed.result(0)
    assert (caught.value.step, caught.value.reasons) == ("never", ("wait_timed_out",))


def test_a_cancelled_run_says_why_it_has_no_result(app: Penstock) -> None:
    @app.pipeline(name="p")
    def p() -> Any:
        return wait_for("never")

    run = p.trigger()
    run.cancel()
    drain(app)
    assert (run.status, run.reasons) == ("cancelled", ["cancelled"])
    with pytest.raises(RunFailed, match=r"cancelled.*run\.rerun\(\)"):
        run.result(0)


def test_a_step_reaches_its_run_and_sets_its_key_again_through_it(app: Penstock) -> None:
    tries: list[str] = []

    @app.task(name="notes", retries=Retry(max=1, delay=0))
    def notes() -> int:
        run = penstock.current().run
        run.context["tries"] = len(tries)
        app.run(run.id).context["again"] = len(tries)
        tries.append(run.id)
        if len(tries) == 1:
            raise ValueError("once more")
        return int(run.context["tries"])

    run = app.flow("p").start(notes).trigger()
    drain(app)
    assert run.result(0) == 1
    assert tries == [run.id, run.id]


def test_after_takes_one_step_and_first_takes_a_list(app: Penstock) -> None:
    order: list[str] = []

    @app.task(name="note")
    def note(what: str) -> str:
        order.append(what)
        return what

    @app.pipeline(name="p")
    def p() -> Any:
        a, b = note.options(key="a", delay=0)("a"), note.options(key="b")("b")
        c = note.options(key="c", after=barrier([a, b]))("c")
        d = note.options(key="d", after="c")("d")
        return first([c, d]), wait_for("go", after=d, timeout=0, default=1)

    run = p.trigger()
    drain(app)
    assert run.status == "succeeded"
    assert (sorted(order[:2]), order[2:]) == (["a", "b"], ["c", "d"])


def test_a_callback_is_told_in_whatever_way_it_asks(app: Penstock) -> None:
    told: dict[str, Any] = {}

    @app.task(name="whole")
    def whole(run: dict[str, Any]) -> None:
        told["whole"] = run

    @app.task(name="listed")
    def listed(*args: Any) -> None:
        told["listed"] = args

    @app.task(name="one")
    def one(run: str) -> None:
        told["one"] = run

    @app.task(name="work")
    def work() -> None: ...

    run = app.flow("p", on_success=[whole, listed, one]).start(work).trigger()
    drain(app)
    assert told["one"] == told["whole"]["id"] == told["whole"]["run_id"] == run.id
    assert told["listed"] == (run.id, "p", "succeeded", [])
    assert told["whole"]["pipeline"] == "p"


def test_wrong_words_are_refused(app: Penstock) -> None:
    with pytest.raises(ConfigurationError, match="Did you mean 'halted'"):
        app.runs(status="haltet")
    with pytest.raises(DefinitionError, match="no name for a pipeline"):
        app.flow("")
