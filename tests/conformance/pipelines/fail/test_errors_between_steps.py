"""pipelines/lifecycle/claimed_steps: Errors at the seams of a run: each is a failed step that says what happened, by
its own budget; never a wedge.
"""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Penstock, Retry, switch
from penstock.pipelines.run import Run
from penstock.testing import drain


def ended(app: Penstock, pipeline: Any) -> Run:
    run: Run = pipeline.trigger()
    drain(app)
    assert run.status.terminal
    return run


def test_a_decision_that_raises_is_a_failed_step_with_its_own_error(app: Penstock) -> None:
    @app.task(name="decide", retries=0)
    def decide() -> str:
        raise LookupError("which way?")

    @app.task(name="left")
    def left(way: str) -> str:
        return way

    @app.pipeline(name="deciding", on_failure="continue")
    def deciding() -> Any:
        return left(switch(decide(), {"left": left}, otherwise=None))

    run = ended(app, deciding)
    steps = {step.key: step for step in run.steps()}
    assert steps["decide"].error == "LookupError: which way?"
    assert (run.status, run.reasons) == ("failed", ["retries_exhausted"])
    assert {step.status.value for key, step in steps.items() if key != "decide"} == {"skipped"}


class Unwritable:
    """Not JSON."""


@pytest.mark.parametrize(
    ("value", "reason", "word"),
    [
        ("text", "arguments_invalid", "number"),
        (Unwritable(), "result_not_serializable", "Unwritable"),
        ("x" * 2_000_000, "payload_too_large", "payload_limit"),
    ],
    ids=["arguments", "result", "size"],
)
def test_what_does_not_fit_spends_errors_and_no_crashes(
    app: Penstock, value: object, reason: str, word: str
) -> None:
    @app.task(name="give", retries=Retry(max=1, delay=0))
    def give() -> Any:
        return value

    @app.task(name="take", retries=Retry(max=1, delay=0))
    def take(number: int) -> int:
        return number

    @app.pipeline(name="passing")
    def passing() -> Any:
        return take(give())

    run = ended(app, passing)
    assert (run.status, run.reasons) == ("halted", [reason])
    failed = next(step for step in run.steps() if step.status == "failed")
    assert {attempt.outcome for attempt in failed.attempts()} == {"errored"}
    assert word in (failed.error or "")


def test_a_child_that_cannot_take_its_arguments_is_a_failed_step(app: Penstock) -> None:
    @app.task(name="give")
    def give() -> Any:
        return "text"

    @app.task(name="same")
    def same(number: int) -> int:
        return number

    @app.pipeline(name="child")
    def child(number: int) -> Any:
        return same(number)

    @app.pipeline(name="parent")
    def parent() -> Any:
        return child(give())

    run = ended(app, parent)
    assert (run.status, run.reasons) == ("halted", ["arguments_invalid"])
