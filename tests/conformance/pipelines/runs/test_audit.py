"""queue/audit: whatever an operator does leaves a row that says who, when and why, in the transaction of the act: or
neither.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import penstock
from penstock import Cancel, Penstock, wait_for
from penstock.errors import ActionRefused, ConfigurationError
from penstock.job import Job
from penstock.operate import actions
from penstock.operate.audit import Act
from penstock.pipelines.maintenance import retention
from penstock.pipelines.run import Run
from penstock.telemetry import fault_points
from penstock.testing import crash_at, drain, inline, travel
from penstock.values.actor import this_process
from tests.conformance.rows import count, rows

DAY = 86_400.0


class Yard:
    """An app with something to do everything to."""

    def __init__(self, app: Penstock) -> None:
        self.app = app

        @app.task(name="fails", retries=0)
        def fails(value: int = 0) -> int:
            raise ValueError("always")

        @app.task(name="same")
        def same(value: Any = None) -> Any:
            return value

        self.same = same
        self.declare()

        @app.pipeline(name="broken")
        def broken() -> Any:
            return fails(same(1))

    def declare(self, longer: bool = False) -> None:
        @self.app.pipeline(name="waiting")
        def waiting() -> Any:
            return self.same(wait_for("go")) if longer else wait_for("go")

    def outdated(self) -> Run:
        self.declare()
        run = self.waiting()
        self.declare(longer=True)
        self.waiting()  # now that definition is stored
        return run

    def waiting(self) -> Run:
        return self.app.pipelines["waiting"].trigger()

    def broken(self) -> Run:
        run = self.app.pipelines["broken"].trigger()
        drain(self.app)
        return run

    def waits(self) -> Job[Any]:
        return self.app.tasks["same"].options(delay=60).enqueue(1)

    def failed(self) -> Job[Any]:
        job = self.app.tasks["fails"].enqueue()
        drain(self.app)
        return job

    def paused(self) -> Run:
        run = self.waiting()
        run.pause()
        return run


@pytest.fixture
def yard(app: Penstock) -> Yard:
    return Yard(app)


@dataclass(frozen=True)
class Deed:
    """Something to do, to what, and how to see that it was done."""

    name: str
    stage: str
    subject: Callable[[Yard], Any]
    act: Callable[[Yard, Any], object]
    is_done: Callable[[Yard, Any], bool]
    kind: str = "run"


DEEDS = [
    Deed(
        "cancel",
        "cancel_run",
        Yard.waiting,
        lambda _, run: run.cancel(),
        lambda _, run: run.status != "running",
    ),
    Deed("pause", "pause", Yard.waiting, lambda _, run: run.pause(), lambda _, run: run.status == "paused"),
    Deed(
        "resume", "resume", Yard.paused, lambda _, run: run.resume(), lambda _, run: run.status == "running"
    ),
    Deed(
        "signal",
        "signal",
        Yard.waiting,
        lambda _, run: run.signal("go", 1),
        lambda yard, run: bool(rows(yard.app, "SELECT 1 FROM {signals} WHERE run_id = :run", run=run.id)),
    ),
    Deed(
        "revive",
        "revive",
        Yard.broken,
        lambda _, run: run.revive(),
        lambda yard, run: len(revivals(yard, run)) == 1,
    ),
    Deed(
        "retry_step",
        "revive",
        Yard.broken,
        lambda _, run: run.retry_step("fails"),
        lambda yard, run: len(revivals(yard, run)) == 1,
    ),
    Deed(
        "fork",
        "fork",
        Yard.broken,
        lambda _, run: run.fork("fails"),
        lambda yard, run: bool(rows(yard.app, "SELECT 1 FROM {runs} WHERE forked_from = :run", run=run.id)),
    ),
    Deed(
        "rerun",
        "rerun",
        Yard.broken,
        lambda _, run: run.rerun(),
        lambda yard, run: bool(rows(yard.app, "SELECT 1 FROM {runs} WHERE rerun_of = :run", run=run.id)),
    ),
    Deed(
        "migrate",
        "migrate_run",
        Yard.outdated,
        lambda _, run: run.migrate(),
        lambda _, run: not run.diff(),
    ),
    Deed(
        "then",
        "chain",
        Yard.waiting,
        lambda yard, run: run.then(yard.app.pipelines["waiting"]),
        lambda yard, run: bool(rows(yard.app, "SELECT 1 FROM {chains} WHERE upstream_id = :run", run=run.id)),
    ),
    Deed(
        "cancel",
        "cancel",
        Yard.waits,
        lambda _, job: job.cancel(),
        lambda _, job: job.status == "cancelled",
        "job",
    ),
    Deed(
        "retry",
        "retry",
        Yard.failed,
        lambda _, job: job.retry(),
        lambda _, job: job.status == "available",
        "job",
    ),
    Deed(
        "discard",
        "discard",
        Yard.failed,
        lambda _, job: job.discard(),
        lambda _, job: job.status == "cancelled",
        "job",
    ),
]
each_deed = pytest.mark.parametrize("deed", DEEDS, ids=lambda deed: f"{deed.name}-{deed.kind}")


def revivals(yard: Yard, run: Run) -> list[Any]:
    return rows(yard.app, "SELECT id FROM {runs} WHERE revived_from = :run", run=run.id)


def trail(app: Penstock, subject: Any) -> list[tuple[str, str, str]]:
    return [(act.act, act.by, act.why) for act in app.audit(subject)]


@each_deed
def test_every_act_leaves_one_row_and_an_act_without_effect_none(yard: Yard, deed: Deed) -> None:
    app, subject = yard.app, deed.subject(yard)
    before = app.audit(subject)
    began = rows(app, "SELECT {now}")[0][0]
    with app.acting(by="ann", why="ticket 12"):
        deed.act(yard, subject)
    (act,) = app.audit(subject)[: len(app.audit(subject)) - len(before)]
    assert (act.act, act.by, act.why, act.kind, act.subject) == (
        deed.name,
        "ann",
        "ticket 12",
        deed.kind,
        subject.id,
    )
    assert began <= act.at.timestamp() * 1e6 <= rows(app, "SELECT {now}")[0][0]
    assert deed.is_done(yard, subject)
    if deed.name not in ("then", "resume", "rerun", "fork"):
        with app.acting(by="bob"), suppress(ActionRefused):
            deed.act(yard, subject)
        assert "bob" not in [by for _, by, _ in trail(app, subject)]


@each_deed
def test_killed_anywhere_the_act_and_its_row_are_both_there_or_neither(yard: Yard, deed: Deed) -> None:
    app = yard.app
    reached: list[str] = []
    subject = deed.subject(yard)
    with fault_points.watching(reached.append):
        deed.act(yard, subject)
    mine = list(dict.fromkeys([point for point in reached if point.startswith(f"{deed.stage}.")]))
    assert f"{deed.stage}.commit" in mine
    seen = set()
    for point in mine:
        subject = deed.subject(yard)
        with app.acting(by=point), crash_at(point) as crash:
            deed.act(yard, subject)
        assert crash.crashed, point
        done = deed.is_done(yard, subject)
        assert [by for _, by, _ in trail(app, subject) if by == point] == [point] * done, point
        seen.add(done)
    assert seen == {False, True}, "both sides of the commit"


def test_what_is_refused_leaves_nothing(yard: Yard) -> None:
    app, run, job = yard.app, yard.broken(), yard.app.tasks["same"].enqueue()
    drain(app)
    for attempt in (
        run.cancel,
        run.pause,
        run.resume,
        lambda: run.signal("go"),
        lambda: run.retry_step("same"),
        lambda: run.fork("other"),
    ):
        with pytest.raises(ActionRefused):
            attempt()
    assert [job.cancel(), job.retry(), job.discard()] == [False] * 3
    assert actions.prune(app.database, DAY) == 0
    assert count(app, "audits") == 0


def test_an_act_without_an_actor(yard: Yard) -> None:
    run = yard.waiting()
    run.pause()
    (act,) = yard.app.audit(run)
    assert (act.by, act.why) == (this_process(), "")
    assert "@" in act.by
    with yard.app.acting(why="late"):
        run.resume()
    assert trail(yard.app, run)[0] == ("resume", this_process(), "late")


def test_acting_nests_and_ends_and_is_for_async_callers_too(yard: Yard) -> None:
    app, runs = yard.app, [yard.waiting() for _ in range(5)]
    with app.acting(by="ann", why="outer"):
        with app.acting(why="inner"):
            runs[0].pause()
        with app.acting(by="bob"):
            runs[1].pause()
        runs[2].pause()

    async def pause(run: Run, by: str) -> None:
        async with app.acting(by=by, why="async"):
            await asyncio.sleep(0)
            await run.pause_async()

    async def main() -> list[Act]:
        await asyncio.gather(pause(runs[3], "one"), pause(runs[4], "two"))
        return await app.audit_async(limit=2)

    latest = asyncio.run(main())
    assert {act.by for act in latest} == {"one", "two"}
    assert [trail(app, run) for run in runs] == [
        [("pause", "ann", "inner")],
        [("pause", "bob", "outer")],
        [("pause", "ann", "outer")],
        [("pause", "one", "async")],
        [("pause", "two", "async")],
    ]
    runs[0].resume()
    assert trail(app, runs[0])[0] == ("resume", this_process(), "")


@pytest.mark.parametrize(
    "wrong", [{"by": ""}, {"by": " "}, {"by": "x" * 201}, {"why": "a\0b"}, {"by": "\ud800"}]
)
def test_names_that_cannot_be_stored_are_refused_before_anything_is_done(app: Penstock, wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"acting\("):
        app.acting(**wrong)


def test_in_a_handler_it_is_the_job_that_acts(yard: Yard) -> None:
    app, runs = yard.app, [yard.waiting() for _ in range(4)]

    @app.task(name="steward")
    def steward(index: int, by: str | None) -> str:
        with app.acting(by=by, why="tidy") if by else app.acting():
            runs[index].pause()
        return penstock.current().id

    @app.task(name="async steward")
    async def async_steward(index: int) -> str:
        await runs[index].pause_async()
        return penstock.current().id

    with app.acting(by="ann", why="not theirs"), inline(app):
        one, two = steward.enqueue(0, None), steward.enqueue(1, "bob")
        three = async_steward.enqueue(2)
    assert trail(app, runs[0]) == [("pause", f"job {one.result(0)} of steward", "")]
    assert trail(app, runs[1]) == [("pause", "bob", "tidy")]
    assert trail(app, runs[2]) == [("pause", f"job {three.result(0)} of async steward", "")]
    assert two.status == "succeeded"


def test_what_handlers_and_housekeeping_do_by_themselves_is_no_act(yard: Yard) -> None:
    app = yard.app

    @app.task(name="gives up")
    def gives_up() -> Cancel:
        return Cancel("no use")

    @app.pipeline(name="late", deadline=10)
    def late() -> Any:
        return [wait_for("never", timeout=5, default=1), wait_for("never")]

    yard.broken()
    gives_up.enqueue()
    run = late.trigger()
    drain(app)
    with travel(app, 60):
        drain(app)
    assert run.status == "halted"
    with travel(app, 400 * DAY):
        assert app.engine.chores.prune(DAY) > 0
    assert count(app, "audits") == 0


def test_a_cancellation_reaches_children_and_steps_and_is_one_act(yard: Yard) -> None:
    app = yard.app

    @app.pipeline(name="parent")
    def parent() -> Any:
        return app.pipelines["waiting"]()

    run = parent.trigger()
    drain(app)
    run.cancel(grace=0)
    drain(app)
    assert [each.status for each in app.runs()] == ["cancelled", "cancelled"]
    assert [(act.act, act.subject, act.detail) for act in app.audit()] == [("cancel", run.id, {"grace": 0.0})]


def test_dead_letters_are_told_one_by_one_also_when_they_are_dealt_with_together(yard: Yard) -> None:
    app, jobs = yard.app, [yard.failed() for _ in range(3)]
    with app.acting(by="ann", why="the bank is back"):
        assert app.dead_letters().retry() == 3
    drain(app)
    with app.acting(by="bob"):
        assert app.dead_letters().discard() == 3
        assert app.dead_letters().discard() == 0
    for job in jobs:
        assert trail(app, job) == [("discard", "bob", ""), ("retry", "ann", "the bank is back")]


def test_an_act_on_a_step_is_told_with_its_run(yard: Yard) -> None:
    run = yard.waiting()
    (step,) = run.steps()
    assert yard.app.job(step.id).cancel()
    (act,) = yard.app.audit(run)
    assert (act.kind, act.subject, act.run) == ("job", step.id, run.id)
    assert yard.app.audit(step.id) == [act]


def test_a_prune_is_one_row_that_says_how_much_is_gone_so_far(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "TOGETHER", 1)
    app = yard.app
    for _ in range(3):
        yard.failed()
        yard.broken()
    with travel(app, 2 * DAY):
        with app.acting(by="ann", why="disk"), crash_at("prune_runs.committed") as crash:
            actions.prune(app.database, DAY)
        assert crash.crashed
        (act,) = app.audit()
        assert (act.kind, act.subject, act.detail) == ("installation", None, {"older_than": DAY, "count": 1})
        assert count(app, "runs") == 2
        with app.acting(by="bob"):
            assert actions.prune(app.database, DAY) == 5
    assert [(act.by, act.detail["count"]) for act in app.audit()] == [("bob", 5), ("ann", 1)]


def test_a_repair_says_what_was_found(yard: Yard) -> None:
    run = yard.app.pipelines["broken"].trigger()
    yard.app.database.in_transaction(lambda tx: tx.run("DELETE FROM {availabilities}"))
    assert len(yard.app.engine.chores.repair(age=-1)) == 1
    (act,) = yard.app.audit(run)
    assert (act.act, act.by) == ("repair", this_process())
    assert "nothing was queued" in act.why
    assert "1 available steps" in str(act.detail["repair"])


def test_starting_work_is_told_when_the_caller_says_who_it_is(yard: Yard) -> None:
    app = yard.app
    same, broken = app.tasks["same"], app.pipelines["broken"]
    same.enqueue(1)
    broken.trigger()
    assert count(app, "audits") == 0
    with app.acting(by="ann", why="by hand"):
        jobs = [same.enqueue(2), *same.enqueue_many([(3,), (4,)]), same.options(key="k").enqueue(5)]
        run = broken.options(key="k").trigger()
        assert same.options(key="k").enqueue(6) == jobs[-1]
        assert broken.options(key="k").trigger() == run
    assert [trail(app, job) for job in jobs] == [[("enqueue", "ann", "by hand")]] * 4
    assert trail(app, run) == [("trigger", "ann", "by hand")]


def test_the_trail_outlives_its_subject_and_has_an_age_of_its_own(make_app: Callable[..., Penstock]) -> None:
    yard = Yard(make_app(retention=DAY, audit_retention=10 * DAY))
    app, run = yard.app, yard.waiting()
    run.cancel()
    drain(app)

    def rounds() -> None:
        app.engine.chores._rounds_at = 0.0
        app.database.in_transaction(lambda tx: tx.run("DELETE FROM {leases}"))
        while app.engine.chores._rounds():
            pass

    with travel(app, 5 * DAY):
        rounds()
        assert (count(app, "runs"), count(app, "audits")) == (0, 1)
        assert trail(app, run.id) == [("cancel", this_process(), "")]
    with travel(app, 11 * DAY):
        rounds()
        assert count(app, "audits") == 0


def test_the_trail_can_be_asked_by_whom_and_since_when(yard: Yard) -> None:
    app, run = yard.app, yard.waiting()
    with app.acting(by="ann"):
        run.pause()
    with travel(app, DAY), app.acting(by="bob"):
        run.resume()
        assert [act.by for act in app.audit(since="2h")] == ["bob"]
        assert [act.by for act in app.audit(since=timedelta(days=2))] == ["bob", "ann"]
        assert [act.by for act in app.audit(since=app.audit()[0].at)] == ["bob"]
        assert app.audit(since=datetime(2999, 1, 1, tzinfo=UTC)) == []
    assert [act.act for act in app.audit(by="ann")] == ["pause"]
    assert len(app.audit(limit=1)) == 1
    for wrong in ("soon", datetime(2026, 1, 1)):
        with pytest.raises(ConfigurationError, match="since="):
            app.audit(since=wrong)
