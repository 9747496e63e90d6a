"""pipelines/define/step_options: Options where they would do nothing are refused where they are given, with the
place where they belong.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock import Penstock, wait_for
from penstock.errors import ConfigurationError, DefinitionError, PenstockError

OF_STEPS: dict[str, Any] = {"after": ["a"], "on_failure": "ignore", "optional": True, "max_fanout": 3}
OF_ENQUEUES: dict[str, Any] = {"key": "once", "at": datetime(2030, 1, 1, tzinfo=UTC), "connection": object()}


@pytest.fixture
def app() -> Penstock:
    """Nothing here is ever written."""
    return Penstock("sqlite://")


def declared(app: Penstock, describe: Callable[[], object], **given: Any) -> Any:
    return app.pipeline(name="described", **given)(describe).definition


def numbered(app: Penstock, name: str = "number", **options: Any) -> Any:
    return app.task(name=name, **options)(lambda value=0: value)


def refusal(kind: type[PenstockError], call: Callable[[], object]) -> str:
    with pytest.raises(kind) as refused:
        call()
    return str(refused.value)


@pytest.mark.parametrize("option", OF_STEPS)
def test_a_decorator_takes_no_option_of_a_step(app: Penstock, option: str) -> None:
    said = refusal(ConfigurationError, lambda: numbered(app, **{option: OF_STEPS[option]}))
    assert f"{option}= belongs to a step" in said
    assert not app.tasks


@pytest.mark.parametrize("option", OF_ENQUEUES)
def test_a_step_says_what_it_cannot_follow_of_its_decorator(app: Penstock, option: str) -> None:
    number = numbered(app, **{option: OF_ENQUEUES[option]})
    said = refusal(DefinitionError, lambda: declared(app, lambda: number(1)))
    assert f"@app.task({option}=...)" in said
    assert f".options({option}=...).enqueue(...)" in said


@pytest.mark.parametrize("option", ["retries", "max_crashes", "executor"])
def test_a_child_run_takes_no_option_of_a_handler(app: Penstock, option: str) -> None:
    number = numbered(app)
    given: Any = "thread" if option == "executor" else 3
    child = app.pipeline(name="child")(lambda value: [number(value)]).options(**{option: given})
    for describe in (
        lambda: declared(app, lambda: child(1)),
        lambda: app.flow("flow").start(number).expand(child).definition,
    ):
        assert f"{option!r} does not belong to a child run" in refusal(DefinitionError, describe)


@pytest.mark.parametrize("option", ["key", *OF_STEPS])
def test_a_callback_takes_only_what_says_how_it_is_queued(app: Penstock, option: str) -> None:
    number = numbered(app)
    told = number.options(**{option: {"key": "once", **OF_STEPS}[option]})
    for describe in (
        lambda: declared(app, lambda: number(1), on_halt=told),
        lambda: declared(app, lambda: wait_for("go", remind=told, remind_every=60)),
        lambda: app.flow("flow").start(number).on_success(told),
    ):
        said = refusal(DefinitionError, describe)
        assert f"option {option!r} does not belong" in said
        assert "queue, priority" in said
