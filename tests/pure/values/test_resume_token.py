"""values/resume_token: Resume tokens: what was signed is read again, and nothing else is."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import TokenForged
from penstock.values.resume_token import Ticket, fingerprint, read, sign

OLD, NEW = "an old secret of ours", "a new secret of ours"
TICKET = Ticket("0199c1d2-0000-7000-8000-000000000001", "approve", (3, 0), 1_800_000_000_000_000)


@given(
    st.uuids(),
    st.text(min_size=1, max_size=120),
    st.lists(st.integers(0, 2**31), max_size=4),
    st.integers(0, 2**60),
)
def test_what_was_signed_is_read_again(run: Any, signal: str, path: list[int], expires: int) -> None:
    if any(0xD800 <= ord(letter) <= 0xDFFF for letter in signal):
        return
    ticket = Ticket(str(run), signal, tuple(path), expires)
    token = sign([NEW], "work.penstock_", ticket)
    assert re.fullmatch(r"[A-Za-z0-9._~-]+", token), "it can stand in a URL as it is"
    assert read([NEW], "work.penstock_", token) == ticket


@given(st.data())
def test_a_token_that_was_changed_anywhere_is_refused(data: st.DataObject) -> None:
    token = sign([NEW], ".penstock_", TICKET)
    at = data.draw(st.integers(0, len(token) - 1))
    letter = data.draw(st.sampled_from("AZaz09._-~").filter(lambda letter: letter != token[at]))
    for wrong in (token[:at] + letter + token[at + 1 :], token[:at] + token[at + 1 :], token[:at]):
        with pytest.raises(TokenForged, match="run.token"):
            read([NEW], ".penstock_", wrong)


@pytest.mark.parametrize(
    "wrong", ["", ".", "..", "ps1..", "ps1.W10.", "é" * 40, "x" * 5000, None, 7, b"ps1.."]
)
def test_what_is_no_token_is_refused(wrong: Any) -> None:
    with pytest.raises(TokenForged):
        read([NEW], ".penstock_", wrong)


def test_a_token_is_good_in_one_place_and_for_one_secret() -> None:
    token = sign([NEW], "work.penstock_", TICKET)
    for secrets, place in (([OLD], "work.penstock_"), ([NEW], ".penstock_"), ([NEW], "work.other_")):
        with pytest.raises(TokenForged):
            read(secrets, place, token)


def test_secrets_can_be_replaced() -> None:
    before = sign([OLD], "", TICKET)
    assert read([NEW, OLD], "", before) == TICKET
    after = sign([NEW, OLD], "", TICKET)
    assert read([NEW], "", after) == TICKET
    with pytest.raises(TokenForged):
        read([OLD], "", after)


def test_a_body_that_is_signed_but_says_nothing_is_refused() -> None:
    """As from a version to come that has the same secret."""
    token = sign([NEW], "", Ticket("run", "name", (), 1)._replace(path=("x",)))  # type: ignore[arg-type]
    with pytest.raises(TokenForged):
        read([NEW], "", token)


def test_a_fingerprint_tells_tokens_apart_and_gives_none_away() -> None:
    one, two = sign([NEW], "", TICKET), sign([NEW], "", TICKET._replace(expires=1))
    assert fingerprint(one) != fingerprint(two)
    assert fingerprint(one) not in one
