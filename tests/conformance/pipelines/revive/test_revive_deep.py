"""pipelines/lifecycle/revive: a revived run also keeps the work of its children, and waits that have ended."""

from __future__ import annotations

from typing import Any

import pytest

import penstock
from penstock import Penstock, wait_for
from penstock.errors import ReviveError
from penstock.pipelines.run import Run
from penstock.testing import drain, travel


class Nested:
    """A pipeline in a pipeline in a pipeline; the innermost has something to keep and something that fails."""

    def __init__(self, app: Penstock) -> None:
        self.calls: list[str] = []
        self.keys: dict[str, set[str]] = {}
        self.broken = True

        @app.task(name="costly")
        def costly(item: int) -> int:
            self.note(f"costly {item}")
            penstock.current().context[f"cost {item}"] = item
            return item * 10

        @app.task(name="fragile", retries=0)
        def fragile(costs: list[int]) -> int:
            self.note("fragile")
            if self.broken:
                raise ValueError("not today")
            return sum(costs) + int(penstock.current().context["cost 2"])

        @app.pipeline(name="inner")
        def inner(items: list[int]) -> Any:
            return fragile(costly.map(items).collect())

        @app.pipeline(name="middle")
        def middle(items: list[int]) -> Any:
            return inner(items)

        @app.pipeline(name="outer")
        def outer(items: list[int]) -> Any:
            return [middle(items), costly(9)]

        self.middle, self.outer = middle, outer

    def note(self, call: str) -> None:
        self.calls.append(call)
        self.keys.setdefault(call, set()).add(penstock.current().idempotency_key)


def test_what_a_child_has_finished_is_kept_when_its_parent_is_revived(app: Penstock) -> None:
    nested = Nested(app)
    run = nested.outer.trigger([1, 2])
    drain(app)
    assert run.status == "halted"
    assert sorted(nested.calls) == ["costly 1", "costly 2", "costly 9", "fragile"]
    (old_child,) = app.runs(pipeline="inner")
    nested.calls.clear()
    nested.broken = False
    again = run.revive()
    drain(app)
    assert again.result(0) == [32, 90]
    assert nested.calls == ["fragile"]
    assert all(len(keys) == 1 for keys in nested.keys.values()), "the same work has the same key"
    new_child = app.runs(pipeline="inner")[0]
    assert new_child.revived_from == old_child


def test_a_child_keeps_its_work_over_several_revivals(app: Penstock) -> None:
    nested = Nested(app)
    run = nested.outer.trigger([1, 2])
    for _ in range(3):
        drain(app)
        run = run.revive()
    nested.broken = False
    drain(app)
    assert run.result(0) == [32, 90]
    assert [nested.calls.count(call) for call in ("costly 1", "costly 2", "fragile")] == [1, 1, 4]


def test_each_child_of_an_expand_is_revived_as_itself(app: Penstock) -> None:
    broken, calls = {2}, []

    @app.task(name="begin")
    def begin(item: int) -> int:
        calls.append(f"begin {item}")
        return item

    @app.task(name="end", retries=0)
    def end(item: int) -> int:
        calls.append(f"end {item}")
        if item in broken:
            raise ValueError(item)
        return item

    @app.pipeline(name="one")
    def one(item: int) -> Any:
        return end(begin(item))

    @app.pipeline(name="each", on_failure="continue")
    def each() -> Any:
        return one.map([1, 2, 3]).collect()

    run = each.trigger()
    drain(app)
    assert run.status == "failed"
    broken.clear()
    calls.clear()
    again = run.revive()
    drain(app)
    assert again.result(0) == [1, 2, 3]
    assert calls == ["end 2"]


def test_a_child_of_a_run_that_others_still_need_is_not_pruned(app: Penstock) -> None:
    nested = Nested(app)
    run = nested.outer.trigger([1, 2])
    drain(app)
    again = run.revive()
    again.pause()
    day = 86_400
    with travel(app, 30 * day):
        app.engine.chores.prune()
        assert {found.pipeline for found in app.runs(status="halted")} == {"outer", "middle", "inner"}
        nested.broken = False
        nested.calls.clear()
        again.resume()
        drain(app)
        assert again.result(0) == [32, 90]
        assert nested.calls == ["fragile"]


def test_a_wait_that_has_ended_is_over_in_the_revived_run(app: Penstock) -> None:
    broken = [True]

    @app.task(name="act", retries=0)
    def act(*answers: str) -> list[str]:
        if broken:
            raise ValueError("no")
        return list(answers)

    @app.pipeline(name="asking")
    def asking() -> Any:
        return act(wait_for("first", timeout=60, default="by itself"), wait_for("second", timeout=7200))

    run = asking.trigger()
    drain(app)
    run.signal("second", "given")
    with travel(app, 61):
        drain(app)
    assert run.status == "halted"
    broken.clear()
    again = run.revive()
    drain(app)
    assert again.result(0) == ["by itself", "given"], "no step waits a second time"


def test_a_wait_that_failed_is_waited_for_again_or_stays_failed_when_another_step_is_retried(
    app: Penstock,
) -> None:
    @app.task(name="maybe", retries=0)
    def maybe() -> str:
        raise ValueError("no")

    @app.pipeline(name="two", on_failure="continue")
    def two() -> Any:
        return [maybe(), wait_for("answer", timeout=60)]

    run = two.trigger()
    with travel(app, 61):
        drain(app)
        assert {step.key: step.status.value for step in run.steps()} == {
            "maybe": "failed",
            "answer": "failed",
        }
        other = run.retry_step("maybe")
        drain(app)
        failed = {step.key: step.reason for step in other.steps()}
        assert failed == {"maybe": "retries_exhausted", "answer": "wait_timed_out"}
        again = other.revive()
        drain(app)
        assert again.status == "running"
        again.signal("answer", "yes")
        drain(app)
        assert {step.key: step.output for step in again.steps()} == {"maybe": None, "answer": "yes"}


def halted_by_its_child(app: Penstock) -> tuple[Nested, Run, Run]:
    nested = Nested(app)
    run = nested.outer.trigger([1, 2])
    drain(app)
    (child,) = app.runs(pipeline="inner")
    return nested, run, child


def test_a_child_that_was_revived_by_itself_is_continued_from_there(app: Penstock) -> None:
    nested, run, child = halted_by_its_child(app)
    nested.broken = False
    mended = child.revive(duplicate_context=True)
    drain(app)
    assert mended.result(0) == 32
    nested.calls.clear()
    again = run.revive()
    drain(app)
    assert again.result(0) == [32, 90]
    assert nested.calls == [], "all of it was finished"
    assert app.runs(pipeline="inner")[0].revived_from == mended


def test_a_child_that_was_revived_with_its_parent_is_not_revived_once_more(app: Penstock) -> None:
    _, run, child = halted_by_its_child(app)
    run.revive()
    drain(app)
    with pytest.raises(ReviveError, match=app.runs(pipeline="inner")[0].id):
        child.revive()


def test_while_the_revival_of_a_child_is_under_way_its_parents_step_fails_and_says_so(app: Penstock) -> None:
    nested, run, child = halted_by_its_child(app)
    nested.broken = False
    mended = child.revive(duplicate_context=True)
    mended.pause()
    again = run.revive()
    drain(app)
    assert (again.status, again.reasons) == ("halted", ["child_run_failed"])
    (middle,) = [found for found in app.runs(pipeline="middle") if found.parent == again]
    assert mended.id in str(middle.steps()[0].error)
    mended.resume()
    drain(app)
    once_more = again.revive()
    drain(app)
    assert once_more.result(0) == [32, 90]
    assert nested.calls.count("fragile") == 2


def test_a_revival_of_a_child_stays_for_its_parent_and_is_continued_with_it(app: Penstock) -> None:
    nested = Nested(app)
    run = nested.middle.trigger([1, 2])
    drain(app)
    (child,) = app.runs(pipeline="inner")
    nested.broken = False
    revived = child.revive(duplicate_context=True)
    drain(app)
    again = run.revive()
    again.pause()
    with travel(app, 30 * 86_400):
        app.engine.chores.prune()
        assert app.runs(pipeline="inner") == [revived, child]
        nested.calls.clear()
        again.resume()
        drain(app)
        assert again.result(0) == 32
        assert nested.calls == []
        app.engine.chores.prune(0)
        left = app.database.in_transaction(lambda tx: tx.rows("SELECT run_key FROM {run_keys}"))
        assert list(left) == [], "nor is anything left of who has revived whom"
