"""values/typed_json/tags, values/typed_json/json_text: Values without annotations: what comes back, what is refused,
and how it looks in the database.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.errors import PayloadTooLarge, SerializationError
from penstock.values.typed_json import tags
from penstock.values.typed_json.json_text import decode, dumps, encode, loads
from penstock.values.typed_json.tags import DEEPEST, raw_elements

offsets = st.integers(-86_000, 86_000).map(lambda seconds: timezone(timedelta(seconds=seconds)))
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
    st.datetimes(timezones=st.none() | offsets),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.uuids(),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.binary(),
)
keys = st.text() | st.sampled_from(["$", "$$", "$uuid", "$datetime", "$pairs", "$$bytes", "*", "**"])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=20,
)


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    BIG = 1


@dataclass
class Point:
    x: int


def same(left: object, right: object) -> bool:
    """Equal and of the same types all the way down."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, float) and isinstance(right, float):
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    if isinstance(left, (datetime, Decimal)):
        return str(left) == str(right)
    return left == right


@given(values)
@example({"$uuid": "not one"})
@example([{"$$": {"$": 1}}, {"$pairs": []}])
@example({"$uuid": 1, "other": 2})
@example('nul \0 and {"$uuid": 1}')
@example([1e16, -0.0, 5e-324, 10**400, Decimal("1.10"), Decimal("-0E+5"), timedelta.min, timedelta.max])
def test_everything_natural_comes_back_as_it_was(value: object) -> None:
    assert same(decode(encode(value)), value)


@given(values)
def test_raw_text_and_raw_values_agree(value: object) -> None:
    text = encode(value)
    raw = loads(text)
    assert dumps(raw) == text
    assert same(tags.read(raw), value)


@given(st.lists(values, max_size=5))
def test_elements_of_a_list_are_the_raw_forms_of_its_elements(value: list[object]) -> None:
    assert same([tags.read(element) for element in raw_elements(loads(encode(value)))], value)


@given(st.dictionaries(keys, values, max_size=3))
def test_elements_of_a_dict_are_its_items(value: dict[str, object]) -> None:
    found = [tags.read(element) for element in raw_elements(loads(encode(value)))]
    assert same(found, [[key, item] for key, item in value.items()])


def test_falsy_elements_count_and_nothing_has_none() -> None:
    assert raw_elements(loads("[null,false,0]")) == [None, False, 0]
    assert raw_elements([]) == raw_elements({}) == []


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (5, "int"),
        ("abc", "str"),
        (None, "NoneType"),
        (True, "bool"),
        (date(2026, 1, 1), "date"),
        (b"x", "bytes"),
    ],
)
def test_what_has_no_elements_says_which_type_it_is(value: object, kind: str) -> None:
    assert raw_elements(loads(encode(value))) == kind


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, None, True]}, '{"a":[1,null,true]}'),
        (datetime(2026, 11, 1, 12, tzinfo=UTC), '{"$datetime":"2026-11-01T12:00:00+00:00"}'),
        (date(2026, 11, 1), '{"$date":"2026-11-01"}'),
        (time(12, 30), '{"$time":"12:30:00"}'),
        (timedelta(seconds=1.5), '{"$timedelta":1500000}'),
        (UUID(int=1), '{"$uuid":"00000000-0000-0000-0000-000000000001"}'),
        (Decimal("1.10"), '{"$decimal":"1.10"}'),
        (b"\x00\xff", '{"$bytes":"AP8="}'),
        ({"$uuid": 1}, '{"$$uuid":1}'),
        ({"$uuid": 1, "b": 2}, '{"$uuid":1,"b":2}'),
        ("nul\0é", '"nul\\u0000é"'),
    ],
)
def test_the_stored_form_stays_what_it_is(value: object, text: str) -> None:
    assert encode(value) == text


def test_tuples_become_lists() -> None:
    assert decode(encode((1, (2, {"a": (3,)})))) == [1, [2, {"a": [3]}]]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (float("nan"), "nan is not a number"),
        ([1.0, float("inf")], r"inf is not a number in JSON \(at \[1\]\)"),
        (Decimal("sNaN"), "sNaN is not a number"),
        ({1: 2}, "keys must be str .* not int 1"),
        ({"a": {Colour.RED: 1}}, r"keys must be str .* \(at \['a'\]\)"),
        ({1, 2}, "type set"),
        (Point(1), "type Point"),
        (Colour.RED, "type Colour"),
        ([10**5000], "not JSON that can be read"),
        ([Size.BIG], r"type Size .* \(at \[0\]\)"),
        (OrderedDict(a=1), "type OrderedDict"),
        (object(), "type object"),
        ((number for number in [1]), "type generator"),
        ({"deep": [0, {"er": 1j}]}, r"type complex .* \(at \['deep'\]\[1\]\['er'\]\)"),
        ("\ud800", "lone surrogate"),
    ],
)
def test_what_would_not_come_back_is_refused_and_located(value: Any, says: str) -> None:
    with pytest.raises(SerializationError, match=says):
        encode(value)


def test_a_value_that_contains_itself_is_refused() -> None:
    circle: list[object] = []
    circle.append({"again": circle})
    with pytest.raises(SerializationError, match="contains itself"):
        encode(circle)


def test_as_deep_as_can_be_written_can_be_read() -> None:
    value: object = datetime(2026, 1, 1)
    for _ in range(DEEPEST - 1):
        value = [value]
    assert decode(encode(value)) == value
    with pytest.raises(SerializationError, match="deeper"):
        encode([[value]])


@given(st.integers(0, 5000), st.integers(4301, 9000))
def test_a_number_too_long_to_be_read_is_refused_wherever_it_stands(offset: int, digits: int) -> None:
    with pytest.raises(SerializationError, match="not JSON that can be read"):
        encode(["x" * offset, 10 ** (digits - 1), 1])


def test_long_strings_of_digits_are_not_taken_for_numbers() -> None:
    assert decode(encode("7" * 5000)) == "7" * 5000


def test_the_payload_limit_counts_bytes_and_names_the_payload() -> None:
    assert encode("é" * 10, limit=22) == '"' + "é" * 10 + '"'
    with pytest.raises(PayloadTooLarge, match=r"the signal takes 22 bytes .* allows 21"):
        encode("é" * 10, limit=21, name="the signal")


def test_encoding_does_not_change_the_value() -> None:
    value = {"$a": [UUID(int=1), (1, 2)]}
    encode(value)
    assert value == {"$a": [UUID(int=1), (1, 2)]}


@pytest.mark.parametrize("text", ["", "{", "NaN", "[Infinity]", "'a'", '{"a":1}x'])
def test_text_that_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(SerializationError, match="not JSON"):
        decode(text)


def test_a_mark_from_the_future_is_refused_with_advice() -> None:
    with pytest.raises(SerializationError, match=r"'\$quaternion'.*upgrade"):
        decode('[{"$quaternion":[1,2,3,4]}]')


@pytest.mark.parametrize("text", ['{"$uuid":"x"}', '{"$uuid":5}', '{"$datetime":"never"}', '{"$pairs":[1]}'])
def test_a_damaged_mark_is_refused(text: str) -> None:
    with pytest.raises(SerializationError, match="cannot be read"):
        decode(text)
