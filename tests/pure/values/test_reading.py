"""values/typed_json/converter: a value that one task stored, read by another: lenient, the same for every reader."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ArgumentError, SerializationError
from penstock.values.typed_json.json_text import decode, encode, loads
from tests.pure.values.examples import (
    KEY,
    MOMENT,
    Account,
    Colour,
    Line,
    Order,
    signature_for,
    there_and_back,
)


def test_aliases_and_field_names_are_both_read() -> None:
    signature = signature_for(Account)
    by_alias = signature.decode_result('{"owner":"a","balance":"1","secretKey":{"$bytes":"eA=="}}')
    by_name = signature.decode_result('{"owner":"a","balance":"1","secret_key":{"$bytes":"eA=="}}')
    assert by_alias == by_name == Account(owner="a", balance=Decimal(1), secretKey=b"x")


@pytest.mark.parametrize(
    ("annotation", "raw", "value"),
    [
        (datetime, '"2026-01-01T00:00:00"', datetime(2026, 1, 1)),
        (UUID, f'"{KEY}"', KEY),
        (Decimal, '"1.10"', Decimal("1.10")),
        (Path, '"/tmp"', Path("/tmp")),
        (set[int], "[1,1]", {1}),
        (Line, '{"sku":"a","amount":5}', Line("a", Decimal(5))),
        (dict[int, str], '{"1":"a"}', {1: "a"}),
    ],
    ids=repr,
)
def test_plain_json_will_do_when_read(annotation: Any, raw: str, value: object) -> None:
    assert signature_for(annotation).decode_result(raw) == value


def test_a_stored_value_that_does_not_fit_names_what_was_expected() -> None:
    with pytest.raises(
        SerializationError, match=r"the stored result of shop\.task: expected Line, got .*amount"
    ):
        signature_for(Line).decode_result('{"sku":"a","amount":"much"}')
    with pytest.raises(ArgumentError, match=r"argument 'value' of shop\.task: expected int"):
        signature_for(int).decode_arguments('{"value":"much"}')


NATURAL = [
    MOMENT,
    date(2026, 1, 1),
    timedelta(1),
    KEY,
    Decimal("1.10"),
    b"\xff",
    5,
    "x",
    None,
    [KEY],
    {"a": MOMENT},
]


@pytest.mark.parametrize("value", NATURAL, ids=repr)
def test_an_unannotated_consumer_gets_natural_values_from_an_annotated_producer(value: object) -> None:
    annotation = {list: list[UUID], dict: dict[str, datetime], type(None): None}.get(type(value), type(value))
    stored = signature_for(annotation).encode_result(value)
    assert decode(stored) == value


@pytest.mark.parametrize("value", NATURAL, ids=repr)
def test_an_annotated_consumer_takes_what_an_unannotated_producer_stored(value: object) -> None:
    annotation = {list: list[UUID], dict: dict[str, datetime], type(None): None}.get(type(value), type(value))
    assert signature_for(annotation).decode_value_for("value", loads(encode(value))) == value


def test_a_dataclass_reaches_an_unannotated_consumer_as_a_dict_of_natural_values() -> None:
    stored = signature_for(Line).encode_result(Line("a", Decimal("1.5"), MOMENT))
    assert decode(stored) == {"sku": "a", "amount": Decimal("1.5"), "at": MOMENT}


lines = st.builds(
    Line,
    st.text(),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.none() | st.datetimes(),
)
orders = st.builds(
    Order,
    st.uuids(),
    st.lists(lines, max_size=3),
    st.sets(st.just(Colour.RED)),
    st.tuples(st.integers(), st.text()),
)


@given(st.dictionaries(st.integers(), orders | st.none(), max_size=3))
def test_nested_dataclasses_come_back_equal(value: dict[int, Order | None]) -> None:
    assert there_and_back(dict[int, Order | None], value) == value


@given(
    st.dictionaries(st.text(), st.dictionaries(st.sampled_from(["$uuid", "$", "a"]), st.uuids() | st.text()))
)
def test_unions_under_dicts_that_look_like_marks_come_back_equal(
    value: dict[str, dict[str, UUID | str]],
) -> None:
    assert there_and_back(dict[str, dict[str, UUID | str]], value) == value
