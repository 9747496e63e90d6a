"""What a run can be in the middle of when its process dies: each a play that can be begun again after a death."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import penstock
from penstock import Penstock, first, wait_for
from penstock.pipelines.run import Run
from penstock.testing import drain, travel
from penstock.values.status import RunStatus
from tests.conformance.rows import rows

LATER = 120.0


class Stage:
    """An app with everything the plays need."""

    def __init__(self, app: Penstock) -> None:
        self.app = app
        self.broken = True
        app.engine.chores.advancer.chunk = 2

        @app.task(name="same")
        def same(value: Any = None) -> Any:
            return value

        @app.task(name="fails", retries=0)
        def fails(value: Any = None) -> Any:
            if self.broken:
                raise ValueError("always")
            return value

        @app.task(name="add")
        def add(a: int, b: int) -> int:
            return a + b

        @app.task(name="total")
        def total(numbers: list[int]) -> int:
            return sum(numbers)

        @app.task(name="hear")
        def hear(run_id: str, status: str) -> str:
            return f"{run_id} {status}"

        @app.task(name="stubborn")
        def stubborn() -> str:
            app.run(str(penstock.current().run_id)).cancel(grace=0)
            return "too late"

        @app.pipeline(name="sequence", on_success=hear)
        def sequence(value: int) -> Any:
            return same(same(value))

        @app.pipeline(name="joined")
        def joined(value: int) -> Any:
            start = same(value)
            return add(same(start), same(start))

        @app.pipeline(name="wide")
        def wide(count: int) -> Any:
            return total(same.map([1] * 5).collect())

        @app.pipeline(name="outside")
        def outside(value: int) -> Any:
            late = same.options(key="late", delay=60)(value)
            return total(add(same.map([1] * 5), late).collect())

        @app.pipeline(name="halting", on_halt=hear, on_complete=hear, on_success=hear)
        def halting(value: int) -> Any:
            fails.options(priority=1)()
            return [same.options(delay=60)(value), same(value), wait_for("never")]

        @app.pipeline(name="waiting")
        def waiting(value: int) -> Any:
            return same(wait_for("go", timeout=60, default="by itself"))

        @app.pipeline(name="losing")
        def losing(value: int) -> Any:
            begun = same.options(key="begun")(value)
            return same.options(key="after")(first(begun, wait_for("never"), wait_for("late", after=[begun])))

        @app.task(name="nudge")
        def nudge(run_id: str, count: int) -> str:
            return f"{run_id} {count}"

        @app.pipeline(name="reminding")
        def reminding(value: int) -> Any:
            return same(wait_for("go", timeout=600, remind=nudge, remind_every=50))

        @app.pipeline(name="child")
        def child(value: int) -> Any:
            return [wait_for("never"), same(value)]

        @app.pipeline(name="cancelled", on_complete=hear)
        def cancelled(value: int) -> Any:
            return [child(value), stubborn.options(priority=-1)(), same.options(delay=60)(value)]

        @app.pipeline(name="reviving")
        def reviving(value: int) -> Any:
            return fails(same(value))

        @app.pipeline(name="reviving_deep")
        def reviving_deep(value: int) -> Any:
            return reviving(value)

        @app.pipeline(name="late", deadline=60)
        def late(value: int) -> Any:
            return [child(value), same(value)]

    def run(self, pipeline: str, key: str) -> Run:
        return self.app.pipelines[pipeline].options(key=key).trigger(7)

    def work(self, later: float = 0.0) -> None:
        drain(self.app)
        if later:
            with travel(self.app, later):
                drain(self.app)

    def found(self, query: str, run: Run) -> list[Run]:
        return [self.app.run(str(row[0])) for row in rows(self.app, query, run=run.id)]

    def told(self, run: Run) -> list[str]:
        """What callbacks were told of the end of this run."""
        query = (
            "SELECT e.output FROM {jobs} j JOIN {executions} e ON e.job_id = j.id "
            "WHERE j.task = 'hear' AND e.outcome = 'succeeded'"
        )
        return sorted(row[0].strip('"').split()[1] for row in rows(self.app, query) if run.id in row[0])


Play = Callable[[Stage, str], None]


@dataclass(frozen=True)
class Window:
    """A play, and the stages of transactions that belong to what it is about."""

    name: str
    stages: frozenset[str]
    play: Play


WINDOWS: list[Window] = []


def window(*stages: str) -> Callable[[Play], Play]:
    def declare(play: Play) -> Play:
        WINDOWS.append(Window(play.__name__, frozenset(stages), play))
        return play

    return declare


@window("trigger")
def trigger(stage: Stage, key: str) -> None:
    run = stage.run("sequence", key)
    stage.work()
    assert run.result(0) == 7


@window("claim", "hydrate", "settle", "advance")
def settle_and_advance(stage: Stage, key: str) -> None:
    run = stage.run("sequence", key)
    stage.work()
    assert run.result(0) == 7
    assert stage.told(run) == ["succeeded"]


@window("settle", "advance")
def join(stage: Stage, key: str) -> None:
    run = stage.run("joined", key)
    stage.work()
    assert run.result(0) == 14
    assert len(run.steps()) == 4


@window("expand")
def expand(stage: Stage, key: str) -> None:
    run = stage.run("wide", key)
    stage.work()
    assert run.result(0) == 5
    assert sorted(step.path for step in run.steps() if step.key == "same") == [(n,) for n in range(5)]


@window("settle", "advance", "expand")
def value_from_outside(stage: Stage, key: str) -> None:
    """Five elements wait for it, and more than three go on in chunks."""
    run = stage.run("outside", key)
    stage.work(LATER)
    assert run.result(0) == 40
    assert sorted(step.path for step in run.steps() if step.key == "add") == [(n,) for n in range(5)]
    waiting = "SELECT path FROM {joins} WHERE run_id = :run AND still_open <> 0"
    assert rows(stage.app, waiting, run=run.id) == []


@window("settle", "advance", "timer", "end_losers")
def lost_waits(stage: Stage, key: str) -> None:
    """One of them waits when the first is decided, the other begins in that very transaction."""
    run = stage.run("losing", key)
    stage.work()
    assert run.result(0) == 7
    lost = [step.key for step in run.steps() if step.reason == "first_decided"]
    assert sorted(lost) == ["late", "never"]


@window("advance", "timer", "sweep")
def halt_and_callback(stage: Stage, key: str) -> None:
    run = stage.run("halting", key)
    stage.work(LATER)
    assert (run.status, run.reasons) == (RunStatus.HALTED, ["retries_exhausted"])
    assert stage.told(run) == ["halted", "halted"]


@window("chain", "chain_start", "timer")
def chain_start(stage: Stage, key: str) -> None:
    run = stage.run("sequence", key)
    follows = "SELECT downstream_id FROM {chains} WHERE upstream_id = :run"
    if not stage.found(follows, run):
        run.then(stage.app.pipelines["joined"], 1)
    stage.work()
    (following,) = stage.found(follows, run)
    assert following.result(0) == 2


@window("signal", "deliver", "timer")
def signal(stage: Stage, key: str) -> None:
    run = stage.run("waiting", key)
    run.signal("go", "given")
    stage.work()
    assert run.result(0) == "given"


@window("wait_timeout", "confirm_timeout", "timer")
def timeout_of_a_wait(stage: Stage, key: str) -> None:
    run = stage.run("waiting", key)
    stage.work(LATER)
    assert run.result(0) == "by itself"


@window("remind", "timer")
def reminder(stage: Stage, key: str) -> None:
    run = stage.run("reminding", key)
    stage.work(LATER)
    query = "SELECT job_key FROM {jobs} WHERE task = 'nudge' AND payload LIKE :run"
    assert len(rows(stage.app, query, run=f"%{run.id}%")) == 1
    run.signal("go", 7)
    stage.work(2 * LATER)
    assert run.result(0) == 7
    assert len(rows(stage.app, query, run=f"%{run.id}%")) == 1


@window("cancel_run", "cancel_children", "sweep", "give_up", "cancel", "timer")
def cancel(stage: Stage, key: str) -> None:
    run = stage.run("cancelled", key)
    stage.work()
    run.cancel(grace=0)
    stage.work(LATER)
    (child,) = stage.found("SELECT id FROM {runs} WHERE parent_run_id = :run", run)
    assert (run.status, child.status) == (RunStatus.CANCELLED, RunStatus.CANCELLED)
    assert {step.status.value for step in run.steps()} == {"cancelled"}
    assert stage.told(run) == ["cancelled"]


@window("cancel", "timer", "cancel_run", "sweep")
def cancel_the_step_of_a_child(stage: Stage, key: str) -> None:
    run = stage.run("late", key)
    stage.work()
    (step,) = [step for step in run.steps() if step.key == "child"]
    stage.app.job(step.id).cancel()
    stage.work(LATER)
    (child,) = stage.found("SELECT id FROM {runs} WHERE parent_run_id = :run", run)
    assert (run.status, child.status) == (RunStatus.HALTED, RunStatus.CANCELLED)


@window("revive", "hydrate")
def revive(stage: Stage, key: str) -> None:
    again = revived(stage, key, "reviving")
    kept = next(step for step in again.steps() if step.key == "same")
    assert kept.output == 7


@window("revive", "hydrate")
def revive_with_a_child(stage: Stage, key: str) -> None:
    again = revived(stage, key, "reviving_deep")
    (child,) = stage.found("SELECT id FROM {runs} WHERE parent_run_id = :run", again)
    assert child.revived_from is not None


@window("fork", "hydrate", "claim", "settle", "advance")
def fork(stage: Stage, key: str) -> None:
    """The client forks, a worker keeps one step and redoes two. The insert of the run decides that there is a fork."""
    run = stage.run("joined", key)
    later = "SELECT id FROM {runs} WHERE forked_from = :run"
    stage.work()
    assert run.result(0) == 14
    if not stage.found(later, run):
        run.fork("same_2")
    stage.work()
    (again,) = stage.found(later, run)
    assert again.result(0) == 14
    kept = {step.key: len(step.attempts()) for step in again.steps()}
    assert sorted(kept) == ["add", "same", "same_2", "same_3"]


def revived(stage: Stage, key: str, pipeline: str) -> Run:
    run = stage.run(pipeline, key)
    later = "SELECT id FROM {runs} WHERE revived_from = :run"
    stage.broken = not stage.found(later, run)
    try:
        stage.work()
        assert run.status is RunStatus.HALTED
        if stage.broken:
            stage.broken = False
            run.revive()
            stage.work()
    finally:
        stage.broken = True
    (again,) = stage.found(later, run)
    assert again.result(0) == 7
    return again


@window("deadline", "timer", "cancel_children", "sweep")
def deadline(stage: Stage, key: str) -> None:
    run = stage.run("late", key)
    stage.work(LATER)
    assert (run.status, run.reasons) == (RunStatus.HALTED, ["deadline_exceeded"])


@window("pause", "resume", "requeue", "timer")
def pause_and_resume(stage: Stage, key: str) -> None:
    run = stage.run("sequence", key)
    if run.status is RunStatus.RUNNING and not run.steps()[0].started_at:
        run.pause()
    stage.work()
    if not run.status.terminal:
        run.resume()
    stage.work()
    assert run.result(0) == 7
