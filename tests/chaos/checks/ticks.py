"""Schedules: every nominal time has one row, what fired has one job or run under it, and nothing else was started."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.chaos import plan
from tests.chaos.facts import Facts, Job, Run, Schedule, Tick

OUTCOMES = ("fired", "skipped_overlap", "skipped_missed")


def ticks(facts: Facts) -> Iterator[str]:
    for name in {entry["name"]: None for entry in facts.told("scheduled")}:
        if name not in facts.schedules:
            yield f"lost: schedule {name} was made and is not there"
    started = _started(facts)
    for name, schedule in facts.schedules.items():
        if not schedule.ticks and "every" in plan.SCHEDULES[name]:
            yield f"schedule {name} has never ticked"
        yield from _times(name, schedule)
        for tick in schedule.ticks:
            yield from _outcome(name, tick, started[name])
        yield from _strays(name, schedule, started[name])
    for target in started.keys() - facts.schedules.keys():
        yield f"{started[target][0]} is for a tick, and there is no schedule {target}"


def _started(facts: Facts) -> dict[str, list[Job | Run]]:
    """What was started for ticks, by the name of its task or pipeline, which is that of its schedule."""
    found: dict[str, list[Job | Run]] = defaultdict(list)
    for job in facts.jobs.values():
        if job.run is None and (job.scheduled_for is not None or job.task in plan.SCHEDULES):
            found[job.task].append(job)
    for run in facts.runs.values():
        if run.scheduled_for is not None or run.pipeline in plan.SCHEDULES:
            found[run.pipeline].append(run)
    return found


def _times(name: str, schedule: Schedule) -> Iterator[str]:
    """From the first tick to the last one, each time once."""
    seen: Counter[int] = Counter()
    for tick in schedule.ticks:
        times = range(tick.first, tick.nominal + 1, schedule.every)
        if len(times) != tick.number or tick.nominal not in times:
            yield f"schedule {name}: the row of {tick.nominal} counts {tick.number} ticks of {len(times)}"
        seen.update(times)
    if not seen:
        return
    wanted = range(min(seen), max(seen) + 1, schedule.every)
    for time in wanted:
        if not seen[time]:
            yield f"schedule {name}: the tick of {time} has no row"
    for time, rows in seen.items():
        if rows > 1:
            yield f"schedule {name}: the tick of {time} has {rows} rows"
        if time not in wanted:
            yield f"schedule {name}: {time} is no time at which it ticks"


def _outcome(name: str, tick: Tick, started: list[Job | Run]) -> Iterator[str]:
    if tick.outcome not in OUTCOMES:
        yield f"schedule {name}: the tick of {tick.nominal} is {tick.outcome} when all is over"
    ids = [each.id for each in started if each.scheduled_for == tick.nominal]
    if len(ids) > 1:
        yield f"schedule {name}: the tick of {tick.nominal} fired {len(ids)} times"
    wanted = [tick.target] if tick.outcome == "fired" else []
    if ids != wanted:
        yield f"schedule {name}: the tick of {tick.nominal} ({tick.outcome}) must have {wanted}, and has {ids}"


def _strays(name: str, schedule: Schedule, started: list[Job | Run]) -> Iterator[str]:
    fired = {tick.target for tick in schedule.ticks}
    for each in started:
        if each.id not in fired:
            yield f"{each} is of no tick of schedule {name}"
