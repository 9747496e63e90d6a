"""values/typed_json/converter: Values under annotations: what comes back as it was, and what is refused."""

from __future__ import annotations

import typing
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, Union
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from pydantic import (
    VERSION,
    AfterValidator,
    BeforeValidator,
    Field,
    HttpUrl,
    SecretStr,
)

from penstock.errors import ArgumentError, SerializationError
from tests.pure.values.examples import (
    KEY,
    MOMENT,
    Account,
    Address,
    Colour,
    GiftLine,
    Half,
    Level,
    Line,
    Loose,
    Mode,
    Order,
    Place,
    Savings,
    Span,
    signature_for,
    there_and_back,
)

needs_strict_deques = pytest.mark.skipif(
    tuple(map(int, VERSION.split(".")[:2])) < (2, 14),
    reason="pydantic before 2.14 refuses a deque for a deque",
)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, 5),
        (str, "a\0é"),
        (float, 1.5),
        (bool, True),
        (None, None),
        (bytes, b"\x00\xff"),
        (datetime, MOMENT),
        (datetime, datetime(2026, 1, 1)),
        (date, date(2026, 1, 1)),
        (timedelta, timedelta(days=-1, microseconds=1)),
        (UUID, KEY),
        (Decimal, Decimal("1.10")),
        (Path, Path("/tmp/x")),
        (Colour, Colour.RED),
        (Mode, Mode.FAST),
        (Level, Level.LOW),
        (Line, Line("a", Decimal("1.5"), MOMENT)),
        (Order, Order(KEY, [Line("a", Decimal(1))], {Colour.RED}, (1, "x"))),
        (Account, Account(owner="ann", balance=Decimal("2.50"), secretKey=b"\xff")),
        (Account, Account(owner="ann", balance=Decimal(0), parent=Account(owner="bob", balance=Decimal(1)))),
        (Address, {"street": "x", "since": date(2026, 1, 1)}),
        (Address, {"street": "x"}),
        (Place, {"work": [{"street": "y"}]}),
        (list[Address], [{"street": "x"}]),
        (dict[str, Address | None], {"a": {"street": "x"}, "b": None}),
        (Span, Span(MOMENT, timedelta(hours=1))),
        (Optional[Line], None),  # noqa: UP045 - users write this too
        (Union[Line, int], Line("a", Decimal(1))),  # noqa: UP007 - users write this too
        (Line | int, 5),
        (list[GiftLine | Line], [Line("a", Decimal(1)), GiftLine("b", Decimal(1), greeting="hi")]),
        (int | str, "5"),
        (int | float, 5),
        (datetime | str, MOMENT),
        (datetime | str, "2026-01-01"),
        (UUID | str, str(KEY)),
        (bytes | str, b"x"),
        (Literal["a", 1], 1),
        (list[datetime], [MOMENT]),
        (tuple[int, str], (1, "a")),
        (tuple[Line, ...], (Line("a", Decimal(1)),)),
        (set[UUID], {KEY}),
        (frozenset[int], frozenset({1, 2})),
        pytest.param(deque[int], deque([1, 2]), marks=needs_strict_deques),
        (Counter[str], Counter("aab")),
        (dict[int, str], {1: "a", 2: "b"}),
        (dict[UUID, Line], {KEY: Line("a", Decimal(1))}),
        (dict[tuple[int, int], str], {(1, 2): "a"}),
        (dict[Colour, date], {Colour.RED: date(2026, 1, 1)}),
        (Colour, Colour.MIXED),
        (dict[Colour, list[Colour]], {Colour.MIXED: [Colour.MIXED]}),
        (Loose, Loose.model_construct(at=MOMENT, key=KEY)),
        (str | Path, Path("a")),
        (str | Path, "a"),
        (dict[int | str, int], {1: 1, "1": 2}),
        (dict[str, datetime], {"$datetime": MOMENT}),
        (dict[str, dict[str, int]], {"$uuid": {"$date": 1}}),
        (Mapping[str, Line], {"a": Line("a", Decimal(1))}),
        (Sequence[int], [1, 2]),
        (dict[str, Any], {"a": [1, MOMENT, {"$uuid": KEY}]}),
        (list, [1, MOMENT]),
        (dict, {"a": KEY}),
        (dict | None, {"a": KEY}),
        (list[Any] | None, None),
        (HttpUrl, HttpUrl("http://example.org/x")),
        (Annotated[int, Field(gt=3)], 5),
        (Annotated[str, Field(max_length=3)], "abc"),
        (typing.List[int], [1]),  # noqa: UP006
    ],
    ids=repr,
)
def test_a_value_comes_back_as_it_was(annotation: Any, value: object) -> None:
    found = there_and_back(annotation, value)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("annotation", "value", "says"),
    [
        (int, "5", "expected int, got str '5'"),
        (int, True, "expected int, got True"),
        (int, None, "expected int, got None"),
        (bool, 1, "expected bool"),
        (str, 5, "expected str, got int 5"),
        (float, float("nan"), "nan is not a number"),
        (date, MOMENT, "expected date, got datetime"),
        (datetime, "2026-01-01", "expected datetime"),
        (UUID, str(KEY), "expected UUID"),
        (Decimal, 1.5, "expected Decimal"),
        (Path, "/tmp", "expected Path"),
        (Line, {"sku": "a", "amount": 1}, "expected Line, got dict"),
        (Line, Line(5, Decimal(1)), r"expected Line, but .*Expected `str`"),  # type: ignore[arg-type]
        (Account, {"owner": "x"}, "expected Account, got dict"),
        (Address, {}, r"street"),
        (Address, {"street": "x", "since": 5}, r"since.*date"),
        (list[int], (1, 2), r"expected list\[int\], got tuple"),
        (list[int], [1, "x"], r"got str 'x' at \[1\]"),
        (tuple[int, str], (1,), r"expected tuple\[int, str\]"),
        (
            Line,
            GiftLine("a", Decimal(1), greeting="hi"),
            "a GiftLine would come back as Line: annotate with GiftLine",
        ),
        (
            list[Line],
            [Line("a", Decimal(1)), GiftLine("b", Decimal(1), greeting="hi")],
            "a GiftLine would come back",
        ),
        (
            dict[str, Order],
            {"a": Order(KEY, [GiftLine("b", Decimal(1), greeting="hi")])},
            "a GiftLine would come back",
        ),
        (Savings | Account, Account(owner="a", balance=Decimal(1)), "an? Account would come back as Savings"),
        (Account, Savings(owner="a", balance=Decimal(1)), "a Savings would come back as Account"),
        (Loose, Loose.model_construct(line=Line("a", Decimal(1))), "a Line would come back as dict"),
        (
            Half,
            Half(shown=1, hidden=2),
            r"the field Half\.hidden has exclude=.*, and would come back as its default",
        ),
        (dict[str, list[Half]], {"a": [Half(shown=1), Half(shown=1, hidden=2)]}, r"the field Half\.hidden"),
        (Colour, "red", "expected Colour"),
        (str | Colour, Colour.RED, "a Colour would come back as str"),
        (list[int] | set[int], {1, 2}, "a set would come back as list"),
        (Literal[Colour.RED], Colour.RED, "could be written, but not read again"),
        (Literal["a"], "b", "expected Literal"),
        (Annotated[int, Field(gt=3)], 2, "expected int, got int 2 .*greater than 3"),
        (dict[str, Any], {"a": Line("a", Decimal(1))}, r"type Line .*\(at \['a'\]\)"),
        (dict, {1: 2}, "keys must be str"),
        (dict | None, {"a": Line("a", Decimal(1))}, "type Line"),
        (list[Any] | dict[str, Any], [{1}], "type set"),
        (list[Any] | None, 5, r"expected list\[Any\] \| None"),
        (SecretStr, SecretStr("hush"), "secrets are not stored"),
        (list[int], "x" * 500, r"got str '.{50,60}\.\.\."),
    ],
    ids=repr,
)
def test_a_value_that_does_not_fit_is_refused(annotation: Any, value: object, says: str) -> None:
    signature = signature_for(annotation)
    with pytest.raises(ArgumentError, match=says):
        signature.encode_arguments((value,), {})
    with pytest.raises(SerializationError, match=says):
        signature.encode_result(value)


def test_a_field_that_is_left_out_may_have_its_default() -> None:
    assert there_and_back(Half, Half(shown=1)) == Half(shown=1)


def test_whole_numbers_pass_for_floats_and_tuples_for_sequences() -> None:
    found = there_and_back(float, 1)
    assert (found, type(found)) == (1.0, float)
    assert there_and_back(Sequence[int], (1, 2)) == [1, 2]


def test_zones_become_offsets() -> None:
    moment = datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin"))
    found = there_and_back(datetime, moment)
    assert isinstance(found, datetime)
    assert found == moment
    assert found.utcoffset() == timedelta(hours=2)


@pytest.mark.parametrize("annotation", [Iterable[int], Iterator[int], typing.Generator[int, None, None]])
def test_streams_are_stored_as_lists(annotation: Any) -> None:
    signature = signature_for(annotation)
    assert signature.encode_result(number for number in (1, 2)) == "[1,2]"
    assert signature.encode_result([1, 2]) == "[1,2]"
    assert signature.decode_result("[1,2]") == [1, 2]
    with pytest.raises(SerializationError, match="got str 'x'"):
        signature.encode_result(iter([1, "x"]))
    with pytest.raises(SerializationError, match="got str 'abc'"):
        signature.encode_result("abc")


def test_validators_that_change_a_value_do_so_once() -> None:
    assert there_and_back(Annotated[str, AfterValidator(lambda text: text + "!")], "a") == "a!"


def test_a_validator_may_turn_other_values_into_the_annotated_type() -> None:
    def parse(value: object) -> object:
        return date.fromisoformat(value) if isinstance(value, str) else value

    assert there_and_back(Annotated[date, BeforeValidator(parse)], "2026-01-01") == date(2026, 1, 1)


def test_a_validator_that_cannot_take_its_own_product_is_found_out_before_it_is_stored() -> None:
    signature = signature_for(Annotated[date, BeforeValidator(date.fromisoformat)])
    with pytest.raises(
        ArgumentError, match=r"not read again: expected date, but checking it raised TypeError"
    ):
        signature.encode_arguments(("2026-01-01",), {})
