"""Cron expressions: five fields with names and ranges, or a word such as `@daily`.

The library `cronsim` reads the fields and walks the calendar, without any time zone; `times` adds the zone. What an
expression may cost is bounded by its length and by the years in which the library looks for a match.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from functools import lru_cache
from typing import NamedTuple

from cronsim import CronSim, CronSimError
from cronsim.cronsim import Field

from penstock.values.parse import nearest

LONGEST = 200
"""Characters of an expression."""
WORDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
FIELDS = (
    ("minute", Field.MINUTE, "0 to 59, such as 30, 0,30, 10-20 or */15"),
    ("hour", Field.HOUR, "0 to 23, such as 3, 9-17 or */2"),
    (
        "day of the month",
        Field.DAY,
        "1 to 31, such as 1, 1,15, L for the last day or LW for the last weekday",
    ),
    ("month", Field.MONTH, "1 to 12 or jan to dec, such as 6, jan,jul or */3"),
    (
        "day of the week",
        Field.DOW,
        "0 to 7 or sun to sat, such as mon, mon-fri, 1#2 for the second Monday or 5L",
    ),
)
ANY_DAY = datetime(2024, 1, 1)  # noqa: DTZ001 - a time on the wall has no zone


class Cron(NamedTuple):
    """An expression that was read."""

    text: str
    """As it was given."""
    fields: str
    """Its five fields."""
    minutes: frozenset[int]
    hours: frozenset[int]
    months: frozenset[int]
    follows_real_time: bool
    """True if its minutes or hours begin with a star: it follows real time, not local time."""

    def local_times(self, after: datetime) -> Iterator[datetime]:
        """The local times that match, later than this one; ends if none comes in fifty years."""
        return _calendar(self.fields, after)

    def matches(self, day: date) -> bool:
        return day.month in self.months and _day_matcher(self.fields).match_day(day)

    def described(self) -> str:
        """In plain words: `at 03:00 on every day`."""
        words = CronSim(self.fields, ANY_DAY).explain()
        if words.startswith("At ") and words.endswith(" every day"):
            words = words.removesuffix(" every day") + " on every day"
        return words[:1].lower() + words[1:]


@lru_cache(4096)
def read(text: str) -> Cron:
    """Read an expression; ValueError says which field is wrong and what it could be."""
    if not text.strip():
        raise ValueError("give five fields, such as '0 3 * * *', or a word such as '@daily'")
    if len(text) > LONGEST:
        raise ValueError(f"at most {LONGEST} characters; this has {len(text)}")
    fields = _fields(" ".join(text.split()))
    parts = fields.split(" ")
    for part, (name, kind, could_be) in zip(parts, FIELDS, strict=True):
        try:
            kind.parse(part.upper())
        except (CronSimError, AssertionError, ValueError, IndexError, TypeError):
            raise ValueError(f"the {name} is {part!r}; it could be {could_be}") from None
    return _read(text, fields, parts)


def _read(text: str, fields: str, parts: list[str]) -> Cron:
    try:
        found = CronSim(fields, ANY_DAY)
        next(found)
    except (CronSimError, StopIteration):
        raise ValueError(
            f"no day is the {parts[2]!r} of the month {parts[3]!r}: it would never fire. Give another day or month"
        ) from None
    by_the_hour = parts[0].startswith("*") or parts[1].startswith("*")
    minutes, hours, months = frozenset(found.minutes), frozenset(found.hours), frozenset(found.months)
    return Cron(text, fields, minutes, hours, months, by_the_hour)


def _fields(text: str) -> str:
    if text.startswith("@"):
        if text.lower() == "@reboot":
            raise ValueError("'@reboot' has no time: enqueue the task where your program starts")
        known = WORDS.get(text.lower())
        if known is None:
            raise ValueError(f"there is no word {text!r}{nearest(text.lower(), WORDS)}")
        return known
    count = len(text.split(" "))
    if count != len(FIELDS):
        more = "; for seconds use every=" if count == len(FIELDS) + 1 else ""
        raise ValueError(f"{count} fields; there are five: minute hour day month weekday{more}")
    return text


@lru_cache(4096)
def _day_matcher(fields: str) -> CronSim:
    return CronSim(fields, ANY_DAY)


def _calendar(fields: str, after: datetime) -> Iterator[datetime]:
    walk = CronSim(fields, after)
    while True:
        try:
            yield next(walk)
        except (StopIteration, OverflowError, ValueError):  # the calendar ends in the year 9999
            return
