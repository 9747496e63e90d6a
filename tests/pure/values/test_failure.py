"""values/failure: Captured errors: texts that every database stores, from exceptions however hostile."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import astuple
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.values.failure import LONGEST_MESSAGE, LONGEST_TRACEBACK, Failure, clean
from penstock.values.outcome import interpret, raised
from tests.fuzz.drawing import cases
from tests.fuzz.hostile import KNOWN, Case, act


class Hostile(Exception):
    def __init__(self, *args: object, how: type[BaseException] = RuntimeError) -> None:
        super().__init__(*args)
        self.how = how

    def __str__(self) -> str:
        raise self.how("no")

    __repr__ = __str__


def captured(error: BaseException) -> Failure:
    try:
        raise error
    except BaseException as caught:
        return Failure.of(caught)


def test_an_exception_becomes_type_message_and_traceback() -> None:
    failure = captured(ValueError("boom"))
    assert (failure.type, failure.message, str(failure)) == ("ValueError", "boom", "ValueError: boom")
    assert "raise error" in failure.traceback
    assert "builtins.ValueError" in failure.lineage


def test_the_type_of_an_exception_that_is_not_builtin_is_qualified() -> None:
    assert captured(Hostile()).type == f"{__name__}.Hostile"


@pytest.mark.parametrize("how", [RuntimeError, SystemExit, KeyboardInterrupt])
def test_an_exception_that_cannot_be_shown_is_captured_all_the_same(how: type[BaseException]) -> None:
    failure = captured(Hostile(how=how))
    assert how.__name__ in failure.message
    assert failure.traceback


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_exceptions_that_end_programs_are_captured_too(error: BaseException) -> None:
    assert captured(error).type == type(error).__name__


def test_causes_and_groups_are_in_the_traceback() -> None:
    error = ExceptionGroup("several", [ValueError("first"), KeyError("second")])
    error.__cause__ = OSError("the disk")
    text = captured(error).traceback
    assert all(part in text for part in ("the disk", "first", "second"))


def test_endless_recursion_gives_a_short_traceback() -> None:
    def fall(depth: int) -> int:
        return fall(depth + 1) + 1

    with pytest.raises(RecursionError) as caught:
        fall(0)
    assert len(Failure.of(caught.value).traceback) <= LONGEST_TRACEBACK + 100


def test_long_messages_keep_both_ends_and_say_what_is_missing() -> None:
    failure = captured(ValueError("a" * 50_000 + "the end"))
    assert failure.message.startswith("aaa")
    assert failure.message.endswith("the end")
    assert "42,007 characters left out" in failure.message
    assert len(failure.message) < LONGEST_MESSAGE + 100


def test_a_failure_crosses_processes() -> None:
    failure = captured(ValueError("boom"))
    assert pickle.loads(pickle.dumps(failure)) == failure


@given(st.text(st.characters(exclude_categories=())), st.integers(1, 50))
def test_clean_text_is_text_without_nul(text: str, longest: int) -> None:
    cleaned = clean(text, longest)
    assert "\0" not in cleaned
    cleaned.encode("utf-8")
    if len(text) <= longest and "\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text):
        assert cleaned == text


def test_nul_and_lone_surrogates_are_replaced_visibly() -> None:
    assert clean("a\0b\ud800c", 100) == "a\u2400b\ufffdc"


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@example(case=KNOWN[0])
@example(case=KNOWN[2])
@example(case=KNOWN[3])
@example(case=KNOWN[6])
@settings(max_examples=60)
@given(case=cases())
def test_whatever_a_handler_raises_or_returns_becomes_plain_texts(case: Case) -> None:
    """Or what the worker makes of it, or a pipe or a database that it goes through, would raise instead."""
    try:
        value = act(json.dumps(case))
    except BaseException as error:
        event = _total(raised, error)
        texts = [*astuple(event.failure)[:3], *event.failure.lineage]
        assert {type(text) for text in texts} == {str}
    else:
        event = _total(interpret, value, repr)
    assert type(pickle.loads(pickle.dumps(event))) is type(event)


def _total(work: Callable[..., Any], *args: Any) -> Any:
    """A KeyboardInterrupt that gets through here would end the tests."""
    try:
        return work(*args)
    except BaseException as error:
        pytest.fail(f"raised {type(error).__mro__[-3:]}")
