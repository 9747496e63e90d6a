"""pipelines/lifecycle/revive, pipelines/lifecycle/lineage: a step retried by itself: what depends on it is done
again with it, and what else failed is not in its way.
"""

from __future__ import annotations

from typing import Any

import penstock
from penstock import Penstock, stop_run, wait_for
from penstock.queue import control
from penstock.runtime.worker import Worker
from penstock.testing import drain, travel
from tests.conformance.embedded import beside_a_worker
from tests.waiting import until


class Parts:
    """Tasks that note what they are given, and fail while they are broken."""

    def __init__(self, app: Penstock, *broken: object) -> None:
        self.app = app
        self.broken = set(broken)
        self.calls: list[str] = []
        self.keys: dict[str, list[str]] = {}

    def task(self, name: str) -> Any:
        def run(value: object = None) -> object:
            self.calls.append(f"{name} {value}")
            self.keys.setdefault(name, []).append(penstock.current().idempotency_key)
            if self.broken & {name, f"{name} {value}"}:
                raise ValueError(name)
            return f"{name}({value})"

        return self.app.task(name=name, retries=0)(run)

    def mended(self) -> None:
        self.broken.clear()
        self.calls.clear()


def statuses(run: Any) -> dict[str, str]:
    return {step.key: step.status.value for step in run.steps()}


def test_what_depends_on_the_step_is_done_again_although_it_had_succeeded(app: Penstock) -> None:
    parts = Parts(app, "made")
    made, used, told, other = (parts.task(name) for name in ("made", "used", "told", "other"))

    @app.pipeline(name="using", on_failure="ignore")
    def using() -> Any:
        return [told(used(made(1))), other(2)]

    run = using.trigger()
    drain(app)
    assert run.status == "failed"
    assert "used None" in parts.calls
    parts.mended()
    again = run.retry_step("made")
    drain(app)
    assert again.result(0) == ["told(used(made(1)))", "other(2)"]
    assert parts.calls == ["made 1", "used made(1)", "told used(made(1))"]
    assert len(set(parts.keys["made"])) == 1
    assert len(set(parts.keys["used"])) == 2, "it is made from something else: other work, another key"


def test_only_the_elements_that_failed_and_what_is_made_from_them_are_done_again(app: Penstock) -> None:
    parts = Parts(app, "pack 1")
    pack, seal, load = (parts.task(name) for name in ("pack", "seal", "load"))

    @app.pipeline(name="packing", on_failure="ignore")
    def packing() -> Any:
        return load(seal(pack.map([0, 1, 2])).collect())

    run = packing.trigger()
    drain(app)
    assert run.status == "failed"
    parts.mended()
    again = run.retry_step("pack")
    drain(app)
    sealed = ["seal(pack(0))", "seal(pack(1))", "seal(pack(2))"]
    assert again.result(0) == f"load({sealed})"
    assert parts.calls == ["pack 1", "seal pack(1)", f"load {sealed}"]


def test_behind_a_nested_collapse_only_the_elements_in_which_something_failed(app: Penstock) -> None:
    parts = Parts(app, "box 11")
    box, total = parts.task("box"), parts.task("total")

    @app.task(name="shelf")
    def shelf(number: int) -> list[int]:
        return [number * 10, number * 10 + 1]

    @app.pipeline(name="shelves", on_failure="ignore")
    def shelves() -> Any:
        return total(box.map(shelf.map([0, 1])).collect()).collect()

    run = shelves.trigger()
    drain(app)
    assert run.status == "failed"
    parts.mended()
    again = run.retry_step("box")
    drain(app)
    assert again.status == "succeeded"
    assert parts.calls == ["box 11", "total ['box(10)', 'box(11)']"]


def test_what_was_to_be_done_again_is_not_kept_by_a_later_revival_either(app: Penstock) -> None:
    parts = Parts(app, "made", "between made(1)")
    made, between, last = (parts.task(name) for name in ("made", "between", "last"))

    @app.pipeline(name="in_between", on_failure="ignore")
    def in_between() -> Any:
        value = made(1)
        strict = between.options(on_failure="halt")(value)
        return last.options(after=[strict])(value)

    run = in_between.trigger()
    drain(app)
    assert (run.status, run.steps()[-1].output) == ("failed", "last(None)")
    parts.broken.remove("made")
    halted = run.retry_step("made")
    drain(app)
    assert statuses(halted) == {"made": "succeeded", "between": "failed", "last": "skipped"}
    parts.mended()
    again = halted.revive()
    drain(app)
    assert again.result(0) == "last(made(1))"
    assert parts.calls == ["between made(1)", "last made(1)"]


def test_a_wait_behind_the_step_is_waited_for_again_and_keeps_a_signal(app: Penstock) -> None:
    parts = Parts(app, "made")
    made, used = parts.task("made"), parts.task("used")

    @app.pipeline(name="waiting", on_failure="ignore")
    def waiting() -> Any:
        value = made(1)
        answers = [
            wait_for("signalled", after=[value]),
            wait_for("timed", timeout=60, default="no", after=[value]),
        ]
        return [used(answers[0]), answers[1]]

    run = waiting.trigger()
    drain(app)
    run.signal("signalled", "yes")
    with travel(app, 61):
        drain(app)
        assert run.status == "failed"
        parts.mended()
        again = run.retry_step("made")
        drain(app)
        assert statuses(again)["timed"] == "waiting"
        again.signal("timed", "late")
        drain(app)
        assert again.result(0) == ["used(yes)", "late"]


class Two:
    """Two steps that fail at the same time and halt the run, each with one behind it."""

    def __init__(self, app: Penstock) -> None:
        self.parts = Parts(app, "left", "right")
        begun: list[str] = []

        def failing(name: str) -> Any:
            @app.task(name=name, retries=0)
            async def run() -> str:
                begun.append(name)
                self.parts.calls.append(name)
                await until(lambda: len(begun) > 1)
                if name in self.parts.broken:
                    raise ValueError(name)
                return name

            return run

        left, right, then = failing("left"), failing("right"), self.parts.task("then")

        @app.pipeline(name="two")
        def two() -> Any:
            return [then(left()), then.options(key="then_2")(right())]

        async def main(_: Worker) -> None:
            self.run = await two.trigger_async()
            await until(lambda: self.run.status == "halted")

        beside_a_worker(app, main)


def test_another_failure_that_is_kept_halts_nothing_and_is_counted(app: Penstock) -> None:
    for step, behind, others in (("left", "then", "then_2"), ("right", "then_2", "then")):
        two = Two(app)
        other = "right" if step == "left" else "left"
        assert statuses(two.run) == {
            "left": "failed",
            "right": "failed",
            "then": "skipped",
            "then_2": "skipped",
        }
        two.parts.mended()
        again = two.run.retry_step(step)
        drain(app)
        assert two.parts.calls == [step, f"then {step}"]
        assert statuses(again) == {step: "succeeded", other: "failed", behind: "succeeded", others: "skipped"}
        assert (again.status, again.reasons) == ("halted", ["retries_exhausted"])


def test_a_wait_whose_failure_is_kept_halts_nothing(app: Penstock) -> None:
    parts = Parts(app, "made")
    made = parts.task("made")

    @app.pipeline(name="beside_a_wait")
    def beside_a_wait() -> Any:
        return [made.options(on_failure="continue")(1), wait_for("never", timeout=60)]

    run = beside_a_wait.trigger()
    with travel(app, 61):
        drain(app)
        assert (run.status, statuses(run)) == ("halted", {"made": "failed", "never": "failed"})
        parts.mended()
        again = run.retry_step("made")
        drain(app)
        assert (again.status, statuses(again)) == ("halted", {"made": "succeeded", "never": "failed"})
        assert again.reasons == ["wait_timed_out"]


def test_an_expand_that_failed_and_fails_again_halts_nothing(app: Penstock) -> None:
    parts = Parts(app, "made")
    a_number, begin, made = (parts.task(name) for name in ("a_number", "begin", "made"))

    @app.pipeline(name="beside_an_expand")
    def beside_an_expand() -> Any:
        wrong = begin.options(key="each").map(a_number(wait_for("go"))).collect()
        return [wrong, made.options(on_failure="continue")(begin(1))]

    run = beside_an_expand.trigger()
    drain(app)
    run.signal("go", 1)
    drain(app)
    assert (run.status, statuses(run)["made"]) == ("halted", "failed")
    parts.mended()
    again = run.retry_step("made")
    drain(app)
    assert parts.calls == ["made begin(1)"]
    assert (again.status, again.reasons) == ("halted", ["transition_invalid"])


def test_of_nested_expands_only_those_that_failed_are_done_again(app: Penstock) -> None:
    parts = Parts(app)
    cell, total = parts.task("cell"), parts.task("total")

    @app.task(name="row")
    def row(width: int) -> list[int]:
        return list(range(width))

    @app.pipeline(name="tables", on_failure="continue")
    def tables() -> Any:
        cells = cell.options(max_fanout=2, on_failure="continue").map(row.map([1, 3, 2]))
        return total(cells.collect()).collect()

    run = tables.trigger()
    drain(app)
    assert run.status == "failed"
    assert run.reasons == ["max_fanout_exceeded"]
    parts.mended()
    again = run.retry_step("@expand.cell")
    drain(app)
    assert parts.calls == []
    assert again.reasons == ["max_fanout_exceeded"]
    kept = sorted((step.key, step.path) for step in again.steps() if step.status == "succeeded")
    assert kept == sorted((step.key, step.path) for step in run.steps() if step.status == "succeeded")


def test_a_step_that_has_stopped_the_run_stops_the_revived_one(app: Penstock) -> None:
    parts = Parts(app, "made")
    made, after = parts.task("made"), parts.task("after")

    @app.task(name="stops")
    def stops(value: object) -> int:
        parts.calls.append(f"stops {value}")
        stop_run(42)

    @app.pipeline(name="stopping", on_failure="ignore")
    def stopping() -> Any:
        return after(stops(made(1)))

    run = stopping.trigger()
    drain(app)
    assert (run.status, statuses(run)["after"]) == ("failed", "skipped")
    parts.mended()
    again = run.revive()
    drain(app)
    assert parts.calls == ["made 1"], "it had stopped the run: that is finished work too"
    assert (again.status, again.result(0)) == ("succeeded", 42)
    assert {step.key: step.reason for step in again.steps()}["after"] == "run_stopped"


def test_what_was_put_away_as_a_dead_letter_is_retried_all_the_same(app: Penstock) -> None:
    """To tidy up a list changes nothing about the run: the step has failed, and so has the other."""
    parts = Parts(app, "one", "two")
    one, two = parts.task("one"), parts.task("two")

    @app.pipeline(name="both", on_failure="continue")
    def both() -> Any:
        return [one(1), two(2)]

    run = both.trigger()
    drain(app)
    ids = [letter.id for letter in app.dead_letters()]
    discard = control.discarding()
    for _ in range(2):  # the first answer was lost
        assert sorted(app.database.in_transaction(discard, ids)) == sorted(ids)
    assert app.database.in_transaction(control.discarding(), ids) == []
    assert len(app.dead_letters()) == 0
    assert statuses(run) == {"one": "failed", "two": "failed"}
    parts.mended()
    again = run.retry_step("one")
    drain(app)
    assert statuses(again) == {"one": "succeeded", "two": "failed"}
    assert parts.calls == ["one 1"]
