"""schedules/fire, schedules/backfill: Death in every window of firing, backfilling, declaring and steering: each
tick once all the same.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import penstock
from penstock import Penstock
from penstock.telemetry import fault_points
from penstock.testing import crash_at, drain, travel

STAGES = (
    "fire",
    "fire_ticks",
    "enqueue",
    "trigger",
    "declare",
    "declare_again",
    "create_schedule",
    "update_schedule",
    "pause_schedule",
    "resume_schedule",
    "trigger_schedule",
    "backfill",
    "delete_schedule",
)
FURTHER = [str(number) for number in range(4, 500)]
"""Of many statements that are all alike, the first few are enough."""


class Scene:
    """An app whose task and pipeline note for which times they ran."""

    def __init__(self, app: Penstock) -> None:
        self.app = app
        self.ran: list[datetime | None] = []

        @app.task(name="note")
        def note() -> None:
            self.ran.append(penstock.current().scheduled_for)

        @app.pipeline(name="noting")
        def noting() -> Any:
            return note()

        self.note, self.noting = note, noting


@pytest.fixture
def scene(app: Penstock) -> Scene:
    return Scene(app)


def reached(work: Callable[[], object]) -> list[str]:
    """The points of schedules that this comes to, each once."""
    met: dict[str, None] = {}
    with fault_points.watching(met.setdefault):
        work()
    wanted = [point.rpartition(".") for point in met]
    return [f"{stage}.{part}" for stage, _, part in wanted if stage in STAGES and part not in FURTHER]


def at_every_point(work: Callable[[], object], again: Callable[[str], None]) -> list[str]:
    """Do it once to see where it comes to; then `again` for each of these, after dying there: those where it did."""
    died = []
    for point in dict.fromkeys([*reached(work), *reached(work)]):
        with crash_at(point) as crash:
            work()
        died += [point] if crash.crashed else []
        again(point)
    return died


@pytest.mark.parametrize("kind", ["task", "pipeline"])
def test_a_worker_may_die_while_it_fires(scene: Scene, kind: str) -> None:
    target = scene.note if kind == "task" else scene.noting
    s = scene.app.schedules.create(target, every=60, name="s", overlap="queue")

    def fire() -> None:
        travel(scene.app, 60)
        drain(scene.app)

    def check(point: str) -> None:
        drain(scene.app)
        times = [tick.nominal for tick in s.ticks(limit=1000)]
        assert scene.ran == sorted(times), point
        assert {tick.outcome for tick in s.ticks(limit=1000)} == {"fired"}, point

    found = at_every_point(fire, check)
    assert {"fire.1", "fire.commit", "fire.committed"} <= set(found)
    assert len(found) >= 7


def test_a_worker_may_die_in_a_backfill(scene: Scene) -> None:
    s = scene.app.schedules.create(scene.note, "0 * * * *", name="s")
    begin = datetime.now(UTC) - timedelta(hours=4000)

    def fill() -> None:
        nonlocal begin
        begin += timedelta(hours=105)
        s.backfill(begin, begin + timedelta(hours=104))
        drain(scene.app)

    def check(point: str) -> None:
        drain(scene.app)
        assert len(scene.ran) == len(set(scene.ran)) == len(s.ticks(limit=10_000)), point
        assert {tick.outcome for tick in s.ticks(limit=10_000)} == {"fired"}, point

    found = at_every_point(fill, check)
    assert {"backfill.1", "backfill.commit", "fire.commit"} <= set(found)


def test_the_process_that_declares_may_die(scene: Scene) -> None:
    number = 0

    def declare() -> None:
        nonlocal number
        number += 1
        scene.app.declared.clear()
        scene.note.schedule(every=100 + number, name="s")
        drain(scene.app)

    def check(point: str) -> None:
        drain(scene.app)
        (s,) = scene.app.schedules()
        assert s.every == timedelta(seconds=100 + number), point
        assert s.next_at is not None, point

    found = at_every_point(declare, check)
    assert {"declare.1", "declare.commit", "declare.committed"} <= set(found)


ACTS: dict[str, Callable[[Any], object]] = {
    "pause": lambda s: s.pause(why="w"),
    "resume": lambda s: (s.pause(), s.resume()),
    "update": lambda s: s.update(every=90 if s.every == timedelta(seconds=60) else 60),
    "trigger": lambda s: s.trigger(),
    "delete": lambda s: s.delete(),
}


@pytest.mark.parametrize("act", ACTS)
def test_an_operator_may_die(scene: Scene, act: str) -> None:
    def work() -> None:
        s = scene.app.schedules.create(scene.note, every=60, name="s")
        if act != "pause" and act != "resume":
            travel(scene.app, 61)
        ACTS[act](s)

    def check(point: str) -> None:
        before = len(scene.app.audit(limit=1000))
        s = scene.app.schedules.create(scene.note, every=60, name="s")
        s.resume()
        drain(scene.app)
        times = [tick.nominal for tick in s.ticks(limit=1000) if tick.outcome == "fired"]
        assert len(times) == len(set(times)), point
        assert all(tick.job.status == "succeeded" for tick in s.ticks() if tick.job is not None), point
        assert len(scene.app.audit(limit=1000)) >= before, point
        s.delete()

    found = at_every_point(work, check)
    assert f"{'update' if act == 'update' else act}_schedule.commit" in found
