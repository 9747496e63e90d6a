"""pipelines/lifecycle/run_line: a limit on runs of a pipeline: `max_running`. The others wait in line, in the order
in which they were triggered.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from penstock import Penstock, wait_for
from penstock.errors import ActionRefused, DefinitionError
from penstock.pipelines.lifecycle import run_line
from penstock.testing import crash_at, drain, travel
from tests.conformance.rows import rows

Make = Callable[..., Penstock]


class Held:
    """A pipeline whose runs end when they get their signal."""

    def __init__(self, app: Penstock, most: int | None = 2, name: str = "held") -> None:
        self.app = app
        self.begun: list[int] = []

        @app.task(name=f"{name}.begin", retries=0)
        def begin(n: int) -> int:
            self.begun.append(n)
            return n

        @app.task(name=f"{name}.end", retries=0)
        def end(n: int, word: str) -> int:
            if word == "fail":
                raise ValueError(word)
            return n

        @app.pipeline(name=name, max_running=most)
        def held(n: int) -> object:
            return end(begin(n), wait_for("go"))

        self.held = held

    def trigger(self, *numbers: int) -> list[Any]:
        runs = [self.held.trigger(n) for n in numbers]
        drain(self.app)
        return runs


def statuses(runs: list[Any]) -> str:
    return " ".join(run.status for run in runs)


def go(app: Penstock, run: Any, word: str = "on") -> None:
    run.signal("go", word)
    drain(app)


def test_no_more_than_that_many_are_under_way_and_the_others_follow_in_order(app: Penstock) -> None:
    held = Held(app)
    runs = held.trigger(1, 2, 3, 4, 5)
    assert statuses(runs) == "running running pending pending pending"
    assert held.begun == [1, 2]
    go(app, runs[1])
    assert statuses(runs) == "running succeeded running pending pending"
    go(app, runs[0], "fail")
    assert statuses(runs) == "halted succeeded running running pending"
    go(app, runs[2])
    go(app, runs[3])
    go(app, runs[4])
    assert held.begun == [1, 2, 3, 4, 5]
    assert runs[4].result(1) == 5
    run_lines_are_empty(app)


def run_lines_are_empty(app: Penstock) -> None:
    app.engine.chores.admit_waiting()
    drain(app)
    assert rows(app, "SELECT COUNT(*) FROM {run_places} WHERE admitted = false") == [(0,)]


def test_a_trigger_is_durable_and_pending_at_once(app: Penstock) -> None:
    run = Held(app).held.trigger(1)
    assert run.status == "pending"
    drain(app)
    assert run.status == "running"


def test_explain_says_why_and_where(app: Penstock) -> None:
    runs = Held(app).trigger(1, 2, 3, 4)
    cause, missing = app.explain(runs[3]).causes
    assert missing.kind == "no_worker"
    assert cause.kind == "max_running"
    assert cause.detail == {"pipeline": "held", "most": 2, "under_way": 2, "before": 1}
    assert cause.text == "waits in line, 1 before it: max_running of held is 2; 2 runs are under way"
    runs[2].cancel()
    drain(app)
    assert app.explain(runs[3]).causes[0].detail["before"] == 0


def test_a_run_that_waits_can_be_cancelled_and_never_starts(app: Penstock) -> None:
    held = Held(app, 1)
    runs = held.trigger(1, 2, 3)
    runs[1].cancel()
    drain(app)
    assert statuses(runs) == "running cancelled pending"
    go(app, runs[0])
    assert statuses(runs) == "succeeded cancelled running"
    assert held.begun == [1, 3]


def test_a_cancelled_run_that_is_under_way_makes_room(app: Penstock) -> None:
    held = Held(app, 1)
    runs = held.trigger(1, 2)
    runs[0].cancel()
    drain(app)
    assert statuses(runs) == "cancelled running"


def test_a_paused_run_keeps_its_place_and_one_in_line_cannot_be_paused(app: Penstock) -> None:
    runs = Held(app, 1).trigger(1, 2)
    runs[0].pause()
    drain(app)
    assert statuses(runs) == "paused pending"
    with pytest.raises(ActionRefused):
        runs[1].pause()
    runs[0].resume()
    go(app, runs[0])
    assert statuses(runs) == "succeeded running"


def test_keys_name_runs_in_line(app: Penstock) -> None:
    held = Held(app, 1)
    first = held.held.options(key="a").trigger(1)
    second = held.held.options(key="b").trigger(2)
    drain(app)
    assert held.held.options(key="b").trigger(3).id == second.id
    drain(app)
    assert statuses([first, second]) == "running pending"
    go(app, first)
    assert held.begun == [1, 2]


def test_delayed_runs_join_the_line_when_they_are_due(app: Penstock) -> None:
    held = Held(app, 1)
    late = held.held.options(delay=100).trigger(1)
    runs = held.trigger(2, 3)
    travel(app, 200)
    drain(app)
    assert statuses([late, *runs]) == "pending running pending"
    go(app, runs[0])
    assert statuses([late, *runs]) == "pending succeeded running"
    go(app, runs[1])
    assert held.begun == [2, 3, 1]


def test_many_at_once_in_their_order(app: Penstock) -> None:
    held = Held(app, 3)
    runs = held.held.trigger_many([(n,) for n in range(250)])
    drain(app)
    assert held.begun == [0, 1, 2]
    for run in runs[:3]:
        go(app, run)
    assert held.begun == [0, 1, 2, 3, 4, 5]


def test_a_callers_open_transaction_holds_up_no_other(app: Penstock, make_app: Make) -> None:
    held, other = Held(app, 1), Held(make_app(), 1)
    (first,) = held.trigger(1)
    with app.database.engine.connect() as connection:
        held.held.options(connection=connection).trigger(2)
        if app.database.dialect.name != "sqlite":  # there a caller that writes is the only one that does
            third = other.held.trigger(3)
            go(other.app, first)
            assert third.status == "running"
        connection.rollback()
    drain(app)
    assert 2 not in held.begun
    with app.database.engine.begin() as connection:
        fourth = held.held.options(connection=connection).trigger(4)
    drain(app)
    assert fourth.status == "pending"


def test_runs_that_a_schedule_fires(app: Penstock) -> None:
    held = Held(app, 1)
    held.held.schedule(every=timedelta(seconds=60), args=(7,), name="often", overlap="allow")
    drain(app)
    for _ in range(3):
        travel(app, 60)
        drain(app)
    assert len(rows(app, "SELECT 1 FROM {runs}")) >= 2
    assert held.begun == [7]


def test_what_follows_a_run_joins_the_line(app: Penstock) -> None:
    held = Held(app, 1)
    runs = held.trigger(1, 2)
    follower = runs[0].then(held.held, 3)
    drain(app)
    go(app, runs[0])
    assert statuses([*runs, follower]) == "succeeded running pending"
    go(app, runs[1])
    assert follower.status == "running"


def test_a_revived_run_and_one_run_again_join_the_line(app: Penstock) -> None:
    held = Held(app, 1)
    runs = held.trigger(1, 2)
    go(app, runs[0], "fail")
    again, rerun = runs[0].revive(), runs[0].rerun()
    drain(app)
    assert statuses([runs[1], again, rerun]) == "running pending pending"
    go(app, runs[1])
    assert again.status == "halted"  # its signal was copied: it has failed once more, and made room
    assert rerun.status == "running"


def test_child_runs_do_not_count(app: Penstock) -> None:
    held = Held(app, 1)
    first = held.trigger(1)[0]

    @app.pipeline(name="outer", max_running=1)
    def outer(n: int) -> object:
        return held.held(n)

    parent = outer.trigger(5)
    drain(app)
    assert (first.status, parent.status, held.begun) == ("running", "running", [1, 5])
    waiting = held.trigger(6)[0]
    ((child,),) = rows(app, "SELECT id FROM {runs} WHERE parent_run_id = :id", id=parent.id)
    go(app, app.run(str(child)))
    assert parent.status == "succeeded"
    assert waiting.status == "pending"  # the child's end is no room


def test_each_pipeline_has_its_own(app: Penstock) -> None:
    one, two = Held(app, 1, "one"), Held(app, 1, "two")
    assert statuses([*one.trigger(1, 2), *two.trigger(3, 4)]) == "running pending running pending"


@pytest.mark.parametrize("most", [3, None])
def test_a_limit_that_a_deploy_changes_or_removes(make_app: Make, most: int | None) -> None:
    old = Held(make_app(), 1)
    runs = old.trigger(1, 2, 3, 4)
    new = Held(make_app(), most)
    new.app.engine.chores.admit_waiting()
    drain(new.app)
    running = "running running running " + ("pending" if most else "running")
    assert statuses(runs) == running


def test_a_limit_that_was_lowered_lets_what_runs_go_on(make_app: Make) -> None:
    old = Held(make_app(), 3)
    runs = old.trigger(1, 2, 3, 4)
    new = Held(make_app(), 1)
    for run in runs[:2]:
        go(new.app, run)
    assert statuses(runs) == "succeeded succeeded running pending"
    go(new.app, runs[2])
    assert runs[3].status == "running"


def test_a_process_that_does_not_know_the_pipeline_keeps_to_the_number(make_app: Make) -> None:
    held, stranger = Held(make_app(), 2), make_app()
    runs = [held.held.trigger(n) for n in (1, 2, 3)]
    drain(stranger)
    assert statuses(runs) == "running running pending"


POINTS = [f"admit.{n}" for n in range(1, 7)] + ["admit.commit", "admit.committed", "start.1", "start.commit"]


@pytest.mark.parametrize("point", POINTS)
def test_a_process_that_dies_between_an_end_and_the_next(app: Penstock, make_app: Make, point: str) -> None:
    runs = Held(app, 1).trigger(1, 2, 3)
    runs[0].signal("go", "on")
    with crash_at(point) as crash:
        drain(app)
    assert crash.crashed
    after = Held(make_app(), 1)
    drain(after.app)
    assert statuses(runs) == "succeeded running pending"
    assert after.begun == [2]


def test_an_end_that_no_timer_tells_of_is_found_in_the_next_round(app: Penstock) -> None:
    runs = Held(app, 1).trigger(1, 2)
    app.database.in_transaction(
        lambda tx: tx.run(
            "UPDATE {runs} SET status = 'failed', ended_at = {now} WHERE id = :id", id=runs[0].id
        )
    )
    drain(app)
    assert runs[1].status == "pending"
    app.engine.chores.admit_waiting()
    drain(app)
    assert runs[1].status == "running"


def test_old_runs_leave_nothing_behind(app: Penstock) -> None:
    held = Held(app, 1)
    runs = held.trigger(1, 2)
    for run in runs:
        go(app, run)
    travel(app, 1000)
    app.engine.chores.prune(10)
    assert rows(app, "SELECT COUNT(*) FROM {run_places}") == [(0,)]


def test_a_flow_has_it_too_and_what_it_may_be(app: Penstock) -> None:
    @app.task(name="one")
    def one(n: int) -> int:
        return n

    flow = app.flow("flow", max_running=1).start(one)
    assert flow.definition.max_running == 1
    for wrong in (0, -1, "3", 1.5, True):
        with pytest.raises(DefinitionError, match="max_running"):
            app.flow("wrong", max_running=wrong)  # type: ignore[arg-type]


def test_an_empty_line_costs_nothing(app: Penstock) -> None:
    app.migrate()
    assert app.database.read(run_line.waited_for) == []
