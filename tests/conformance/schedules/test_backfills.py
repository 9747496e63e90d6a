"""schedules/backfill: Ten thousand ticks of the past: fired in their order, in bounded batches, and each once over
the death of workers.
"""

import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

import penstock
from penstock import Penstock
from penstock.schedules.decide import BATCH
from penstock.testing import crash_at, drain

TICKS = 10_000
DEATHS = ("fire.2", "fire_ticks.1", "fire_ticks.commit", "fire_ticks.committed")
BETWEEN_DEATHS = 15
"""So many batches are fired before the next worker dies."""
FIRED = "SELECT nominal_at, outcome, target_id, decided_at FROM {schedule_ticks} ORDER BY nominal_at"
JOBS = "SELECT id FROM {jobs} ORDER BY id"
RUN = BATCH + 50
SECONDS = 15.0
"""It takes one or two; five on MariaDB beside other work."""


def fire_some(app: Penstock) -> None:
    """A worker that has no queue to work on fires what is due."""
    drain(app, queues="none")


@pytest.mark.parametrize("deaths", [(), DEATHS], ids=["undisturbed", "over the death of workers"])
def test_ten_thousand_ticks(app: Penstock, deaths: tuple[str, ...]) -> None:
    ran: list[datetime | None] = []

    @app.task(name="note")
    def note() -> None:
        ran.append(penstock.current().scheduled_for)

    later = datetime.now(UTC) + timedelta(days=1)
    s = app.schedules.create(note, "* * * * *", name="s", start=later)  # no tick of now is among them
    end = datetime.now(UTC).replace(second=0, microsecond=0)
    begin = end - timedelta(minutes=TICKS - 1)
    began = time.monotonic()
    assert s.backfill(begin, end) == TICKS
    for point in deaths:
        with crash_at(point, BETWEEN_DEATHS) as crash:
            fire_some(app)
        assert crash.crashed, point
    fire_some(app)
    took = time.monotonic() - began

    wanted = [begin + timedelta(minutes=number) for number in range(TICKS)]
    ticks = app.database.read(lambda tx: tx.rows(FIRED))
    assert [at(nominal) for nominal, *_ in ticks] == wanted
    assert {outcome for _, outcome, _, _ in ticks} == {"fired"}
    decided = [int(when) for *_, when in ticks]
    assert decided == sorted(decided)
    assert max(Counter(decided).values()) <= BATCH
    jobs = [str(id) for (id,) in app.database.read(lambda tx: tx.rows(JOBS))]
    assert jobs == [str(target) for _, _, target, _ in ticks], "a job for each, made in their order"
    drain(app, limit=RUN)
    assert ran == wanted[:RUN]
    assert took < SECONDS


def at(micros: int) -> datetime:
    return datetime.fromtimestamp(int(micros) / 1_000_000, UTC)
