"""pipelines/run: Small things that users of other systems expect of a run, one test each."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any

import pytest
from pydantic import PlainSerializer, PlainValidator

import penstock
from penstock import Penstock, switch, wait_for
from penstock.errors import ArgumentError
from penstock.pipelines.run import Run
from penstock.testing import drain, travel
from tests.waiting import pass_time


class Bench:
    """Tasks that note what they were called with."""

    def __init__(self, app: Penstock) -> None:
        self.app = app
        self.calls: list[Any] = []

        @app.task(name="same")
        def same(value: Any = None) -> Any:
            self.calls.append(value)
            return value

        @app.task(name="fail", retries=0)
        def fail(value: Any = None) -> Any:
            raise ValueError(value)

        @app.task(name="hear")
        def hear(run_id: str, status: str) -> None:
            self.calls.append((run_id, status))

        self.same, self.fail, self.hear = same, fail, hear

    def run(self, body: Callable[[], Any], **options: Any) -> Run:
        run = self.app.pipeline(name=f"pipeline {len(self.app.pipelines)}", **options)(body).trigger()
        drain(self.app)
        return run


@pytest.fixture
def bench(app: Penstock) -> Bench:
    return Bench(app)


@pytest.mark.parametrize(("works", "expected"), [(True, "paid"), (False, "refunded")])
def test_a_step_that_runs_only_if_another_failed(bench: Bench, works: bool, expected: str) -> None:
    pay = (bench.same if works else bench.fail).options(key="pay", optional=True)

    def body() -> Any:
        return switch(pay("paid"), {"None": lambda: bench.same("refunded")}, otherwise=None)

    run = bench.run(body)
    assert (run.status, run.result(0)) == ("succeeded", expected)


def test_a_run_may_have_many_first_steps_and_every_step_sees_its_parameters(bench: Bench) -> None:
    app = bench.app

    @app.pipeline(name="params")
    def params(a: int, *, b: int = 2) -> Any:
        first, second = bench.same(a), bench.same.options(key="other")(b)
        return bench.same.options(key="last")([first, second, a, b])

    run = params.trigger(1, b=5)
    drain(app)
    assert run.result(0) == [1, 5, 1, 5]


def test_the_first_step_of_a_flow_may_take_any_number_of_arguments(bench: Bench) -> None:
    app = bench.app

    @app.task(name="many")
    def many(first: int, *rest: int, scale: int = 1, **named: int) -> list[Any]:
        return [first, list(rest), scale, named]

    flow = app.flow("many arguments").start(many).chain(bench.same)

    @app.pipeline(name="parent")
    def parent(x: int) -> Any:
        return flow(x, 5, z=7)

    all_of_it, little, child = flow.trigger(1, 2, 3, scale=4, z=9), flow.trigger(1), parent.trigger(3)
    then = little.then(many, 6, 7)
    drain(app)
    again = all_of_it.rerun()
    drain(app)
    assert all_of_it.result(0) == again.result(0) == [1, [2, 3], 4, {"z": 9}]
    assert (little.result(0), then.result(0)) == ([1, [], 1, {}], [6, [7], 1, {}])
    assert child.result(0) == [3, [5], 1, {"z": 7}]
    with pytest.raises(ArgumentError, match="'rest'"):
        flow.trigger(1, "two")


def test_a_run_tells_what_it_was_given_and_what_it_is_for(bench: Bench) -> None:
    app, day = bench.app, date(2026, 11, 16)

    @app.task(name="look")
    def look(_: Any) -> Any:
        return sorted(penstock.current().run.args)

    flow = app.flow("flow", description=" Looks\naround. ").start(bench.same).chain(look)

    @app.pipeline(name="parent")
    def parent(on: date, *, often: int = 2) -> Any:
        """Says what
        it is for.

        At length.
        """
        return flow([on, often])

    run = parent.options(key="today").trigger(day)
    drain(app)
    (child,) = app.runs(pipeline="flow")
    assert run.result(0) == ["value"]
    assert (run.args, run.key, run.parent) == ({"on": day, "often": 2}, "today", None)
    assert (child.parent, child.key) == (run, None)
    assert (run.description, child.description) == ("Says what it is for.", "Looks\naround.")
    assert "Says" not in parent.definition.text, "other words make no other pipeline"


class Colour(Enum):
    RED = "red"


class Size(str, Enum):  # noqa: UP042 - as many write it
    LARGE = "large"


@pytest.mark.parametrize(
    "value", [Colour.RED, Size.LARGE, True, None, 7, Decimal("1.50"), date(2026, 11, 16)]
)
def test_an_arm_may_be_named_by_any_plain_value(bench: Bench, value: object) -> None:
    def chosen() -> Any:
        return value

    chosen.__annotations__["return"] = type(value) if value is not None else Any
    choose = bench.app.task(name="choose")(chosen)

    def body() -> Any:
        return switch(choose(), {value: lambda: bench.same("arm")}, otherwise=lambda: bench.same("otherwise"))

    assert bench.run(body).result(0) == "arm"


class Sealed(str):
    """A text that is stored in a form of its own."""


def seal(text: str) -> str:
    return text[::-1].encode().hex()


def unseal(stored: object) -> Sealed:
    return stored if isinstance(stored, Sealed) else Sealed(bytes.fromhex(str(stored)).decode()[::-1])


Secret = Annotated[Sealed, PlainValidator(unseal), PlainSerializer(seal)]


def test_an_annotation_decides_what_is_stored(bench: Bench) -> None:
    app = bench.app

    @app.task(name="greet")
    def greet(name: Secret) -> Secret:
        return Sealed(f"hello {name}")

    @app.pipeline(name="greeting")
    def greeting(name: Secret) -> Any:
        return greet(greet(name))

    run = greeting.trigger(Sealed("ann"))
    drain(app)
    assert run.args == {"name": "ann"}
    assert run.result(0) == "hello hello ann"
    stored = app.database.read(
        lambda tx: tx.rows("SELECT args FROM {runs}") + tx.rows("SELECT output FROM {executions}")
    )
    assert len(stored) == 3
    assert "ann" not in str(stored)


def test_a_callback_that_fails_changes_nothing_about_its_run(bench: Bench) -> None:
    app = bench.app

    @app.task(name="careless", retries=0)
    def careless(event: dict[str, Any]) -> None:
        raise ValueError(event["status"])

    run = bench.run(lambda: bench.same(1), on_complete=[careless, bench.hear], on_success=bench.hear)
    assert (run.status, run.result(0)) == ("succeeded", 1)
    assert bench.calls[1:] == [(run.id, "succeeded")] * 2, "each of them is told, by itself"
    assert [letter.status for letter in app.dead_letters()] == ["failed"]


def test_skipped_and_cancelled_runs_only_complete(bench: Bench) -> None:
    hear, app = bench.hear, bench.app
    options: Any = {"on_complete": hear, "on_success": hear, "on_failure": hear, "on_halt": hear}

    @app.pipeline(name="told", **options)
    def told() -> Any:
        return wait_for("never")

    failed = bench.run(lambda: bench.fail(1))
    skipped, cancelled = failed.then(told), told.trigger()
    drain(app)
    cancelled.cancel()
    drain(app)
    assert sorted(bench.calls) == sorted([(skipped.id, "skipped"), (cancelled.id, "cancelled")])


def test_a_run_may_start_at_a_given_time(bench: Bench) -> None:
    @bench.app.pipeline(name="later", deadline=60)
    def later() -> Any:
        return bench.same(1)

    when = datetime.now(UTC) + timedelta(hours=2)
    run = later.options(at=when).trigger()
    with travel(bench.app, 3600):
        drain(bench.app)
        assert run.status == "pending"
    with travel(bench.app, 2 * 3600 + 1):
        drain(bench.app)
        assert run.result(0) == 1
    past = later.options(at=datetime.now(UTC) - timedelta(days=1)).trigger()
    drain(bench.app)
    assert past.result(0) == 1, "its deadline counts from its start"


def test_a_step_that_takes_too_long_says_so(bench: Bench) -> None:
    @bench.app.task(name="slow", timeout=0.01, retries=0)
    def slow() -> None:
        pass_time(0.05)

    run = bench.run(lambda: [slow()])
    assert (run.status, run.reasons) == ("halted", ["timed_out"])
    assert [attempt.outcome for attempt in run.steps()[0].attempts()] == ["timed_out"]


def test_steps_of_one_run_may_use_other_queues_and_priorities(bench: Bench) -> None:
    def body() -> Any:
        return [bench.same.options(key=str(number), priority=number)(number) for number in range(3)]

    run = bench.run(body)
    assert bench.calls == [2, 1, 0]
    assert run.result(0) == [0, 1, 2]


def test_retries_never_show_a_step_as_failed_before_the_last(bench: Bench) -> None:
    seen: list[str] = []
    app = bench.app

    @app.task(name="late", retries=penstock.Retry(max=2, delay=30))
    def late() -> str:
        if penstock.current().attempt < 3:
            raise ValueError("not yet")
        return "done"

    @app.pipeline(name="patient")
    def patient() -> Any:
        return late()

    run = patient.trigger()
    for later in (0, 100, 1000):
        with travel(app, later):
            drain(app)
        seen.append(f"{run.status} {run.steps()[0].status}")
    assert seen == ["running scheduled", "running scheduled", "succeeded succeeded"]
    assert len(run.steps()[0].attempts()) == 3
