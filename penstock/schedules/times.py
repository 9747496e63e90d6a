"""When a schedule ticks: pure arithmetic on microseconds since 1970.

A cron expression is about the time on the wall of a zone. One that names minutes and hours fires once for each time on
the wall: a time that is skipped in spring fires when the gap ends, one that comes twice in autumn fires the first time.
One whose minutes or hours begin with a star goes by real time: it fires whenever the wall shows a time that matches,
so every hour that really passes, and both times in autumn. `every` counts from its anchor and knows no zone.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import islice
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from penstock.schedules.cron import Cron
from penstock.values.parse import nearest

SECOND = 1_000_000
DAY = 86_400 * SECOND
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LONGEST_FOLD = timedelta(hours=3)
"""No clock is set back by more than this."""
NEAR = timedelta(hours=12)
"""No clock is changed forth and back within this time."""
NEVER = 253_370_764_800 * SECOND
"""The calendar ends with the year 9999; this is the last day that may have a tick."""


class Spec(NamedTuple):
    """The times of a schedule: a cron expression in a zone, or an interval from an anchor."""

    cron: Cron | None
    zone: str = "UTC"
    every: int = 0
    anchor: int = 0
    start: int | None = None
    """No tick before it; none at all after `end`."""
    end: int | None = None

    def described(self) -> str:
        if self.cron is None:
            return f"every {span(self.every)}"
        return f"{self.cron.described()}, {self.zone}"


@lru_cache(1024)
def zone_of(name: str) -> ZoneInfo:
    """The zone; ValueError names the nearest one that there is."""
    try:
        return ZoneInfo(name)
    except Exception:
        known = available_timezones()
        if not known:
            raise ValueError("this host knows no time zones: install the package tzdata") from None
        raise ValueError(f"there is no time zone {name!r}{nearest(str(name), known)}") from None


def instant_of(micros: int, zone: str = "UTC") -> datetime:
    """The instant as a datetime in a zone."""
    found = EPOCH + timedelta(microseconds=micros)
    return found if zone == "UTC" else found.astimezone(zone_of(zone))


def micros_of(instant: datetime) -> int:
    since = instant.astimezone(UTC) - EPOCH
    return (since.days * 86_400 + since.seconds) * SECOND + since.microseconds


def next_tick(spec: Spec, after: int) -> int | None:
    """The first tick later than this instant; None if there is none."""
    if spec.start is not None:
        after = max(after, spec.start - 1)
    found = _next_interval(spec, after) if spec.cron is None else _next_cron(spec.cron, spec.zone, after)
    if found is None or found > NEVER or (spec.end is not None and found > spec.end):
        return None
    return found


def ticks(spec: Spec, after: int, until: int) -> Iterator[int]:
    """All ticks later than `after`, up to and including `until`; ValueError if they do not increase."""
    before, found = after, next_tick(spec, after)
    while found is not None and found <= until:
        if found <= before:
            raise ValueError(f"the ticks do not go forward: {found} comes after {before}")
        yield found
        before, found = found, next_tick(spec, found)


def latest(spec: Spec, after: int, until: int, most: int = 1) -> list[int]:
    """The last ticks, at most `most`, later than `after` and not later than `until`; in their order."""
    if most < 1:
        raise ValueError(f"the number of ticks must be at least 1, not {most}")
    reach = (60 * SECOND if spec.cron is not None else _interval(spec)) * most
    while True:
        begin = max(after, until - reach)
        found = list(ticks(spec, begin, until))
        if len(found) >= most or begin == after:
            return found[-most:]
        reach *= 4


def count(spec: Spec, after: int, until: int) -> int:
    """How many ticks there are, later than `after` and not later than `until`; without walking all of them."""
    first = next_tick(spec, after)
    if first is None or first > until:
        return 0
    if spec.end is not None:
        until = min(until, spec.end)
    if spec.cron is None:
        return (until - first) // _interval(spec) + 1
    return _count_cron(spec, spec.cron, first, until)


def _next_interval(spec: Spec, after: int) -> int:
    every = _interval(spec)
    return spec.anchor + ((after - spec.anchor) // every + 1) * every


def _interval(spec: Spec) -> int:
    """The interval; ValueError if it would not go forward, as that of a damaged row."""
    every: object = spec.every
    if not isinstance(every, int) or every <= 0:
        raise ValueError(f"the interval must be more than 0 microseconds, not {every!r}")
    return every


@lru_cache(4096)
def _next_cron(cron: Cron, name: str, after: int) -> int | None:
    """The next tick of a cron expression; cached, because many schedules share an expression."""
    if after > NEVER:
        return None
    if name == "UTC":
        wall = next(cron.local_times(instant_of(after).replace(tzinfo=None)), None)
        return None if wall is None else micros_of(wall.replace(tzinfo=UTC))
    zone = zone_of(name)
    begin = instant_of(after)
    found = (
        _next_by_real_time(cron, zone, begin)
        if cron.follows_real_time
        else _next_by_local_time(cron, zone, begin)
    )
    return None if found is None else micros_of(found)


def _next_by_local_time(cron: Cron, zone: ZoneInfo, after: datetime) -> datetime | None:
    """The next tick by local time: only local times after the present one need be tried."""
    for wall in cron.local_times(_local_time(after, zone)):
        found = _first(wall, zone)
        if found > after:
            return found
    return None


def _next_by_real_time(cron: Cron, zone: ZoneInfo, after: datetime) -> datetime | None:
    begin = _local_time(after, zone)
    wall = next(cron.local_times(begin), None)
    if wall is None:
        return None
    near = after + (wall - begin.replace(fold=0))
    if near - after <= NEAR and near.astimezone(zone).utcoffset() == after.astimezone(zone).utcoffset():
        return near
    return _among_all(cron, zone, after, begin)


def _among_all(cron: Cron, zone: ZoneInfo, after: datetime, begin: datetime) -> datetime | None:
    """The first tick among local times around a clock change: some come twice, and others not at all."""
    best: datetime | None = None
    for wall in cron.local_times(begin.replace(fold=0) - LONGEST_FOLD):
        if best is not None and wall > _local_time(best, zone) + LONGEST_FOLD:
            break
        for found in _occurrences(wall, zone):
            if found > after and (best is None or found < best):
                best = found
    return best


def _local_time(instant: datetime, zone: ZoneInfo) -> datetime:
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def _occurrences(wall: datetime, zone: ZoneInfo) -> list[datetime]:
    """The instants at which the local time is this: one, two, or none."""
    both = {wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)}
    return sorted(instant for instant in both if _local_time(instant, zone) == wall)


def _first(wall: datetime, zone: ZoneInfo) -> datetime:
    """The first instant at which the local time is this or later."""
    found = _occurrences(wall, zone)
    if found:
        return found[0]
    before, after = (wall.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta() for fold in (0, 1))
    low, high = (wall - after).replace(tzinfo=UTC), (wall - before).replace(tzinfo=UTC)
    while high - low > timedelta(seconds=1):
        middle = low + timedelta(seconds=int((high - low).total_seconds()) // 2)
        if middle.astimezone(zone).utcoffset() == after:
            high = middle
        else:
            low = middle
    return high


def _count_cron(spec: Spec, cron: Cron, first: int, until: int) -> int:
    """Count ticks: days without a clock change by the number of times in the expression, other days one by one."""
    zone = zone_of(spec.zone)
    a_day = len(cron.minutes) * len(cron.hours)
    number, at = 1, first
    day = _local_time(instant_of(first), zone).date()
    end = _midnight(day + timedelta(days=1), zone)
    while True:
        day += timedelta(days=1)
        begin, end = end, _midnight(day + timedelta(days=1), zone)
        if end > until:
            return number + sum(1 for _ in ticks(spec, at, until))
        number += sum(1 for _ in ticks(spec, at, begin - 1)) if at < begin - 1 else 0
        if end - begin == DAY and _is_plain(begin, end, zone):
            number += a_day if cron.matches(day) else 0
        else:
            number += sum(1 for _ in ticks(spec, begin - 1, end - 1))
        at = end - 1


def _midnight(day: date, zone: ZoneInfo) -> int:
    """The instant at which the day begins in the zone."""
    return micros_of(_first(datetime.combine(day, time()), zone))


def _is_plain(begin: int, end: int, zone: ZoneInfo) -> bool:
    """True if no clock change is near this day."""
    near = LONGEST_FOLD // timedelta(microseconds=1)
    looked_at = (begin - near, begin, end, end + near)
    return len({instant_of(at).astimezone(zone).utcoffset() for at in looked_at}) == 1


def first_ticks(spec: Spec, after: int, most: int) -> list[int]:
    """The next ticks, at most `most`."""
    return list(islice(ticks(spec, after, NEVER), most))


def span(micros: int) -> str:
    """A length of time as people write it: `90s`, `5m`, `1h30m`."""
    seconds, rest = divmod(micros, SECOND)
    if rest:
        return f"{micros / SECOND:g}s"
    parts = []
    for letter, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        number, seconds = divmod(seconds, size)
        if number:
            parts.append(f"{number}{letter}")
    return "".join(parts)
