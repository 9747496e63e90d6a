"""pipelines/maintenance/repair, pipelines/maintenance/retention: Runs that nothing would move any more are found and
mended; old runs go, but not what others need.
"""

from functools import partial

from penstock import Penstock
from penstock.database.transaction import Transaction
from penstock.pipelines.lifecycle import cancel
from penstock.pipelines.maintenance import repair
from penstock.telemetry.events import RunRepaired
from penstock.testing import drain, travel
from penstock.values.ids import FIRST_ID

DAY = 86_400


def pipeline(app: Penstock, name: str = "one") -> object:
    @app.task(name=f"step.{name}", retries=0)
    def step(fail: bool) -> str:
        if fail:
            raise ValueError("no")
        return "done"

    @app.pipeline(name=name)
    def one(fail: bool = False) -> object:
        return step(fail)

    return one


def count(tx: Transaction, table: str) -> int:
    row = tx.row(f"SELECT COUNT(*) FROM {{{table}}}")
    return int(row[0]) if row is not None else 0


def test_an_available_step_without_a_place_in_the_queue_gets_one(app: Penstock) -> None:
    run = pipeline(app).trigger()  # type: ignore[attr-defined]
    app.database.in_transaction(lambda tx: tx.run("DELETE FROM {availabilities}"))
    assert drain(app) == 0
    told: list[RunRepaired] = []
    app.events.on(RunRepaired, told.append)
    assert [found.run for found in app.engine.chores.repair(age=-1)] == [run.id]
    drain(app)
    assert run.result(1) == "done"
    assert [event.run_id for event in told] == [run.id]


def test_a_run_whose_steps_have_all_ended_is_ended(app: Penstock) -> None:
    run = pipeline(app).trigger()  # type: ignore[attr-defined]

    def lose_the_end(tx: Transaction) -> None:
        tx.run("DELETE FROM {availabilities}")
        tx.run("UPDATE {job_states} SET status = 'succeeded', finished_at = {now}")

    app.database.in_transaction(lose_the_end)
    assert run.status == "running"
    app.engine.chores.repair(age=-1)
    assert run.status == "succeeded"


def test_healthy_runs_are_left_alone(app: Penstock) -> None:
    waiting = pipeline(app).options(delay=5).trigger()  # type: ignore[attr-defined]
    running = pipeline(app).trigger()  # type: ignore[attr-defined]
    paused = pipeline(app).trigger()  # type: ignore[attr-defined]
    paused.pause()
    drain(app)
    assert app.engine.chores.repair(age=-1) == []
    assert (waiting.status, running.status, paused.status) == ("pending", "succeeded", "paused")


def test_steps_of_a_run_that_was_just_resumed_are_left_to_the_resume(app: Penstock) -> None:
    """It gives them their places in a transaction of its own, which a timer stands for until then."""
    run = pipeline(app).trigger()  # type: ignore[attr-defined]
    run.pause()
    drain(app)
    app.database.in_transaction(cancel.resume, run.id)
    assert app.engine.chores.repair(age=-1) == []
    drain(app)
    assert run.result(1) == "done"


def test_a_run_that_has_ended_since_it_was_looked_for_is_left_alone(app: Penstock) -> None:
    run = pipeline(app).trigger()  # type: ignore[attr-defined]
    found = app.database.read(repair.look, FIRST_ID, 10, -1)
    drain(app)
    assert found == [run.id]
    assert app.database.in_transaction(partial(repair.repair, app.engine.engine_state), run.id) is None
    assert [act.act for act in app.audit()] == []


def test_old_runs_go_with_everything_that_is_theirs(app: Penstock) -> None:
    one = pipeline(app)
    old = one.options(key="march").trigger()  # type: ignore[attr-defined]
    drain(app)
    with travel(app, 15 * DAY):
        young = one.trigger()  # type: ignore[attr-defined]
        drain(app)
        assert app.engine.chores.prune() == 1
        assert [run.id for run in app.runs()] == [young.id]
        again = one.options(key="march").trigger()  # type: ignore[attr-defined]
        assert again.id != old.id, "the key is free again"
        for table in ("jobs", "job_states", "executions"):
            assert app.database.read(count, table) <= 2


def test_a_run_stays_while_what_follows_it_or_was_revived_from_it_has_not_ended(app: Penstock) -> None:
    one = pipeline(app)
    followed, other = one.trigger(), one.options(delay=60 * DAY).trigger()  # type: ignore[attr-defined]
    followed.then(one)
    other.then(one)
    failed = one.trigger(True)  # type: ignore[attr-defined]
    drain(app)
    revived = failed.revive()
    revived.pause()
    with travel(app, 30 * DAY):
        app.engine.chores.prune()
        left = {run.id for run in app.runs()}
        assert {failed.id, revived.id, other.id} <= left
        assert followed.id not in left
