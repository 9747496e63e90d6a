"""pipelines/define/validation: Waits that remind: both spellings say the same, and what could not be called is
refused with the definition.
"""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Penstock, wait_for
from penstock.errors import ConfigurationError, DefinitionError
from penstock.pipelines.model.definition import Definition, Wait

SECRET = "a secret of sixteen and more"


@pytest.fixture
def app() -> Penstock:
    app = Penstock("sqlite://")

    @app.task(name="start")
    def start(value: int = 0) -> int:
        return value

    @app.task(name="nudge", queue="mail", priority=3)
    def nudge(run_id: str, count: int) -> None: ...

    @app.task(name="signed")
    def signed(token: str) -> None: ...

    return app


def definition(app: Penstock, **options: Any) -> Definition:
    @app.pipeline(name=f"one{len(app.pipelines)}")
    def one() -> Any:
        return wait_for("approve", **options)

    return one.definition


def test_both_spellings_say_the_same(app: Penstock) -> None:
    start, nudge = app.tasks["start"], app.tasks["nudge"]

    @app.pipeline(name="same")
    def same(value: int = 0) -> Any:
        return wait_for(
            "approve", timeout=60, default="no", remind=nudge, remind_every=10, after=[start(value)]
        )

    graph = same.definition
    del app.pipelines["same"]
    options: dict[str, Any] = {"timeout": 60, "default": "no", "remind": nudge, "remind_every": 10}
    fluent = app.flow("same").start(start).wait_for("approve", **options).definition
    assert fluent.text == graph.text
    assert Definition.from_text(graph.text) == graph
    assert '"every":10' in graph.text
    assert '"queue":"mail"' in graph.text


def test_a_wait_without_reminders_is_stored_as_before(app: Penstock) -> None:
    assert Wait(60.0, '"no"').to_json() == [60.0, '"no"']
    assert '"wait":[60.0,"\\"no\\""]' in definition(app, timeout=60, default="no").text
    assert not definition(app, remind=app.tasks["nudge"], remind_every=1).signs
    assert definition(app, remind=app.tasks["signed"], remind_every=1).signs


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"remind": "nudge"}, "also needs remind_every="),
        ({"remind_every": 5}, "also needs remind="),
        ({"remind": "nudge", "remind_every": 0}, "must be more than 0"),
        ({"remind": "nudge", "remind_every": -1}, "remind_every=-1: give seconds"),
        ({"remind": "nudge", "remind_every": "often"}, "remind_every='often': give seconds"),
        ({"remind": print, "remind_every": 5}, "takes a task, not <built-in function print>"),
        ({"remind": "pipeline", "remind_every": 5}, "takes a task, not <pipeline"),
        ({"remind": "greedy", "remind_every": 5}, "needs 'address', and is told only run_id"),
        ({"remind": "odd", "remind_every": 5}, "does not accept what it is told: argument 'count'"),
    ],
)
def test_what_could_not_be_called_is_refused(app: Penstock, options: dict[str, Any], words: str) -> None:
    @app.task(name="greedy")
    def greedy(run_id: str, address: str) -> None: ...

    @app.task(name="odd")
    def odd(count: list[int]) -> None: ...

    @app.pipeline(name="pipeline")
    def pipeline() -> Any:
        return wait_for("approve")

    known = {**app.tasks, **app.pipelines}
    options = {
        name: known.get(value, value) if value is not print else value for name, value in options.items()
    }
    with pytest.raises(DefinitionError, match=r"wait_for\('approve'\)") as refused:
        definition(app, **options)
    assert words in str(refused.value)


@pytest.mark.parametrize("form", ["none", "some", "dict", "rest", "aliases", "defaults"])
def test_a_reminder_takes_what_it_wants(app: Penstock, form: str) -> None:
    def none() -> None: ...
    def some(count: int, path: tuple[int, ...]) -> None: ...
    def dict_(told: dict[str, Any]) -> None: ...
    def rest(run_id: str, **told: Any) -> None: ...
    def aliases(run: str, name: str) -> None: ...
    def defaults(signal: str, colour: str = "red") -> None: ...

    forms: dict[str, Any] = {
        "none": none,
        "some": some,
        "dict": dict_,
        "rest": rest,
        "aliases": aliases,
        "defaults": defaults,
    }
    assert definition(app, remind=app.task(name=form)(forms[form]), remind_every=5).nodes


def test_without_a_secret_a_reminder_with_a_token_is_refused_before_any_row(app: Penstock) -> None:
    @app.pipeline(name="unsigned")
    def unsigned() -> Any:
        return wait_for("approve", remind=app.tasks["signed"], remind_every=5)

    with pytest.raises(ConfigurationError, match=r"reminder of .*'unsigned' takes a token.* PENSTOCK_SECRET"):
        unsigned.trigger()
    assert app.runs() == []


@pytest.mark.parametrize("wrong", ["short", ["a long enough secret", "short"], 12345678901234567890, "", []])
def test_a_secret_that_is_too_short_is_refused_and_not_shown(wrong: Any) -> None:
    if wrong == "":
        assert Penstock("sqlite://", secret=wrong).settings.secret is None
        return
    with pytest.raises(ConfigurationError, match="secret: give texts of at least 16") as refused:
        Penstock("sqlite://", secret=wrong)
    assert "short" not in str(refused.value)
    assert "12345" not in str(refused.value)


def test_a_secret_is_read_from_the_environment_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_SECRET", f"{SECRET}, {SECRET[::-1]}")
    app = Penstock("sqlite://")
    assert app.settings.secret == (SECRET, SECRET[::-1])
    for shown in (repr(app), repr(app.settings), str(app.settings), f"{app.engine.engine_state!r}"):
        assert SECRET not in shown
        assert SECRET[::-1] not in shown
