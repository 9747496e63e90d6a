"""queue/unknown_tasks: jobs of a task that no live process knows wait for one that does, and fail after a long time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import Penstock
from penstock.errors import JobFailed
from penstock.queue import processes, unknown_tasks
from penstock.telemetry import fault_points
from penstock.testing import crash_at, drain, travel
from penstock.values.ids import new_id
from penstock.values.typed_json.json_text import dumps

WEEK = 7 * 86_400


class Shops:
    """Two programs on one database: the old one lacks a task and a pipeline."""

    def __init__(self, make_app: Any) -> None:
        self.old, self.new = make_app(), make_app()
        for app in (self.old, self.new):

            @app.task(name="known")
            def known(value: Any) -> Any:
                return value

        self.known = self.new.tasks["known"]

        @self.new.task(name="fresh", queue="special")
        def fresh(value: Any) -> Any:
            return [value]

        self.fresh = fresh

    def pipeline(self, body: Any, **options: Any) -> Any:
        return self.new.pipeline(name="rolling", **options)(body)

    def at_work(self, app: Penstock, says: bool = True) -> str:
        """A worker of this program: its row."""
        details = {unknown_tasks.KNOWS: unknown_tasks.marks(app.task_names)} if says else {}
        id = new_id()
        app.database.in_transaction(processes.register, id, "host", 1, "all", None, dumps(details))
        return id

    def given_up(self, later: float = WEEK + 1) -> int:
        with travel(self.old, later):
            return int(self.old.engine.chores.give_up_unknown())


@pytest.fixture
def shops(make_app: Any) -> Shops:
    return Shops(make_app)


def test_after_a_week_a_step_of_an_unknown_task_has_failed(shops: Shops) -> None:
    heard: list[Any] = []

    @shops.old.task(name="hear")
    def hear(status: str, reasons: list[str]) -> None:
        heard.append((status, reasons))

    shops.new.also_runs(hear)

    def body() -> Any:
        return shops.known.options(key="last")(shops.fresh(shops.known(1)))

    run = shops.pipeline(body, on_halt=hear).trigger()
    drain(shops.old)
    shops.at_work(shops.old)
    assert shops.given_up(WEEK - 60) == 0, "it may still be deployed"
    assert run.status == "running"
    assert shops.given_up() == 1
    drain(shops.old)
    assert (run.status, run.reasons) == ("halted", ["unknown_task"])
    step = next(step for step in run.steps() if step.key == "fresh")
    assert (step.status, step.reason) == ("failed", "unknown_task")
    assert "no process knows a task named 'fresh'" in str(step.error)
    assert heard == [("halted", ["unknown_task"])]
    again = run.revive()
    drain(shops.new)
    assert again.result(0) == [1]


def test_a_child_of_an_unknown_pipeline_is_no_wedge_either(shops: Shops) -> None:
    child = shops.new.pipeline(name="child")(lambda: shops.known(1))
    run = shops.pipeline(lambda: child(), on_failure="continue").trigger()  # noqa: PLW0108 - it is a pipeline
    drain(shops.old)
    shops.at_work(shops.old)
    assert shops.given_up() == 1
    assert (run.status, run.reasons) == ("failed", ["unknown_task"])


def test_a_job_of_an_unknown_task_is_a_dead_letter_and_can_be_retried(shops: Shops) -> None:
    job = shops.fresh.enqueue(1)
    shops.at_work(shops.old)
    assert shops.given_up() == 1
    assert [letter.id for letter in shops.old.dead_letters()] == [job.id]
    with pytest.raises(JobFailed, match="unknown_task"):
        job.result(0)
    with travel(shops.old, WEEK + 60), travel(shops.new, WEEK + 60):
        assert job.retry()
        assert shops.given_up(0) == 0, "from now on it waits anew"
        drain(shops.new)
    assert job.result(0) == [1]


def test_who_might_be_known_is_left_alone(shops: Shops) -> None:
    delayed = shops.fresh.options(delay=WEEK).enqueue(1)
    job = shops.fresh.enqueue(1)
    assert shops.given_up() == 0, "no worker is there"
    mute = shops.at_work(shops.old, says=False)
    assert shops.given_up() == 0, "one has not said what it knows"
    shops.old.database.in_transaction(lambda tx: tx.run("DELETE FROM {processes} WHERE id = :id", id=mute))
    knowing = shops.at_work(shops.new)
    shops.at_work(shops.old)
    assert shops.given_up() == 0, "one of them knows it"
    shops.old.database.in_transaction(lambda tx: tx.run("DELETE FROM {processes} WHERE id = :id", id=knowing))
    with travel(shops.old, WEEK + 1), travel(shops.new, WEEK + 1):
        drain(shops.old)
        shops.at_work(shops.old)
        assert shops.old.engine.chores.give_up_unknown() == 1
    assert (job.status, delayed.status) == ("failed", "available")


def test_killed_anywhere_it_is_given_up_once_or_not_at_all(shops: Shops) -> None:
    rolling = shops.pipeline(lambda: shops.fresh(1))
    shops.at_work(shops.old)
    reached: list[str] = []
    for _ in range(2):
        reached.clear()  # the first time, a definition is read that is known afterwards
        rolling.trigger()
        with fault_points.watching(reached.append):
            assert shops.given_up() == 1
    stages = ("give_up_unknown.", "advance.")
    for point in dict.fromkeys([point for point in reached if point.startswith(stages)]):
        run = rolling.trigger()
        with crash_at(point) as crash:
            shops.given_up()
        assert crash.crashed, point
        assert run.status == ("halted" if point.endswith(".committed") else "running"), point
        shops.given_up()
        assert (run.status, len(run.steps()[0].attempts())) == ("halted", 1), point


def test_a_worker_says_what_it_knows(shops: Shops) -> None:
    async def look() -> list[str]:
        async with shops.old.worker():
            rows = shops.old.database.read(lambda tx: tx.rows("SELECT details FROM {processes}"))
            return [str(details) for (details,) in rows]

    (told,) = asyncio.run(look())
    assert unknown_tasks.marks(["known"])[0] in told
    assert unknown_tasks.marks(["fresh"])[0] not in told
