"""pipelines/lifecycle/reminders, values/resume_token: a signed token gives one signal, once, in time; forged, late
or spent it changes nothing, and says why.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from penstock import Penstock, wait_for
from penstock.errors import (
    ActionRefused,
    ConfigurationError,
    RunOver,
    TokenError,
    TokenExpired,
    TokenForged,
    TokenSpent,
)
from penstock.pipelines.lifecycle.reminders import Use
from penstock.pipelines.run import Run
from penstock.telemetry import fault_points
from penstock.testing import crash_at, drain, travel
from penstock.values.resume_token import fingerprint
from tests.conformance.rows import rows
from tests.waiting import eventually

SECRET, OTHER = "a secret of sixteen and more", "another secret of no less"
TABLES = ("signals", "element_signals", "audits", "timers", "job_states", "runs", "executions")
MakeApp = Callable[..., Penstock]


@pytest.fixture
def app(make_app: MakeApp) -> Penstock:
    return declared(make_app(secret=SECRET))


def declared(app: Penstock) -> Penstock:
    @app.task(name="same")
    def same(value: Any) -> Any:
        return value

    @app.pipeline(name="approval")
    def approval() -> Any:
        return same(wait_for("approve", timeout=3600, default="no"))

    @app.pipeline(name="two")
    def two() -> Any:
        return [wait_for("approve"), wait_for("later")]

    @app.pipeline(name="elements")
    def elements() -> Any:
        each = same.map([1, 2, 3])
        return wait_for("approve", after=[each]).collect()

    return app


def waits(app: Penstock, pipeline: str = "approval") -> Run:
    run = app.pipelines[pipeline].trigger()
    drain(app)
    return run


def everything(app: Penstock) -> dict[str, Any]:
    return {table: sorted(map(repr, rows(app, f"SELECT * FROM {{{table}}}"))) for table in TABLES}


def refused(app: Penstock, token: str, error: type[TokenError], words: str) -> None:
    before = everything(app)
    with pytest.raises(error, match=words) as raised:
        app.resume(token, "yes")
    assert type(raised.value) is error
    assert everything(app) == before, "nothing is changed"


def test_a_token_gives_its_signal_and_the_trail_says_who_did(app: Penstock) -> None:
    run = waits(app)
    token = run.token("approve")
    with app.acting(by="ann@example.com", why="looks good"):
        assert app.resume(token, {"answer": "yes"}) == run
    drain(app)
    assert run.result(0) == {"answer": "yes"}
    (act,) = app.audit(run)
    assert (act.act, act.by, act.why) == ("signal", "ann@example.com", "looks good")
    assert act.detail == {"signal": "approve", "token": fingerprint(token)}
    assert token not in str(rows(app, "SELECT * FROM {audits}"))


def test_a_token_may_come_before_the_step_that_waits(app: Penstock) -> None:
    run = app.pipelines["approval"].options(delay=60).trigger()
    app.resume(run.token("approve"), "early")
    with travel(app, 61):
        drain(app)
    assert run.result(0) == "early"


def test_async_callers_have_the_same(app: Penstock) -> None:
    run = waits(app)

    async def main() -> Run:
        token = await run.token_async("approve", 60)
        async with app.acting(by="ann"):
            return await app.resume_async(token, "yes")

    assert asyncio.run(main()) == run
    drain(app)
    assert run.result(0) == "yes"
    assert app.audit(run)[0].by == "ann"


def test_a_forged_token_changes_nothing(app: Penstock, make_app: MakeApp) -> None:
    run = waits(app)
    token = run.token("approve")
    head, body, signature = token.split(".")
    for wrong in (
        f"{head}.{body}.{signature[::-1]}",
        f"{head}.{body}A.{signature}",
        f"ps2.{body}.{signature}",
        "",
    ):
        refused(app, wrong, TokenForged, "not made by this installation")
    stranger = make_app(secret=OTHER)
    refused(app, stranger.run(run.id).token("approve"), TokenForged, "run.token")


def test_a_token_of_one_wait_is_none_of_another(app: Penstock) -> None:
    first, second = waits(app, "two"), waits(app, "two")
    app.resume(first.token("later"), 1)
    drain(app)
    assert [step.status for step in first.steps()] == ["waiting", "succeeded"]
    assert {step.status for step in second.steps()} == {"waiting"}


def test_a_token_expires_by_the_clock_of_the_database(app: Penstock) -> None:
    run = waits(app)
    token = run.token("approve", expires=60)
    with travel(app, 61):
        refused(app, token, TokenExpired, "has expired")
    app.resume(token, "in time")
    drain(app)
    assert run.result(0) == "in time"


def test_a_token_for_a_run_that_has_ended_or_is_about_to_changes_nothing(app: Penstock) -> None:
    run, about_to = waits(app, "two"), waits(app, "two")
    tokens = [each.token("approve") for each in (run, about_to)]
    run.cancel()
    drain(app)
    refused(app, tokens[0], RunOver, "is cancelled: nothing in it waits")
    unreached = app.pipelines["two"].options(delay=60).trigger()
    token = unreached.token("approve")
    unreached.cancel()
    refused(app, token, RunOver, "is cancelled: nothing in it waits")
    app.database.in_transaction(
        lambda tx: tx.run(
            "UPDATE {runs} SET mode = 'cancelled', status = 'cancelling' WHERE id = :id", id=about_to.id
        )
    )
    refused(app, tokens[1], RunOver, "is cancelling")


def test_a_token_for_a_run_that_was_pruned_changes_nothing(app: Penstock) -> None:
    run = waits(app)
    token = run.token("approve", expires=10**8)
    run.signal("approve", 1)
    drain(app)
    with travel(app, 86_400 * 30):
        app.engine.chores.prune(86_400)
        refused(app, token, RunOver, "was pruned")


def test_a_token_for_what_was_answered_changes_nothing(app: Penstock) -> None:
    by_signal, by_token, by_time = waits(app, "two"), waits(app, "two"), waits(app)
    tokens = [run.token("approve", expires=10**6) for run in (by_signal, by_token, by_time)]
    by_signal.signal("approve", "first")
    app.resume(tokens[1], "first")
    with travel(app, 3700):
        drain(app)
        for token in tokens:
            refused(app, token, TokenSpent, "answered before; app.audit")
    assert by_time.result(0) == "no"
    assert [step.output for run in (by_signal, by_token) for step in run.steps()[:1]] == ["first"] * 2


def test_of_many_who_use_it_at_once_one_does(app: Penstock) -> None:
    run = waits(app)
    token = run.token("approve")

    def use(number: int) -> int | None:
        try:
            app.resume(token, number)
        except TokenSpent:
            return None
        return number

    with ThreadPoolExecutor(8) as threads:
        done = [number for number in threads.map(use, range(8)) if number is not None]
    drain(app)
    assert [run.result(0)] == done
    assert len(app.audit(run)) == 1


def test_a_lost_answer_is_not_taken_for_that_of_another(app: Penstock) -> None:
    run = waits(app)
    use = Use(app.engine.engine_state, run.token("approve"), '"yes"')
    app.database.in_transaction(use)
    app.database.in_transaction(use)
    assert len(app.audit(run)) == 1


def test_killed_anywhere_signal_and_trail_are_both_there_or_neither_and_it_is_delivered(
    app: Penstock,
) -> None:
    reached: list[str] = []
    with fault_points.watching(reached.append):
        app.resume(waits(app).token("approve"), 0)
    mine = [
        point for point in dict.fromkeys(reached) if point.partition(".")[0] in ("resume_token", "deliver")
    ]
    assert {"resume_token.commit", "resume_token.committed", "deliver.1"} <= set(mine)
    for point in mine:
        run = waits(app)
        token = run.token("approve")
        with crash_at(point) as crash:
            app.resume(token, point)
        assert crash.crashed, point
        given = rows(app, "SELECT 1 FROM {signals} WHERE run_id = :run", run=run.id)
        assert len(app.audit(run)) == len(given), point
        if not given:
            app.resume(token, point)
        drain(app)
        assert run.result(0) == point
        assert len(app.audit(run)) == 1


def test_a_timeout_that_is_overtaken_by_a_token_takes_everything_back(
    app: Penstock, database_kind: str
) -> None:
    """It has ended the step and not committed; the token is taken meanwhile, and so it counts."""
    if database_kind == "sqlite":
        pytest.skip("there is one writer at a time")
    run = waits(app)
    token = run.token("approve", expires=10**6)
    held, go_on = threading.Event(), threading.Event()
    results: list[object] = []

    def time_out() -> None:
        results.append(app.engine.chores.take_timer())

    late = threading.Thread(target=time_out)

    def stop(point: str) -> None:
        if point == "confirm_timeout.1" and threading.current_thread() is late:
            held.set()
            go_on.wait(60)

    with travel(app, 3700), fault_points.watching(stop):
        user = threading.Thread(target=lambda: app.resume(token, "yes"))
        try:
            late.start()
            assert held.wait(60)
            user.start()
            eventually(lambda: rows(app, "SELECT 1 FROM {signals} WHERE run_id = :run", run=run.id))
        finally:
            go_on.set()
            late.join(60)
            user.join(60)
        drain(app)
    assert results == [True]
    assert run.result(0) == "yes"
    assert sum(step.key == "approve" for step in run.steps()) == 1
    assert len(run.steps()[0].attempts()) == 1


def test_a_token_for_one_element_answers_that_one(app: Penstock) -> None:
    run = waits(app, "elements")
    second, all_of_them = run.token("approve", path=(1,)), run.token("approve")
    app.resume(second, "two")
    drain(app)
    assert sorted(
        step.path for step in run.steps() if step.key == "approve" and step.status == "waiting"
    ) == [
        (0,),
        (2,),
    ]
    refused(app, second, TokenSpent, "answered before")
    app.resume(all_of_them, "all")
    drain(app)
    assert run.result(0) == ["all", "two", "all"]
    refused(app, run.token("approve", path=(0,)), TokenSpent, "answered before")


def test_what_was_given_to_an_element_is_inherited_and_goes_with_its_run(app: Penstock) -> None:
    broken = [True]

    @app.task(name="breaks", retries=0)
    def breaks(value: Any) -> Any:
        if broken:
            raise ValueError("first time")
        return value

    @app.pipeline(name="breaking")
    def breaking() -> Any:
        each = app.tasks["same"].map([1, 2])
        return breaks(wait_for("approve", after=[each]).collect())

    run = waits(app, "breaking")
    for path in ([0], [1]):
        assert run.signal("approve", path[0], path=path)
    drain(app)
    assert run.status == "halted"
    broken.clear()
    again = run.revive()
    drain(app)
    assert again.result(0) == [0, 1]
    with travel(app, 86_400 * 30):
        app.engine.chores.prune(86_400)
        assert rows(app, "SELECT * FROM {element_signals}") == []


def test_a_signal_for_an_element_may_come_before_it_waits(app: Penstock) -> None:
    run = app.pipelines["elements"].options(delay=60).trigger()
    assert run.signal("approve", "early", path=(2,))
    with travel(app, 61):
        drain(app)
        (done,) = [step for step in run.steps() if step.key == "approve" and step.status == "succeeded"]
        assert (done.path, done.output) == ((2,), "early")


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("aprove", {}, "no step of run .* waits for 'aprove'; it waits for approve.*Did you mean 'approve'"),
        ("approve", {"path": (1, 2)}, "inside 1 expand,"),
        ("approve", {"path": "1"}, "give the index in each expand"),
        ("approve", {"path": (-1,)}, "give the index in each expand"),
    ],
)
def test_a_token_for_what_no_step_waits_for_is_not_made(
    app: Penstock, name: str, options: Any, words: str
) -> None:
    with pytest.raises(ActionRefused, match=words):
        waits(app, "elements").token(name, **options)


@pytest.mark.parametrize("expires", [0, -1, "soon", None])
def test_a_token_expires_some_time(app: Penstock, expires: Any) -> None:
    with pytest.raises(ConfigurationError, match="expires="):
        waits(app).token("approve", expires)


def test_without_a_secret_there_are_no_tokens(app: Penstock, make_app: MakeApp) -> None:
    run, bare = waits(app), make_app()
    token = run.token("approve")
    for attempt in (lambda: bare.run(run.id).token("approve"), lambda: bare.resume(token, 1)):
        with pytest.raises(ConfigurationError, match="PENSTOCK_SECRET"):
            attempt()
    assert run.signal("approve", "without")


def test_secrets_are_replaced_without_breaking_what_was_sent(app: Penstock, make_app: MakeApp) -> None:
    run = waits(app, "two")
    before = run.token("approve")
    both, new = declared(make_app(secret=[OTHER, SECRET])), declared(make_app(secret=OTHER))
    after = both.run(run.id).token("later")
    both.resume(before, 1)
    refused(new, before, TokenForged, "keep the old one")
    new.resume(after, 2)
    drain(new)
    assert run.result(0) == [1, 2]
