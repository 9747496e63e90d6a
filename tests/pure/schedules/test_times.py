"""schedules/times, schedules/cron: Ticks against a slow, obvious reference: minute by minute, what the clock on the
wall shows.
"""

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.schedules import cron
from penstock.schedules.times import (
    SECOND,
    Spec,
    count,
    instant_of,
    latest,
    micros_of,
    next_tick,
    span,
    ticks,
)

ZONES = [
    "Europe/Berlin",
    "Europe/London",
    "Europe/Dublin",
    "Europe/Lisbon",
    "Europe/Athens",
    "Europe/Kyiv",
    "Europe/Chisinau",
    "Europe/Istanbul",
    "America/New_York",
    "America/Chicago",
    "America/Denver",
    "America/Phoenix",
    "America/Los_Angeles",
    "America/Anchorage",
    "America/St_Johns",
    "America/Halifax",
    "America/Havana",
    "America/Nuuk",
    "America/Sao_Paulo",
    "America/Santiago",
    "America/Asuncion",
    "America/Port-au-Prince",
    "Atlantic/Azores",
    "Africa/Casablanca",
    "Africa/El_Aaiun",
    "Africa/Cairo",
    "Asia/Beirut",
    "Asia/Jerusalem",
    "Asia/Gaza",
    "Asia/Kathmandu",
    "Asia/Kolkata",
    "Asia/Tokyo",
    "Australia/Sydney",
    "Australia/Adelaide",
    "Australia/Lord_Howe",
    "Pacific/Auckland",
    "Pacific/Chatham",
    "Pacific/Norfolk",
    "Pacific/Easter",
    "Antarctica/Troll",
    "UTC",
]
MINUTE = timedelta(minutes=1)


@cache
def changes(zone: str) -> list[datetime]:
    """When its clock is changed in 2024 to 2030, to the hour; or any day if it never is."""
    there, found = ZoneInfo(zone), []
    at, end = datetime(2024, 1, 1, tzinfo=UTC), datetime(2031, 1, 1, tzinfo=UTC)
    while at < end:
        if at.astimezone(there).utcoffset() != (at + timedelta(days=1)).astimezone(there).utcoffset():
            found += [
                at + timedelta(hours=hour)
                for hour in range(24)
                if _changes(at + timedelta(hours=hour), there)
            ]
        at += timedelta(days=1)
    return found or [datetime(2027, 6, 1, tzinfo=UTC)]


def _changes(at: datetime, zone: ZoneInfo) -> bool:
    return at.astimezone(zone).utcoffset() != (at + timedelta(hours=1)).astimezone(zone).utcoffset()


def local_times(zone: str, start: datetime, end: datetime) -> Iterator[tuple[datetime, datetime, int]]:
    """Every minute, what the wall shows then, and whether it has shown that before."""
    there, at = ZoneInfo(zone), start
    while at <= end:
        shown = at.astimezone(there)
        yield at, shown.replace(tzinfo=None, fold=0), shown.fold
        at += MINUTE


def reference(expression: str, zone: str, start: datetime, end: datetime) -> list[int]:
    """All ticks after the start, up to the end."""
    rule = CronSim(expression, datetime(2024, 1, 1))
    minute, hour = expression.split()[:2]
    by_the_hour = minute.startswith("*") or hour.startswith("*")

    def matches(wall: datetime) -> bool:
        right_time = wall.minute in rule.minutes and wall.hour in rule.hours
        return right_time and wall.month in rule.months and rule.match_day(wall.date())

    found, before = set(), None
    for at, wall, fold in local_times(zone, start - timedelta(minutes=1), end):
        if by_the_hour:
            found.update([at] if matches(wall) else [])
        else:
            skipped: list[datetime] = [] if before is None else _between(before, wall)
            found.update([at] if any(map(matches, skipped)) or (matches(wall) and not fold) else [])
        before = wall
    return sorted(micros_of(at) for at in found if at > start)


def _between(before: datetime, wall: datetime) -> list[datetime]:
    """Times that the wall has not shown."""
    missing = int((wall - before) / MINUTE) - 1
    return [before + MINUTE * number for number in range(1, missing + 1)]


def fields(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    listed = st.lists(number, min_size=1, max_size=3).map(lambda each: ",".join(map(str, each)))
    ranged = st.tuples(number, number, st.integers(1, 9)).map(lambda e: f"{min(e[:2])}-{max(e[:2])}/{e[2]}")
    steps = st.sampled_from([2, 5, 7, 10, 15, 20, 30]).map(lambda step: f"*/{step}")
    return st.just("*") | listed | ranged | steps


EXPRESSIONS = st.tuples(
    fields(0, 59),
    fields(0, 3) | fields(0, 23),
    st.sampled_from(["*", "*", "*", "1-31/2", "L"]),
    st.just("*"),
    st.sampled_from(["*", "*", "mon,sun", "0-3", "7"]),
).map(" ".join)


@settings(max_examples=60)
@given(st.sampled_from(ZONES), EXPRESSIONS, st.data())
def test_ticks_around_a_change_of_the_clock(zone: str, expression: str, data: st.DataObject) -> None:
    change = data.draw(st.sampled_from(changes(zone)))
    start = change - timedelta(minutes=data.draw(st.integers(0, 8 * 60)))
    end = change + timedelta(hours=9)
    spec = Spec(cron.read(expression), zone)
    expected = reference(expression, zone, start, end)
    assert list(ticks(spec, micros_of(start), micros_of(end))) == expected
    assert latest(spec, micros_of(start), micros_of(end), 3) == expected[-3:]
    assert count(spec, micros_of(start), micros_of(end)) == len(expected)
    assert count(spec, micros_of(start - timedelta(days=2)), micros_of(end)) == sum(
        1 for _ in ticks(spec, micros_of(start - timedelta(days=2)), micros_of(end))
    )


@pytest.mark.parametrize("zone", ZONES)
def test_a_daily_time_fires_once_a_day_for_seven_years(zone: str) -> None:
    begin, end = datetime(2024, 1, 1, tzinfo=UTC), datetime(2031, 1, 1, tzinfo=UTC)
    found = list(ticks(Spec(cron.read("30 2 * * *"), zone), micros_of(begin), micros_of(end)))
    days = [instant_of(tick, zone).date() for tick in found]
    assert len(set(days)) == len(days)
    assert days[-1] - days[0] == timedelta(days=len(days) - 1)


@pytest.mark.parametrize("zone", ZONES)
def test_every_five_minutes_is_every_five_minutes_of_real_time(zone: str) -> None:
    for change in changes(zone)[:4]:
        begin, end = micros_of(change - timedelta(hours=30)), micros_of(change + timedelta(hours=30))
        found = list(ticks(Spec(cron.read("*/5 * * * *"), zone), begin, end))
        assert {later - earlier for earlier, later in itertools.pairwise(found)} == {300 * SECOND}


@given(st.integers(1, 10**12), st.integers(0, 10**15), st.integers(0, 10**15))
def test_intervals_count_from_their_anchor(every: int, anchor: int, after: int) -> None:
    spec = Spec(None, "UTC", every, anchor)
    found = next_tick(spec, after)
    assert found is not None
    assert after < found <= after + every
    assert (found - anchor) % every == 0
    assert count(spec, after, after + 5 * every) == 5


@settings(max_examples=30)
@given(EXPRESSIONS, st.datetimes(datetime(2024, 1, 1), datetime(2030, 1, 1)))
def test_start_and_end_bound_it(expression: str, at: datetime) -> None:
    begin = micros_of(at.replace(tzinfo=UTC))
    end = begin + 86_400 * SECOND
    spec = Spec(cron.read(expression), "Europe/Berlin", start=begin, end=end)
    free = spec._replace(start=None, end=None)
    assert list(ticks(spec, 0, end * 2)) == list(ticks(free, begin - 1, end))
    assert next_tick(spec, end) is None


@pytest.mark.parametrize("text", ["0 0 29 2 *", "0 0 * 2 mon#5", "@yearly", "59 23 31 12 7", "0 0 1 1 mon"])
def test_rare_ones_are_found(text: str) -> None:
    found = next_tick(Spec(cron.read(text), "Pacific/Chatham"), micros_of(datetime(2025, 3, 1, tzinfo=UTC)))
    assert found is not None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("60 * * * *", "the minute is '60'; it could be 0 to 59"),
        ("* 24 * * *", "the hour is '24'; it could be 0 to 23"),
        ("* * 0 * *", "the day of the month is '0'"),
        ("* * * 13 *", "the month is '13'"),
        ("* * * * 8", "the day of the week is '8'"),
        ("*/0 * * * *", "the minute is '*/0'"),
        ("5-1 * * * *", "the minute is '5-1'"),
        ("* * * * mon#9", "the day of the week is 'mon#9'"),
        ("L/2 * * * *", "the minute is 'L/2'"),
        ("* * * *", "4 fields; there are five"),
        ("* * * * * *", "for seconds use every="),
        ("", "give five fields"),
        ("@dailly", "@daily"),
        ("@reboot", "enqueue the task"),
        ("0 0 30 2 *", "never fire"),
        ("1," * 150 + "1 * * * *", "at most 200 characters"),
    ],
)
def test_what_is_wrong_is_said_with_what_it_could_be(text: str, words: str) -> None:
    with pytest.raises(ValueError) as told:
        cron.read(text)
    assert words in str(told.value)


@given(st.text(max_size=40) | st.text(alphabet="*/,-0123456789LW# ", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = cron.read(text)
    except ValueError:
        return
    assert next_tick(Spec(found, "Europe/Berlin"), 0) is not None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0 3 * * *", "at 03:00 on every day, Europe/Berlin"),
        ("*/5 * * * *", "every fifth minute of every hour, Europe/Berlin"),
        ("0 9 * * mon-fri", "at 09:00 on Monday through Friday, Europe/Berlin"),
        ("@monthly", "at 00:00 on the first day of every month, Europe/Berlin"),
    ],
)
def test_in_plain_words(text: str, words: str) -> None:
    assert Spec(cron.read(text), "Europe/Berlin").described() == words


def test_spans_in_words() -> None:
    seconds = (90, 300, 5400, 86_400, 0.5)
    assert [span(int(each * SECOND)) for each in seconds] == ["1m30s", "5m", "1h30m", "1d", "0.5s"]


def test_a_year_of_minutes_is_counted_without_walking() -> None:
    spec = Spec(cron.read("* * * * *"), "Europe/Berlin")
    begin, end = (micros_of(datetime(year, 1, 1, tzinfo=UTC)) for year in (2026, 2027))
    assert count(spec, begin - 1, end - 1) == 365 * 1440


@pytest.mark.parametrize("every", [0, -1, -60 * SECOND, None, "garbage"])
def test_an_interval_that_does_not_go_forward_is_refused(every: Any) -> None:
    spec = Spec(None, "UTC", every, 0)
    now = 1000 * SECOND
    for ask in (
        lambda: next_tick(spec, now),
        lambda: next(ticks(spec, now, 2 * now)),
        lambda: latest(spec, 0, now),
        lambda: count(spec, 0, now),
    ):
        with pytest.raises(ValueError, match="the interval must be more than 0"):
            ask()


def test_no_ticks_are_not_the_latest() -> None:
    for most in (0, -1):
        with pytest.raises(ValueError, match="at least 1"):
            latest(Spec(None, "UTC", SECOND, 0), 0, 1000 * SECOND, most)
