"""Rewrite docs/guides/clock-changes.md: what schedules do on the days on which clocks are changed."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from penstock.schedules import cron
from penstock.schedules.times import SECOND, Spec, instant_of, micros_of, ticks

PAGE = Path(__file__).resolve().parent.parent / "docs" / "guides" / "clock-changes.md"
HOUR = 3600 * SECOND
BEGIN = """# The days on which clocks are changed

What [schedules](recurring-work.md) do when a clock is put forward or back, printed by the code that fires them
(`scripts/clock_changes.py`); a test compares this page with it. Times are those on the wall, with the distance from
UTC.

- A time on the wall that is skipped fires when the gap ends.
- A time on the wall that comes twice fires once, the first time.
- A pattern whose minutes or hours begin with a star goes by real time: it fires whenever the wall shows a time that
  matches, so in every hour that really passes. `every=` counts the seconds.
"""
DAYS = (
    ("Europe/Berlin", "2027-03-28", "02:00 is 03:00", ("30 2 * * *", "0 * * * *")),
    ("Europe/Berlin", "2027-10-31", "03:00 is 02:00", ("30 2 * * *", "0 * * * *")),
    ("America/New_York", "2027-03-14", "02:00 is 03:00", ("30 2 * * *", "0 * * * *")),
    ("America/New_York", "2027-11-07", "02:00 is 01:00", ("30 1 * * *", "0 * * * *")),
    ("Australia/Lord_Howe", "2027-10-03", "02:00 is 02:30", ("15 2 * * *", "0 * * * *")),
    ("Australia/Lord_Howe", "2027-04-04", "02:00 is 01:30", ("45 1 * * *", "0 * * * *")),
    ("Africa/Casablanca", "2027-02-07", "03:00 is 02:00", ("30 2 * * *", "0 * * * *")),
    ("Africa/Casablanca", "2027-03-14", "02:00 is 03:00", ("30 2 * * *", "0 * * * *")),
)


def page() -> str:
    """The whole page."""
    return BEGIN + "".join(_day(*each) for each in DAYS)


def _day(zone: str, day: str, what: str, patterns: tuple[str, ...]) -> str:
    midnight = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone))
    begin, end = micros_of(midnight), micros_of(midnight + timedelta(hours=6))
    before = micros_of((midnight - timedelta(days=1)).astimezone(UTC))
    specs = [(f'"{each}"', Spec(cron.read(each), zone)) for each in patterns]
    specs.append(("every=3600", Spec(None, zone, HOUR, before)))
    lines = [f"| `{name}` | {_times(spec, begin - 1, end - 1)} |" for name, spec in specs]
    return f"\n## {zone}, {day}: {what}\n\n| schedule | fires from 00:00 to 06:00 |\n|---|---|\n" + "".join(
        f"{line}\n" for line in lines
    )


def _times(spec: Spec, after: int, until: int) -> str:
    return ", ".join(_shown(instant_of(tick, spec.zone)) for tick in ticks(spec, after, until))


def _shown(instant: datetime) -> str:
    return instant.strftime("%H:%M%z")


if __name__ == "__main__":
    PAGE.write_text(page())
