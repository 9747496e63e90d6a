"""values/typed_json/signature: Binding calls to signatures: what fits, what is refused, and what is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ArgumentError, DefinitionError, PayloadTooLarge, SerializationError
from penstock.values.outcome import Cancel, Snooze
from penstock.values.typed_json.json_text import encode, loads
from penstock.values.typed_json.signature import Signature


def plain(a: Any, b: Any = 2) -> object:
    return a, b


def everything(a: Any, b: Any, /, c: Any, d: Any = 4, *rest: int, e: Any, f: Any = 6, **extra: str) -> object:
    return a, b, c, d, rest, e, f, extra


def only_named(*, a: Any, b: Any = 1) -> object:
    return a, b


def nothing() -> object:
    return ()


def same_name(a: Any, /, **extra: Any) -> object:
    return a, extra


def untyped(value, other=None):  # type: ignore[no-untyped-def]
    return value


SHAPES: list[Callable[..., object]] = [plain, everything, only_named, nothing, same_name]


@dataclass
class Unfinished:
    part: Nowhere  # type: ignore[name-defined]  # noqa: F821


@given(
    st.sampled_from(SHAPES),
    st.lists(st.integers(), max_size=6),
    st.dictionaries(st.sampled_from("abcdefgh"), st.text(max_size=3), max_size=5),
)
def test_calls_fit_exactly_when_python_says_so_and_come_back_equal(
    function: Callable[..., object], args: list[int], kwargs: dict[str, str]
) -> None:
    signature = Signature.of(function)
    try:
        expected = function(*args, **kwargs)
    except TypeError:
        with pytest.raises(ArgumentError):
            signature.encode_arguments(args, kwargs)
        with pytest.raises(ArgumentError):
            signature.check_call(len(args), kwargs)
        return
    signature.check_call(len(args), kwargs)
    found_args, found_kwargs = signature.decode_arguments(signature.encode_arguments(args, kwargs))
    assert function(*found_args, **found_kwargs) == expected
    found_args, found_kwargs = signature.decode_call(args, kwargs)
    assert function(*found_args, **found_kwargs) == expected


def test_arguments_are_stored_by_name_without_defaults() -> None:
    assert Signature.of(plain).encode_arguments((1,), {}) == '{"a":1}'
    text = Signature.of(everything).encode_arguments((1, 2, 3, 4, 5, 6), {"e": 7, "x": "y"})
    assert loads(text) == {"a": 1, "b": 2, "c": 3, "d": 4, "e": 7, "*": [5, 6], "**": {"x": "y"}}


@pytest.mark.parametrize(
    ("args", "kwargs", "says"),
    [
        ((), {}, r"^shop\.plain: missing 'a'; it takes \(a, b\)$"),
        ((1, 2, 3), {}, r"^shop\.plain: takes 2 positional arguments, but 3 were given$"),
        ((1,), {"a": 2}, r"^argument 'a' of shop\.plain: given twice"),
        ((1,), {"bee": 2}, r"^argument 'bee' of shop\.plain: no such parameter; .*Did you mean 'b'\?$"),
    ],
)
def test_a_call_that_does_not_fit_is_explained(args: Any, kwargs: Any, says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        Signature.of(plain, "shop.plain").encode_arguments(args, kwargs)


def test_one_argument_is_not_written_as_many() -> None:
    with pytest.raises(ArgumentError, match="takes 1 positional argument, but 2 were given$"):
        Signature.of(lambda a: a).encode_arguments((1, 2), {})
    with pytest.raises(ArgumentError, match="takes no positional arguments, but 1 was given$"):
        Signature.of(lambda: None).encode_arguments((1,), {})


def test_a_positional_only_parameter_cannot_be_named() -> None:
    def strict(a: int, /) -> None: ...

    with pytest.raises(ArgumentError, match=r"'a' .*by position only"):
        Signature.of(strict).encode_arguments((), {"a": 1})


def test_a_value_of_the_wrong_type_names_task_parameter_expected_and_got() -> None:
    def pay(amount: int) -> None: ...

    with pytest.raises(ArgumentError) as caught:
        Signature.of(pay, "shop.pay").encode_arguments(("5",), {})
    error = caught.value
    assert (error.task, error.parameter) == ("shop.pay", "amount")
    assert str(error).startswith("argument 'amount' of shop.pay: expected int, got str '5'")


@pytest.mark.parametrize(
    ("args", "kwargs", "name"), [((1, 2, 3, 4, "x"), {"e": 1}, "rest"), ((1, 2, 3), {"e": 1, "z": 5}, "z")]
)
def test_further_arguments_are_checked_by_the_annotation_of_their_collector(
    args: Any, kwargs: Any, name: str
) -> None:
    with pytest.raises(ArgumentError, match=f"argument '{name}' of "):
        Signature.of(everything).encode_arguments(args, kwargs)


def test_without_an_annotation_the_advice_is_to_annotate() -> None:
    signature = Signature.of(untyped, "shop.untyped")
    with pytest.raises(ArgumentError, match=r"type set .*Annotate the parameter 'value'"):
        signature.encode_arguments(({1},), {})
    with pytest.raises(
        SerializationError, match=r"the result of shop\.untyped: .*type set .*Annotate the return"
    ):
        signature.encode_result({1})


def test_text_that_is_no_text_names_its_parameter() -> None:
    with pytest.raises(ArgumentError, match=r"argument 'b' of .*lone surrogate"):
        Signature.of(plain).encode_arguments((1, "\ud800"), {})


def test_payload_limits_name_the_task_and_what_is_too_large() -> None:
    signature = Signature.of(plain, "shop.plain")
    with pytest.raises(PayloadTooLarge, match=r"the argument list of shop\.plain takes 107 bytes"):
        signature.encode_arguments(("x" * 99,), {}, limit=100)
    with pytest.raises(PayloadTooLarge, match=r"the result of shop\.untyped takes 101 bytes"):
        Signature.of(untyped, "shop.untyped").encode_result("x" * 99, limit=100)
    assert signature.encode_arguments(("x" * 92,), {}, limit=100)


def test_stored_arguments_that_no_longer_fit_say_what_to_do() -> None:
    signature = Signature.of(plain)
    with pytest.raises(ArgumentError, match=r"'gone' .*Keep it until the old jobs are done"):
        signature.decode_arguments('{"a":1,"gone":2}')
    with pytest.raises(ArgumentError, match=r"'a' .*a default until the old jobs are done"):
        signature.decode_arguments("{}")
    with pytest.raises(ArgumentError, match="not an object"):
        signature.decode_arguments("[1]")
    with pytest.raises(SerializationError, match="not JSON"):
        signature.decode_arguments("{")


def test_single_values_are_found_by_name_and_by_position() -> None:
    def take(a: UUID, *rest: datetime, **extra: int) -> None: ...

    signature = Signature.of(take)
    key, moment = UUID(int=5), datetime(2026, 1, 1)
    assert signature.decode_value_for("a", loads(encode(key))) == key
    assert signature.decode_value_for(0, str(key)) == key
    assert signature.decode_value_for(3, loads(encode(moment))) == moment
    assert signature.decode_value_for("other", 3) == 3
    assert loads(signature.encode_value_for(0, key)) == {"$uuid": str(key)}
    with pytest.raises(ArgumentError, match="argument 'a' "):
        signature.encode_value_for("a", 5)
    with pytest.raises(ArgumentError, match="no such parameter"):
        Signature.of(plain).decode_value_for("c", 1)
    with pytest.raises(ArgumentError, match="but 3 were given"):
        Signature.of(plain).decode_value_for(2, 1)


def test_nothing_is_resolved_before_the_first_use() -> None:
    def later(value: Later) -> Later: ...  # type: ignore[name-defined]  # noqa: F821

    signature = Signature.of(later)
    globals()["Later"] = int
    try:
        assert signature.encode_arguments((5,), {}) == '{"value":5}'
    finally:
        del globals()["Later"]


def test_an_annotation_that_cannot_be_resolved_is_named() -> None:
    def lost(fine: int, value: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(
        DefinitionError, match=r"parameter 'value' of shop\.lost .*'Nowhere'.*outside TYPE_CHECKING"
    ):
        Signature.of(lost, "shop.lost").build()


def test_an_annotation_that_cannot_be_stored_is_named() -> None:
    def odd(value: range) -> None: ...

    def odder() -> memoryview: ...  # type: ignore[empty-body]

    def nested(value: list[Unfinished]) -> None: ...

    with pytest.raises(DefinitionError, match=r"parameter 'value' of shop\.odd: values of type range cannot"):
        Signature.of(odd, "shop.odd").build()
    with pytest.raises(DefinitionError, match=r"the return annotation of shop\.odder: .*memoryview"):
        Signature.of(odder, "shop.odder").build()
    with pytest.raises(DefinitionError, match=r"parameter 'value' of shop\.nested: .*Nowhere"):
        Signature.of(nested, "shop.nested").build()


def test_a_wrapped_function_has_the_signature_of_what_it_wraps() -> None:
    @wraps(plain)
    def wrapper(*args: Any, **kwargs: Any) -> None: ...

    signature = Signature.of(wrapper)
    assert signature.parameters == ("a", "b")
    assert signature.name.endswith("plain")


def test_requests_in_the_return_annotation_are_not_part_of_the_result() -> None:
    def poll() -> str | Snooze: ...  # type: ignore[empty-body]

    def stop() -> Cancel | None: ...

    def always() -> Snooze: ...  # type: ignore[empty-body]

    assert Signature.of(poll).decode_result('"done"') == "done"
    with pytest.raises(SerializationError):
        Signature.of(poll).decode_result('{"seconds":5}')
    assert Signature.of(stop).encode_result(None) == "null"
    assert Signature.of(always).encode_result(None) == "null"


def test_coroutine_functions_have_results_too() -> None:
    async def fetch() -> datetime: ...  # type: ignore[empty-body]

    moment = datetime(2026, 1, 1)
    signature = Signature.of(fetch)
    assert signature.decode_result(signature.encode_result(moment)) == moment


def test_a_reader_that_asks_for_an_iterator_gets_one() -> None:
    def total(amounts: Iterator[int], labels: Iterable[str]) -> None: ...

    signature = Signature.of(total)
    stored = signature.encode_arguments([iter([1, 2]), ["a"]], {})
    for _args, named in (signature.decode_arguments(stored), signature.decode_call([[1, 2], ["a"]], {})):
        assert next(named["amounts"]) == 1  # type: ignore[call-overload]
        assert list(named["amounts"]) == [2]  # type: ignore[call-overload]
        assert named["labels"] == ["a"]
