"""values/parse: Quantities as people write them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock.settings import Settings
from penstock.values.parse import QueueLimit, parse_bytes, parse_queues, parse_seconds, read_queues


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("90", 90),
        ("1.5", 1.5),
        ("500ms", 0.5),
        ("30s", 30),
        ("5m", 300),
        ("5 min", 300),
        ("2H", 7200),
        (" 14d ", 1_209_600),
        ("1w", 604_800),
        (3, 3),
        (0.25, 0.25),
        (timedelta(minutes=2), 120),
    ],
)
def test_durations(written: Any, seconds: float) -> None:
    assert parse_seconds(written) == seconds


@pytest.mark.parametrize("wrong", ["", "s", "5 parsecs", "-3s", "1h30m", True, float("nan")])
def test_wrong_durations(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"give a (duration|number)"):
        parse_seconds(wrong)


@pytest.mark.parametrize(
    ("written", "size"), [("65536", 65536), ("512 KiB", 524_288), ("1MB", 1_000_000), ("2g", 2**31), (7, 7)]
)
def test_sizes(written: Any, size: int) -> None:
    assert parse_bytes(written) == size


@pytest.mark.parametrize("wrong", ["", "big", "1 XB", False])
def test_wrong_sizes(wrong: Any) -> None:
    with pytest.raises(ValueError, match="give a"):
        parse_bytes(wrong)


def test_queues_keep_their_order_and_limits() -> None:
    assert parse_queues(" mail:10, default ,") == (QueueLimit("mail", 10), QueueLimit("default"))
    assert ",".join(map(str, parse_queues("a:1,b"))) == "a:1,b"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("", "at least one queue"),
        ("mail:x", "NAME:LIMIT"),
        ("mail:", "NAME:LIMIT"),
        ("mail:0", "at least 1"),
        ("a,a:2", "twice"),
        ("two words", "not a queue name"),
        ("q" * 101, "not a queue name"),
    ],
)
def test_wrong_queues(wrong: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_queues(wrong)


@pytest.mark.parametrize(
    "said",
    [
        "mail:10,default",
        ["mail:10", "default"],
        ["mail:10,default"],
        {"mail": 10, "default": None},
        [QueueLimit("mail", 10), "default"],
    ],
)
def test_queues_may_be_given_one_by_one_and_limits_by_name(said: Any) -> None:
    """Of a mapping the limits were lost, and of a list all but the first queue of each text."""
    assert read_queues(said) == (QueueLimit("mail", 10), QueueLimit("default"))
    assert Settings.load(queues=said, environ={}).queues == read_queues(said)
