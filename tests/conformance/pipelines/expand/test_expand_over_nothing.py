"""pipelines/advance/expand: the failure of the step that gives an expand its list, where it is ignored: an expand
over nothing.
"""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Penstock, first
from penstock.testing import drain


def scene(app: Penstock) -> tuple[Any, Any, Any]:
    @app.task(name="source", retries=0)
    def source() -> list[int]:
        raise ValueError("no list today")

    each = app.task(name="each")(lambda x: x)
    total = app.task(name="total")(sum)
    return source, each, total


@pytest.mark.parametrize(
    ("options", "status"), [({"optional": True}, "succeeded"), ({"on_failure": "ignore"}, "failed")]
)
@pytest.mark.parametrize("through_first", [False, True])
def test_an_ignored_failure_is_an_expand_over_nothing(
    app: Penstock, options: dict[str, Any], status: str, through_first: bool
) -> None:
    source, each, total = scene(app)

    @app.pipeline(name="p")
    def p() -> Any:
        over = source.options(**options)()
        return total(
            each.map(
                first(over, source.options(key="other", **options)()) if through_first else over
            ).collect()
        )

    run = p.trigger()
    drain(app)
    assert str(run.status) == status
    steps = {step.key: str(step.status) for step in run.steps()}
    assert steps.items() >= {"source": "failed", "total": "succeeded"}.items()
    assert "each" not in steps
    if status == "succeeded":
        assert run.result(1) == 0


def test_a_step_that_returns_nothing_has_given_no_list(app: Penstock) -> None:
    _, each, total = scene(app)
    nothing = app.task(name="nothing")(lambda: None)

    @app.pipeline(name="p")
    def p() -> Any:
        return total(each.map(nothing.options(optional=True)()).collect())

    run = p.trigger()
    drain(app)
    assert (str(run.status), run.reasons) == ("halted", ["transition_invalid"])
