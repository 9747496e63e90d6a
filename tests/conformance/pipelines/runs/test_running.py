"""pipelines/pipeline, pipelines/run: Pipelines as users write them, from trigger to result, on every database."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import penstock
from penstock import Penstock, flow, switch, wait_for
from penstock.errors import (
    ActionRefused,
    ArgumentError,
    ConfigurationError,
    OverwriteError,
    ResultTimeout,
    RunFailed,
)
from penstock.pipelines.lifecycle import signals
from penstock.telemetry.events import RunEnded
from penstock.testing import drain, inline, travel
from penstock.values.status import JobStatus, Reason, RunStatus
from tests.conformance.rows import count


@dataclass
class User:
    id: int
    name: str = "ann"


@pytest.fixture
def shop(app: Penstock) -> Penstock:
    @app.task(name="query_users")
    def query_users(days: int) -> list[int]:
        return list(range(days))

    @app.task(name="load_user")
    def load_user(id: int) -> User:
        return User(id)

    @app.task(name="fetch_a")
    def fetch_a(user: User) -> int:
        return user.id * 10

    @app.task(name="fetch_b")
    def fetch_b(user: User) -> int:
        return user.id * 100

    @app.task(name="collate")
    def collate(a: int, b: int) -> int:
        return a + b

    @app.task(name="report")
    def report(numbers: list[int]) -> list[int]:
        return numbers

    @app.task(name="echo")
    def echo(value: Any = None) -> Any:
        return value

    @app.task(name="boom", retries=0)
    def boom(value: Any = None) -> Any:
        raise ValueError(f"boom {value}")

    return app


def task(app: Penstock, name: str) -> Any:
    return app.tasks[name]


def enrich(app: Penstock, **options: Any) -> Any:
    query_users, load_user, fetch_a = (task(app, name) for name in ("query_users", "load_user", "fetch_a"))
    fetch_b, collate, report = (task(app, name) for name in ("fetch_b", "collate", "report"))

    @app.pipeline(name="enrich", **options)
    def enrich(days: int) -> Any:
        user = load_user.map(query_users(days))
        return report(collate(fetch_a(user), fetch_b(user)).collect())

    return enrich


def statuses(run: Any) -> dict[str, str]:
    return {f"{step.key}{list(step.path) or ''}": step.status.value for step in run.steps()}


@pytest.mark.parametrize("width", [0, 1, 3])
def test_the_pipeline_of_the_readme(shop: Penstock, width: int) -> None:
    run = enrich(shop).trigger(width)
    assert statuses(run) == {"query_users": "available"}
    drain(shop)
    assert run.status is RunStatus.SUCCEEDED
    assert run.result(0) == [110 * id for id in range(width)]
    assert len(run.steps()) == 2 + 4 * width


def test_both_spellings_run_alike(shop: Penstock) -> None:
    def t(name: str) -> Any:
        return task(shop, name)

    fluent = (
        shop.flow("fluent")
        .start(t("query_users"))
        .expand(t("load_user"))
        .divide(t("fetch_a"), flow(t("fetch_b")).chain(t("echo")))
        .combine(t("collate"))
        .collapse(t("report"))
    )
    run = fluent.trigger(3)
    drain(shop)
    assert run.result(0) == [0, 110, 220]


def test_falsy_values_and_dicts_are_elements(shop: Penstock) -> None:
    echo = task(shop, "echo")

    @shop.pipeline(name="each")
    def each(values: Any) -> Any:
        return echo.map(values).collect()

    for given, expected in (
        ([None, False, 0], [None, False, 0]),
        ({"a": 1, "b": None}, [["a", 1], ["b", None]]),
    ):
        run = each.trigger(given)
        drain(shop)
        assert run.result(0) == expected


def test_nested_expands_keep_their_order_and_empty_ones_collapse_once(shop: Penstock) -> None:
    echo, report = task(shop, "echo"), task(shop, "report")

    @shop.pipeline(name="nested")
    def nested(rows: list[list[int]]) -> Any:
        row = echo.map(rows)
        return echo(report(echo.map(row).collect()).collect())

    run = nested.trigger([[1, 2], [], [3]])
    drain(shop)
    assert run.result(0) == [[1, 2], [], [3]]


def test_exactly_one_arm_runs(shop: Penstock) -> None:
    echo, report, boom = (task(shop, name) for name in ("echo", "report", "boom"))

    @shop.pipeline(name="branch")
    def branch(kind: str) -> Any:
        return echo(switch(echo.options(key="kind")(kind), {"x": report, "y": None}, otherwise=boom))

    run = branch.trigger("y")
    drain(shop)
    assert run.result(0) == "y"
    assert statuses(run) == {"kind": "succeeded", "report": "skipped", "boom": "skipped", "echo": "succeeded"}


def test_a_value_that_cannot_be_expanded_halts_and_says_its_type(shop: Penstock) -> None:
    echo = task(shop, "echo")

    @shop.pipeline(name="wrong")
    def wrong(value: Any) -> Any:
        return echo.map(value).collect()

    run = wrong.trigger(7)
    drain(shop)
    assert run.status is RunStatus.HALTED
    assert run.reasons == [Reason.TRANSITION_INVALID]
    (step,) = run.steps()
    assert step.error is not None
    assert "int" in step.error
    with pytest.raises(RunFailed, match="transition_invalid"):
        run.result(0)


def test_max_fanout_of_the_pipeline_and_of_the_app(shop: Penstock) -> None:
    run = enrich(shop, max_fanout=2).trigger(3)
    drain(shop)
    assert (run.status, run.reasons) == (RunStatus.HALTED, [Reason.MAX_FANOUT_EXCEEDED])


@pytest.mark.parametrize(
    ("strategy", "status", "after"),
    [
        ("halt", RunStatus.HALTED, {"other": "skipped", "behind": "skipped"}),
        ("continue", RunStatus.FAILED, {"other": "succeeded", "behind": "skipped"}),
        ("ignore", RunStatus.FAILED, {"other": "succeeded", "behind": "succeeded"}),
    ],
)
def test_failure_strategies(shop: Penstock, strategy: str, status: RunStatus, after: dict[str, str]) -> None:
    echo, boom = task(shop, "echo"), task(shop, "boom")

    @shop.pipeline(name="failing", on_failure=strategy)
    def failing() -> Any:
        bad = boom.options(priority=1)(1)
        return [echo.options(key="behind")(bad), echo.options(key="other")(2)]

    run = failing.trigger()
    drain(shop)
    assert run.status is status
    assert run.reasons == [Reason.RETRIES_EXHAUSTED]
    assert {key: found for key, found in statuses(run).items() if key != "boom"} == after
    failed = next(step for step in run.steps() if step.key == "boom")
    assert failed.error == "ValueError: boom 1"
    assert len(failed.attempts()) == 1


def test_an_optional_step_does_not_fail_the_run(shop: Penstock) -> None:
    echo, boom = task(shop, "echo"), task(shop, "boom")

    @shop.pipeline(name="optional")
    def optional() -> Any:
        return echo(boom.options(optional=True)())

    run = optional.trigger()
    drain(shop)
    assert (run.status, run.reasons, run.result(0)) == (RunStatus.SUCCEEDED, [], None)


def test_a_halt_ends_what_is_delayed_or_waits(shop: Penstock) -> None:
    echo, boom = task(shop, "echo"), task(shop, "boom")

    @shop.pipeline(name="halting")
    def halting() -> Any:
        boom()
        echo.options(delay=3600)(1)
        return wait_for("never")

    run = halting.trigger()
    drain(shop)
    assert run.status is RunStatus.HALTED
    assert statuses(run) == {"boom": "failed", "echo": "skipped", "never": "skipped"}


def test_stop_run_ends_early_and_well(shop: Penstock) -> None:
    echo = task(shop, "echo")

    @shop.task(name="enough")
    def enough(value: int) -> str:
        penstock.stop_run({"enough": value})

    @shop.pipeline(name="stopping")
    def stopping() -> Any:
        found = enough(5)
        echo.options(delay=60, key="late")(1)
        return echo(found)

    run = stopping.trigger()
    drain(shop)
    assert run.status is RunStatus.SUCCEEDED
    assert run.result(0) == {"enough": 5}
    assert statuses(run) == {"enough": "succeeded", "late": "skipped", "echo": "skipped"}


def test_a_signal_ends_a_wait_whenever_it_comes(shop: Penstock) -> None:
    echo = task(shop, "echo")

    @shop.pipeline(name="approval")
    def approval() -> Any:
        return echo([wait_for("approve"), wait_for("second", after=[echo.options(key="first")(1)])])

    run = approval.trigger()
    with pytest.raises(ActionRefused, match=r"waits for 'aprove'; it waits for approve, second.*'approve'"):
        run.signal("aprove", "a word that nobody waits for")
    assert run.signal("second", "early") is True
    drain(shop)
    assert statuses(run)["approve"] == "waiting"
    assert statuses(run)["second"] == "succeeded"
    assert run.signal("approve", {"by": "ann"}) is True
    assert run.signal("approve", {"by": "bob"}) is False
    drain(shop)
    assert run.result(0) == [{"by": "ann"}, "early"]
    with pytest.raises(ActionRefused):
        run.signal("other")


def test_a_wait_times_out_with_its_default_or_fails(shop: Penstock) -> None:
    @shop.pipeline(name="patient")
    def patient() -> Any:
        return wait_for("approve", timeout=3600, default="no")

    @shop.pipeline(name="impatient")
    def impatient() -> Any:
        return wait_for("approve", timeout=10)

    one, two = patient.trigger(), impatient.trigger()
    drain(shop)
    assert one.status is two.status is RunStatus.RUNNING
    with travel(shop, 11):
        drain(shop)
        assert (two.status, two.reasons) == (RunStatus.HALTED, [Reason.WAIT_TIMED_OUT])
        assert one.status is RunStatus.RUNNING
    with travel(shop, 3601):
        drain(shop)
        assert one.result(0) == "no"


def test_a_child_run_is_a_step(shop: Penstock) -> None:
    echo, boom = task(shop, "echo"), task(shop, "boom")

    @shop.pipeline(name="child")
    def child(value: int, more: int = 5) -> Any:
        return echo([value, more])

    @shop.pipeline(name="broken_child")
    def broken() -> Any:
        return boom()

    @shop.pipeline(name="parent")
    def parent() -> Any:
        return [echo(child(1)), child.map([1, 2]).collect()]

    run = parent.trigger()
    drain(shop)
    assert run.result(0) == [[1, 5], [[1, 5], [2, 5]]]

    @shop.pipeline(name="sad_parent")
    def sad() -> Any:
        return echo(broken())

    run = sad.trigger()
    drain(shop)
    assert (run.status, run.reasons) == (RunStatus.HALTED, [Reason.CHILD_RUN_FAILED])


def test_a_deadline_halts_the_run(shop: Penstock) -> None:
    @shop.pipeline(name="slow", deadline=60)
    def slow() -> Any:
        return wait_for("never")

    run = slow.trigger()
    drain(shop)
    with travel(shop, 61):
        drain(shop)
        assert (run.status, run.reasons) == (RunStatus.HALTED, [Reason.DEADLINE_EXCEEDED])


def test_callbacks_are_told_once(shop: Penstock) -> None:
    told: list[Any] = []
    echo, boom = task(shop, "echo"), task(shop, "boom")

    @shop.task(name="by_name")
    def by_name(run_id: str, status: str, reasons: list[str]) -> None:
        told.append(("by_name", run_id, status, reasons))

    @shop.task(name="by_dict")
    def by_dict(event: dict[str, Any]) -> None:
        told.append(("by_dict", event["run_id"], event["pipeline"]))

    @shop.pipeline(name="good", on_success=by_name, on_halt=by_dict, on_complete=by_dict)
    def good() -> Any:
        return echo(1)

    @shop.pipeline(name="bad", on_success=by_name, on_halt=by_dict)
    def bad() -> Any:
        return boom(1)

    run = good.trigger()
    drain(shop)
    assert sorted(told) == [("by_dict", run.id, "good"), ("by_name", run.id, "succeeded", [])]
    told.clear()
    run = bad.trigger()
    drain(shop)
    assert told == [("by_dict", run.id, "bad")]


def test_context_is_write_once_and_a_retry_may_write_again(shop: Penstock) -> None:
    @shop.task(name="noting", retries=penstock.Retry(max=2, delay=0))
    def noting() -> int:
        context = penstock.current().context
        context["cursor"] = penstock.current().attempt
        total = context.increment("seen")
        if penstock.current().attempt < 3:
            raise ValueError("again")
        return int(total)

    @shop.pipeline(name="noted")
    def noted() -> Any:
        return noting()

    run = noted.trigger()
    drain(shop)
    assert run.result(0) == 3
    assert run.context["cursor"] == 3
    with pytest.raises(OverwriteError):
        run.context["cursor"] = 9
    run.context.set("cursor", 9, overwrite=True)
    assert run.context.compare_and_set("cursor", 9, 10) is True
    assert run.context.compare_and_set("cursor", 9, 11) is False
    assert run.context.compare_and_set("fresh", None, 1) is True
    assert run.context.compare_and_set("absent", 5, 1) is False
    assert "absent" not in run.context
    assert run.context.get("absent", 7) == 7
    assert run.context.all() == {"cursor": 10, "seen": 3, "fresh": 1}


def test_a_key_names_one_run(shop: Penstock) -> None:
    pipeline = enrich(shop).options(key="2026-11")
    one, two = pipeline.trigger(1), pipeline.trigger(2)
    assert one == two
    assert shop.runs(key="2026-11") == [one]
    assert count(shop, "runs") == 1
    with pytest.raises(ConfigurationError, match="queue"):
        enrich(shop).options(queue="mail").trigger(1)


def test_a_delayed_run_starts_when_it_is_due(shop: Penstock) -> None:
    run = enrich(shop).options(delay=60).trigger(1)
    drain(shop)
    assert run.status is RunStatus.PENDING
    assert run.steps() == []
    with travel(shop, 61):
        drain(shop)
        assert run.result(0) == [0]


def test_a_run_exists_if_and_only_if_the_callers_transaction_commits(shop: Penstock) -> None:
    pipeline = enrich(shop)
    shop.prepare()
    with shop.database.engine.connect() as connection:
        run = pipeline.options(connection=connection).trigger(2)
        connection.rollback()
    assert shop.runs() == []
    with shop.database.engine.begin() as connection:
        run = pipeline.options(connection=connection).trigger(2)
    drain(shop)
    assert run.result(0) == [0, 110]


def test_arguments_are_checked_at_the_trigger(shop: Penstock) -> None:
    with pytest.raises(ArgumentError):
        enrich(shop).trigger("many")
    assert count(shop, "runs") == 0


def test_results_of_tasks_are_typed(shop: Penstock) -> None:
    load_user = task(shop, "load_user")

    @shop.pipeline(name="one")
    def one() -> Any:
        return load_user(7)

    @shop.pipeline(name="many")
    def many() -> Any:
        return load_user.map([1, 2]).collect()

    first, second = one.trigger(), many.trigger()
    drain(shop)
    assert first.result(0) == User(7)
    assert second.result(0) == [User(1), User(2)]


def test_inline_runs_the_whole_pipeline(shop: Penstock) -> None:
    with inline(shop):
        run = enrich(shop).trigger(2)
        assert run.result(0) == [0, 110]


def test_async_twins(shop: Penstock) -> None:
    async def main() -> None:
        run = await enrich(shop).trigger_async(2)
        with pytest.raises(ResultTimeout):
            await run.result_async(0.01)
        assert await run.status_async() is RunStatus.RUNNING
        await asyncio.to_thread(drain, shop)
        assert await run.result_async(1) == [0, 110]
        assert len(await run.steps_async()) == 10
        assert (await shop.runs_async(pipeline="enrich", status="succeeded"))[0] == run

    asyncio.run(main())


def test_the_graph_counts_steps(shop: Penstock) -> None:
    run = enrich(shop).trigger(2)
    drain(shop)
    nodes = {node.key: node for node in run.graph().nodes}
    assert nodes["collate"].counts == {JobStatus.SUCCEEDED: 2}
    assert nodes["collate"].after == ("fetch_a", "fetch_b")
    assert "collate" in str(run.graph())


def test_a_collapse_may_take_an_iterator(shop: Penstock) -> None:
    load_user, echo = task(shop, "load_user"), task(shop, "echo")
    seen: list[str] = []

    @shop.task(name="fold")
    def fold(users: Iterator[User], more: Iterable[int], rest: list[Any]) -> list[int]:
        seen.append(type(users).__name__)
        first = next(users)
        return [first.id, sum(user.id for user in users), sum(more), sum(more), len(rest)]

    @shop.pipeline(name="streaming")
    def streaming(ids: list[int]) -> Any:
        users, numbers = load_user.map(ids).collect(), echo.map(ids).collect()
        return fold(users, rest=numbers, more=echo.map(ids).collect())

    run = streaming.trigger([3, 4, 5])
    drain(shop)
    assert run.result(0) == [3, 9, 12, 12, 3]
    assert seen == ["map"]


def test_a_halt_in_the_middle_of_a_large_expand_ends_all_of_it(make_app: Any) -> None:
    app = make_app(inline_fanout=3)
    app.engine.chores.advancer.chunk = 4

    @app.task(name="source")
    def source() -> list[int]:
        return list(range(10))

    @app.task(name="element", retries=0)
    def element(number: int) -> int:
        if number == 2:
            raise ValueError("two")
        return number

    @app.pipeline(name="wide")
    def wide() -> Any:
        return element.map(source()).collect()

    run = wide.trigger()
    drain(app)
    assert run.status is RunStatus.HALTED
    found = Counter(step.status for step in run.steps() if step.key == "element")
    assert found == {JobStatus.SUCCEEDED: 2, JobStatus.FAILED: 1, JobStatus.SKIPPED: 7}


def test_a_large_expand_with_a_delay_waits_for_it(make_app: Any) -> None:
    app = make_app(inline_fanout=3)
    app.engine.chores.advancer.chunk = 4

    @app.task(name="element")
    def element(number: int) -> int:
        return number

    @app.pipeline(name="wide")
    def wide(numbers: list[int]) -> Any:
        return element.options(delay=60).map(numbers).collect()

    run = wide.trigger(list(range(9)))
    drain(app)
    assert {step.status for step in run.steps()} == {JobStatus.SCHEDULED}
    with travel(app, 61):
        drain(app)
        assert run.result(0) == list(range(9))


def test_a_failed_step_is_not_retried_behind_the_back_of_its_run(shop: Penstock) -> None:
    boom, echo = task(shop, "boom"), task(shop, "echo")

    @shop.pipeline(name="sad", on_failure="continue")
    def sad() -> Any:
        return echo(boom(1))

    run = sad.trigger()
    drain(shop)
    step = next(step for step in run.steps() if step.key == "boom")
    assert shop.job(step.id).retry() is False
    assert drain(shop) == 0


def test_the_end_of_a_run_is_an_event(shop: Penstock) -> None:
    heard: list[RunEnded] = []
    shop.events.on(RunEnded, heard.append)
    run = enrich(shop).trigger(1)
    drain(shop)
    assert heard == [RunEnded(run.id, "enrich", "succeeded", ())]


def test_a_generator_is_expanded_like_a_list(shop: Penstock) -> None:
    echo = task(shop, "echo")

    @shop.task(name="counting")
    def counting(count: int) -> Iterator[int]:
        yield from range(count)

    @shop.pipeline(name="generated")
    def generated(count: int) -> Any:
        return echo.map(counting(count)).collect()

    run = generated.trigger(3)
    drain(shop)
    assert run.result(0) == [0, 1, 2]


def test_a_missing_task_leaves_the_step_for_a_worker_that_knows_it(make_app: Any) -> None:
    old, new = make_app(), make_app()

    for app in (old, new):

        @app.task(name="known")
        def known(value: int) -> int:
            return value

    @new.task(name="fresh", queue="special")
    def fresh(value: int) -> int:
        return value + 1

    @new.pipeline(name="rolling")
    def rolling() -> Any:
        return known.options(key="last")(fresh(known(1)))

    run = rolling.trigger()
    drain(old)
    assert statuses(run) == {"known": "succeeded", "fresh": "available"}
    drain(new)
    assert run.result(0) == 2


def test_a_signal_given_in_time_counts_though_no_worker_came_to_deliver_it(shop: Penstock) -> None:
    """The process that gave it died before it was delivered, and no worker ran until the wait was over."""

    @shop.pipeline(name="patient")
    def patient() -> Any:
        return wait_for("approve", timeout=10, default="no")

    run = patient.trigger()
    drain(shop)
    shop.database.in_transaction(signals.record, run.id, "approve", '"yes"')
    shop.database.in_transaction(
        lambda tx: tx.run("UPDATE {timers} SET due_at = due_at + 20000000 WHERE kind = 'signal'")
    )
    with travel(shop, 11):
        drain(shop)
        assert run.result(0) == "yes"
    with travel(shop, 60):
        drain(shop)
    assert run.result(0) == "yes"
