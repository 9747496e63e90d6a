"""pipelines/define/step_options: Options where they would do nothing are refused, with the place where they belong;
nothing is written.

Those of definitions, which need no database, are in `tests/pure/pipelines/test_misplaced_options.py`.
"""

import asyncio
from typing import Any

import pytest

from penstock import Penstock
from penstock.errors import ConfigurationError
from penstock.testing import drain, travel
from tests.conformance.pipelines.define.test_wrong_values import rows
from tests.pure.pipelines.test_misplaced_options import OF_STEPS, numbered, refusal


@pytest.mark.parametrize("option", OF_STEPS)
def test_an_enqueue_takes_no_option_of_a_step(app: Penstock, option: str) -> None:
    number = numbered(app)
    before = rows(app)
    step = number.options(**{option: OF_STEPS[option]})
    for call in (
        lambda: step.enqueue(1),
        lambda: step.enqueue_many([(1,)]),
        lambda: step.enqueue_many([]),
        lambda: asyncio.run(step.enqueue_async(1)),
        lambda: asyncio.run(step.enqueue_many_async([(1,)])),
    ):
        said = refusal(ConfigurationError, call)
        assert f"{option}= belongs to a step" in said
        assert f"task.options({option}=...)(...)" in said
    assert rows(app) == before
    assert step.options(**{option: None}).enqueue(1).status == "available"


def test_a_decorators_delay_holds_for_steps(app: Penstock) -> None:
    late = numbered(app, delay=60)

    @app.pipeline(name="waits")
    def waits(value: int) -> Any:
        return late(late.options(delay=0)(value))

    run = waits.trigger(7)
    drain(app)
    assert {step.key: step.status for step in run.steps()} == {"number": "succeeded", "number_2": "scheduled"}
    travel(app, 61)
    drain(app)
    assert run.result(timeout=0) == 7
