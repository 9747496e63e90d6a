"""Schedules that tick every few seconds for a while: made, paused, resumed, triggered and filled up by clients."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from penstock.schedules import rows
from penstock.schedules.times import SECOND, instant_of
from tests.simulation.hosts import ClientHost
from tests.simulation.poison import GHOST
from tests.simulation.workloads import Act
from tests.simulation.workloads.task_script import after
from tests.simulation.workloads.tasks import SOON, flaky, told

if TYPE_CHECKING:
    from penstock.app import Penstock
    from tests.simulation.story import Story

LASTS = 20
"""Seconds that a schedule has ticks for."""
VERBS = ("pause", "resume", "resume", "trigger", "backfill")
SCHEDULES = """
SELECT id, name, every, start_at, end_at, next_at, due_at, waiting_at, paused_at, backfills, overlap, created_at
FROM penstock_schedules
"""
TICKS = """
SELECT schedule_id, nominal_at, kind, outcome, target_id, first_at, number FROM penstock_schedule_ticks
ORDER BY schedule_id, nominal_at
"""
JOBS = "SELECT id, options FROM penstock_jobs WHERE task = 'ticking'"


class Ticks:
    """The workload."""

    name = "ticks"
    often = 3
    unfinished = (
        f"SELECT COUNT(*) FROM penstock_schedules WHERE due_at IS NOT NULL AND id NOT LIKE '{GHOST}%'"
    )

    def prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute(
            "CREATE TRIGGER sim_ticks_told AFTER INSERT ON penstock_schedule_ticks "
            "BEGIN SELECT sim_log('tick', NEW.schedule_id, NEW.nominal_at, NEW.kind, NEW.outcome); END"
        )

    def declare(self, app: Penstock) -> None:
        app.task(name="ticking", retries=SOON, max_crashes=None)(told(flaky))

    def fill(self, connection: sqlite3.Connection, rng: random.Random) -> Sequence[str]:
        return ()

    def script(self, rng: random.Random) -> Sequence[Act]:
        acts: list[Act] = []
        for number in range(rng.randint(1, 3)):
            acts.append(_create(f"s{number}", rng))
            acts += [_steer(f"s{number}", rng.choice(VERBS)) for _ in range(rng.randint(0, 3))]
        gaps = [rng.choice([0.0, 0.0, 0.3, 2.0, 5.0]) for _ in acts]
        return [after(gap, act) for gap, act in zip(gaps, acts, strict=True)]

    def check(self, story: Story) -> list[str]:
        return list(_check(story))


def _create(name: str, rng: random.Random) -> Act:
    given: dict[str, Any] = {
        "every": rng.choice([1, 2, 3]),
        "overlap": rng.choice(["allow", "allow", "skip", "queue", "cancel"]),
        "missed": rng.choice(["skip", "latest", "latest", "all"]),
        "args": (0, rng.choice([0, 0, 1]), rng.choice([0.0, 0.2, 2.0])),
    }

    def act(client: ClientHost) -> None:
        now = client.app.database.read(rows.clock)
        if client.app.schedules(prefix=name):
            return
        end = instant_of(now + LASTS * SECOND)
        client.app.schedules.create(client.app.tasks["ticking"], name=name, end=end, **given)

    return act


def _steer(name: str, verb: str) -> Act:
    def act(client: ClientHost) -> None:
        schedule = client.app.schedule(name)
        if verb == "backfill":
            now = client.app.database.read(rows.clock)
            schedule.backfill(instant_of(now - 9 * SECOND), instant_of(now))
        else:
            getattr(schedule, verb)()

    return act


def _check(story: Story) -> Iterator[str]:
    for at, kind, *facts in (row for _, row in story.written()):
        if kind == "tick" and facts[2] == "tick" and facts[1] > at:
            yield f"a tick for {facts[1]} was decided about at {at}, before its time"
    ticks = story.rows(TICKS)
    for schedule in story.rows(SCHEDULES):
        yield from _accounted(schedule, [tick for tick in ticks if tick[0] == schedule[0]])
    yield from _jobs(story, ticks)


def _accounted(schedule: Sequence[Any], ticks: Sequence[Sequence[Any]]) -> Iterator[str]:
    """Every time at which it was to fire has its row, or belongs to one that counts it."""
    id, name, every, _, end, next_at, _, waiting, paused, _, _, created = schedule
    if waiting is not None and paused is None:
        yield f"{name}: the tick for {waiting} waits for ever"
    known = Counter(tick[1] for tick in ticks if tick[2] == "tick")
    spans = [(tick[5], tick[1], tick[6]) for tick in ticks if tick[2] == "span"]
    if any(count > 1 for count in known.values()):
        yield f"{name}: a tick has two rows"
    for nominal in range(created + every, end + 1, every):
        covered = known[nominal] or any(first <= nominal <= last for first, last, _ in spans)
        pending = paused is not None and next_at is not None and nominal >= next_at
        if not covered and not pending:
            yield f"{name}: nothing is known of the tick for {nominal} ({(nominal - created) / SECOND:g} s)"
    for earlier, later in pairwise(sorted(known)):
        if (later - earlier) % every:
            yield f"{name} ({id}): {earlier} and {later} are not whole intervals apart"


def _jobs(story: Story, ticks: Sequence[Sequence[Any]]) -> Iterator[str]:
    """A job for each tick that fired, and none beside them."""
    jobs = {str(id): from_json(str(options))["scheduled_for"] for id, options in story.rows(JOBS)}
    fired = {tick[4]: tick[1] for tick in ticks if tick[3] == "fired"}
    if len(fired) != sum(tick[3] == "fired" for tick in ticks):
        yield "two ticks have one job"
    kept = not any(fact[3] for fact in story.facts("keeps")) and not any(True for _ in story.facts("prunes"))
    for id, nominal in fired.items():
        if kept and jobs.get(id) != nominal:
            yield f"the tick for {nominal} fired, and its job {id} is for {jobs.get(id)}"
    for id in jobs.keys() - fired.keys():
        yield f"job {id} for {jobs[id]} belongs to no tick"
