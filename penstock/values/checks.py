"""What callers give as plain values: numbers, durations, instants, names. Checked before anything is done with it.

A reader raises ValueError with what it expects; `checked` says for which argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeVar

from penstock.errors import ConfigurationError

R = TypeVar("R")
V = TypeVar("V")
LONGEST = 100 * 366 * 86_400.0
"""Seconds. Whatever is longer does not fit the clock of every database."""
MOST = 2**30
MICROS = 1_000_000
LONGEST_WORD = 1000
"""No name, key or label is as long."""


def checked(name: str, value: V, read: Callable[[V], R]) -> R:
    """An argument as its reader has it; what is wrong with it is told under its name."""
    try:
        return read(value)
    except ValueError as error:
        raise ConfigurationError(f"{name}={value!r}: {error}") from None


def text(value: object, longest: int, without: str = "\0") -> str:
    """A name or a key, as it is stored and compared."""
    if not isinstance(value, str) or not value:
        raise ValueError("give a text")
    if len(value) > longest or any(letter in value for letter in without):
        no = " and no tab" if "\t" in without else ""
        raise ValueError(f"at most {longest} characters, no NUL{no}")
    if not is_storable(value):
        raise ValueError("it holds half a character (a surrogate), which cannot be stored")
    return value


def words(**given: object) -> None:
    """What to look for, by name: each a text, or None for whatever there is."""
    for name, value in given.items():
        checked(name, value, lambda value: None if value is None else text(value, LONGEST_WORD))


def is_storable(value: str) -> bool:
    """Every character is a whole one."""
    return value.isascii() or value.encode("utf-8", "replace").decode() == value


def whole(value: object, least: int, most: int = MOST) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"give a whole number from {least} to {most}")
    return value


def seconds(value: object, least: float = 0.0) -> float:
    """A duration that ends."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= LONGEST:
        raise ValueError(
            f"give seconds (or a timedelta), at least {least:g} and no more than a hundred years"
        )
    return float(value)


def patience(value: object) -> float | None:
    """For how long a caller waits. For ever is allowed, and so is what is left of a time that is over."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if value is None or value == math.inf:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not -math.inf <= value:
        raise ValueError("give seconds (or a timedelta), or None to wait for as long as it takes")
    return float(min(LONGEST, max(0.0, value)))


def instant(value: object) -> int:
    """Microseconds of the database's clock."""
    if not isinstance(value, datetime):
        raise ValueError("give a datetime with a time zone")
    if value.tzinfo is None:
        raise ValueError("this datetime has no time zone; give one, such as datetime.now(timezone.utc)")
    return int(value.timestamp() * MICROS)
