"""pipelines/lifecycle/fork: a fork does one step and all that depends on it anew, whatever became of them, and keeps
the rest of the old run.
"""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Penstock, current, stop_run, switch, wait_for
from penstock.errors import ConfigurationError, ReviveError
from penstock.pipelines.run import Run
from penstock.testing import drain, travel
from tests.conformance.pipelines.revive.test_retry_step import Parts, statuses


def diamond(app: Penstock, parts: Parts) -> Run:
    top, left, right, bottom = (parts.task(name) for name in ("top", "left", "right", "bottom"))

    @app.pipeline(name="diamond", on_failure="continue")
    def diamond() -> Any:
        value = top(1)
        return bottom([left(value), right(value)])

    run = diamond.options(labels=["blue"], key="only one").trigger()
    drain(app)
    parts.mended()
    return run


def test_a_fork_of_a_succeeded_run_redoes_the_step_and_what_depends_on_it(app: Penstock) -> None:
    parts = Parts(app)
    run = diamond(app, parts)
    assert run.status == "succeeded"
    before = run.steps()
    again = run.fork(at="left")
    drain(app)
    assert again.result(0) == run.result(0)
    assert parts.calls == ["left top(1)", "bottom ['left(top(1))', 'right(top(1))']"]
    assert {name: len(set(keys)) for name, keys in parts.keys.items()} == {
        "top": 1,
        "left": 2,
        "right": 1,
        "bottom": 2,
    }, "what is redone is new work, with new keys"
    assert (again.forked_from, again.revived_from, again.parent) == (run, None, None)
    assert (run.forked_from, again.key, again.labels) == (None, None, ["blue"])
    assert [(step.id, step.status) for step in run.steps()] == [(step.id, step.status) for step in before]
    (act,) = app.audit(run)
    assert (act.act, act.detail) == ("fork", {"new_run": again.id, "step": "left"})


def test_a_fork_at_the_first_step_redoes_all_and_one_at_the_last_only_that(app: Penstock) -> None:
    parts = Parts(app)
    run = diamond(app, parts)
    forks = run.fork("top"), run.fork("bottom")
    drain(app)
    assert [fork.status for fork in forks] == ["succeeded", "succeeded"]
    assert sorted(call.split()[0] for call in parts.calls) == ["bottom", "bottom", "left", "right", "top"]


def test_of_a_failed_run_failures_beside_the_step_are_kept_and_counted(app: Penstock) -> None:
    parts = Parts(app, "right")
    run = diamond(app, parts)
    assert (run.status, statuses(run)["bottom"]) == ("failed", "skipped")
    beside = run.fork("left")
    drain(app)
    assert parts.calls == ["left top(1)"]
    assert (beside.status, beside.reasons) == ("failed", run.reasons)
    at_failure = run.fork("right")
    drain(app)
    assert at_failure.status == "succeeded"
    assert parts.calls == ["left top(1)", "right top(1)", "bottom ['left(top(1))', 'right(top(1))']"]


def test_a_fork_before_the_failure_of_a_halted_run_goes_through(app: Penstock) -> None:
    parts = Parts(app, "charge")
    fetch, charge, ship = (parts.task(name) for name in ("fetch", "charge", "ship"))

    @app.pipeline(name="halting")
    def halting() -> Any:
        return ship(charge(fetch(1)))

    run = halting.trigger()
    drain(app)
    assert run.status == "halted"
    parts.mended()
    again = run.fork("fetch")
    drain(app)
    assert again.result(0) == "ship(charge(fetch(1)))"
    assert parts.calls == ["fetch 1", "charge fetch(1)", "ship charge(fetch(1))"]
    assert len(set(parts.keys["charge"])) == 2, "it is made from something else"


def test_all_elements_of_the_step_are_redone_and_what_was_before_the_expand_is_kept(app: Penstock) -> None:
    parts = Parts(app)
    pack, seal, load = (parts.task(name) for name in ("pack", "seal", "load"))

    @app.pipeline(name="packing")
    def packing() -> Any:
        return load(seal(pack.map([0, 1, 2])).collect())

    run = packing.trigger()
    drain(app)
    parts.mended()
    again = run.fork("seal")
    drain(app)
    sealed = [f"seal(pack({number}))" for number in range(3)]
    assert again.result(0) == f"load({sealed})"
    assert sorted(parts.calls) == sorted([*(f"seal pack({number})" for number in range(3)), f"load {sealed}"])


def test_an_expand_over_a_redone_step_has_its_new_width(app: Penstock) -> None:
    parts, widths = Parts(app), iter([3, 1])
    box, total = parts.task("box"), parts.task("total")

    @app.task(name="shelf")
    def shelf() -> list[int]:
        return list(range(next(widths)))

    @app.pipeline(name="shelves")
    def shelves() -> Any:
        return total(box.map(shelf()).collect())

    run = shelves.trigger()
    drain(app)
    again = run.fork("shelf")
    drain(app)
    assert again.result(0) == "total(['box(0)'])"
    assert sum(step.key == "box" for step in again.steps()) == 1


def test_behind_a_nested_collapse_all_elements_are_redone_also_over_nothing(app: Penstock) -> None:
    parts = Parts(app)
    box, total = parts.task("box"), parts.task("total")

    @app.task(name="shelf")
    def shelf(width: int) -> list[int]:
        return list(range(width))

    @app.pipeline(name="racks")
    def racks() -> Any:
        return total(box.map(shelf.map([2, 0])).collect()).collect()

    run = racks.trigger()
    drain(app)
    parts.mended()
    again = run.fork("box")
    drain(app)
    assert again.result(0) == run.result(0)
    assert sorted(parts.calls) == ["box 0", "box 1", "total ['box(0)', 'box(1)']", "total []"]


def test_a_fork_at_the_question_of_a_switch_may_take_the_other_arm(app: Penstock) -> None:
    parts, answers = Parts(app), iter(["yes", "no"])
    yes, no, last = (parts.task(name) for name in ("yes", "no", "last"))

    @app.task(name="ask")
    def ask() -> str:
        return next(answers)

    @app.pipeline(name="choosing")
    def choosing() -> Any:
        return last(switch(ask(), {"yes": yes}, otherwise=no))

    run = choosing.trigger()
    drain(app)
    assert statuses(run) == {"ask": "succeeded", "yes": "succeeded", "no": "skipped", "last": "succeeded"}
    other = run.fork("ask")
    drain(app)
    assert statuses(other) == {"ask": "succeeded", "yes": "skipped", "no": "succeeded", "last": "succeeded"}
    parts.mended()
    arm = run.fork("yes")
    drain(app)
    assert arm.result(0) == run.result(0)
    assert [call.split()[0] for call in parts.calls] == ["yes", "last"]


def test_a_redone_wait_is_waited_for_again_and_others_keep_their_signal(app: Penstock) -> None:
    parts = Parts(app)
    used = parts.task("used")

    @app.pipeline(name="waiting")
    def waiting() -> Any:
        kept, timed = wait_for("kept"), wait_for("timed", timeout=60, default="late")
        return used([kept, wait_for("asked", after=[kept]), timed])

    run = waiting.trigger()
    run.signal("kept", 1)
    run.signal("asked", 2)
    drain(app)
    with travel(app, 61):
        drain(app)
    assert run.result(0) == "used([1, 2, 'late'])"
    again = run.fork("asked")
    drain(app)
    assert statuses(again) == {"kept": "succeeded", "asked": "waiting", "timed": "succeeded"}
    assert again.signal("asked", 3)
    drain(app)
    assert again.result(0) == "used([1, 3, 'late'])"
    earlier = again.fork("kept")
    drain(app)
    assert statuses(earlier) == {"kept": "waiting", "timed": "succeeded"}
    assert earlier.signal("kept", 5)
    assert earlier.signal("asked", 6)
    drain(app)
    assert earlier.result(0) == "used([5, 6, 'late'])"


def test_the_waits_of_elements_are_asked_again_too(app: Penstock) -> None:
    parts = Parts(app)
    pack = parts.task("pack")

    @app.pipeline(name="each")
    def each() -> Any:
        packed = pack.map([0, 1])
        return wait_for("sealed", after=[packed]).collect()

    run = each.trigger()
    drain(app)
    for number in range(2):
        assert run.signal("sealed", number, path=[number])
    drain(app)
    assert run.result(0) == [0, 1]
    again = run.fork("pack")
    drain(app)
    assert again.status == "running"
    for number in range(2):
        assert again.signal("sealed", number + 7, path=[number])
    drain(app)
    assert again.result(0) == [7, 8]


def test_values_of_redone_steps_are_not_in_the_context_and_others_are(app: Penstock) -> None:
    numbers = iter(range(100))

    def writer(name: str) -> Any:
        def write(value: object = None) -> int:
            context, number = current().context, next(numbers)
            context.set(name, number)
            context.increment("count")
            return number

        return app.task(name=name, retries=0)(write)

    first, second = writer("first"), writer("second")

    @app.pipeline(name="writing")
    def writing() -> Any:
        return second(first())

    run = writing.trigger()
    drain(app)
    run.context.set("outside", "kept")
    assert run.context.all() == {"first": 0, "second": 1, "count": 2, "outside": "kept"}
    again = run.fork("second")
    assert again.context.all() == {"first": 0, "count": 2, "outside": "kept"}
    drain(app)
    assert again.context.all() == {"first": 0, "second": 2, "count": 3, "outside": "kept"}
    bare = run.fork("second", duplicate_context=False)
    drain(app)
    assert bare.context.all() == {"second": 3, "count": 1}


def test_what_once_has_done_is_done_again_in_the_fork(app: Penstock) -> None:
    charged: list[int] = []

    @app.task(name="charge")
    def charge(amount: int) -> int:
        current().once("charge", charged.append, amount)
        return amount

    @app.pipeline(name="paying")
    def paying() -> Any:
        return charge(7)

    run = paying.trigger()
    drain(app)
    run.fork("charge")
    drain(app)
    assert charged == [7, 7], "a forked charge charges again"


def test_a_kept_stop_stops_the_fork_unless_it_depends_on_the_step(app: Penstock) -> None:
    parts, stops = Parts(app), [True, False]
    begin, beside, after = (parts.task(name) for name in ("begin", "beside", "after"))

    @app.task(name="decide")
    def decide(value: object) -> int:
        if stops.pop(0):
            stop_run(42)
        return 1

    @app.pipeline(name="stopping")
    def stopping() -> Any:
        return [after(decide(begin(1))), beside(2)]

    run = stopping.trigger()
    drain(app)
    assert (run.status, run.result(0), statuses(run)["after"]) == ("succeeded", 42, "skipped")
    kept = run.fork("after")
    drain(app)
    assert (kept.status, kept.result(0), statuses(kept)["after"]) == ("succeeded", 42, "skipped")
    gone_on = run.fork("begin")
    drain(app)
    assert gone_on.result(0) == ["after(1)", "beside(2)"]


def test_a_fork_of_a_fork_and_a_revival_of_a_fork_keep_what_the_fork_made(app: Penstock) -> None:
    parts = Parts(app)
    run = diamond(app, parts)
    first = run.fork("left")
    drain(app)
    keys = list(parts.keys["left"])
    parts.mended()
    second = first.fork("bottom")
    drain(app)
    assert [call.split()[0] for call in parts.calls] == ["bottom"]
    outputs = {step.key: step.output for step in second.steps()}
    assert outputs["left"] == {step.key: step.output for step in first.steps()}["left"]
    parts.mended()
    parts.broken.add("bottom")
    third = second.fork("right")
    drain(app)
    assert (third.status, statuses(third)["bottom"]) == ("failed", "failed")
    parts.mended()
    again = third.revive()
    drain(app)
    assert again.status == "succeeded"
    assert again.revived_from == third
    assert [call.split()[0] for call in parts.calls] == ["bottom"], "what the forks have done is kept"
    assert parts.keys["bottom"][-1] == parts.keys["bottom"][-2], "the same work as in the fork, with its key"
    assert parts.keys["left"] == keys


def test_a_revival_of_a_fork_that_was_cancelled_still_redoes_the_step(app: Penstock) -> None:
    parts = Parts(app, "bottom")
    run = diamond(app, parts)
    parts.broken.add("left")
    forked = run.fork("top")
    drain(app)
    assert statuses(forked) == {
        "top": "succeeded",
        "left": "failed",
        "right": "succeeded",
        "bottom": "skipped",
    }
    parts.mended()
    again = forked.revive()
    drain(app)
    assert again.status == "succeeded"
    assert [call.split()[0] for call in parts.calls] == ["left", "bottom"]


def test_a_stand_in_depends_on_the_step_it_stands_in_for(app: Penstock) -> None:
    parts = Parts(app, "main")
    main, other = parts.task("main"), parts.task("other")

    @app.pipeline(name="standing_in")
    def standing_in() -> Any:
        return main.options(on_failure=other)(1)

    run = standing_in.trigger()
    drain(app)
    assert (run.status, statuses(run)) == ("succeeded", {"main": "failed", "other": "succeeded"})
    parts.mended()
    stand_in = run.fork("other")
    drain(app)
    assert (stand_in.status, len(parts.calls)) == ("succeeded", 1)
    assert parts.calls[0].startswith("other")
    parts.mended()
    again = run.fork("main")
    drain(app)
    assert again.result(0) == "main(1)"
    assert parts.calls == ["main 1"]


def test_a_fork_waits_in_line_where_its_pipeline_has_a_limit(app: Penstock) -> None:
    parts = Parts(app)
    made, used = parts.task("made"), parts.task("used")

    @app.pipeline(name="limited", max_running=1)
    def limited() -> Any:
        return used([made(1), wait_for("go")])

    run = limited.trigger()
    run.signal("go", 1)
    drain(app)
    other = limited.trigger()
    drain(app)
    forked = run.fork("used")
    drain(app)
    assert (other.status, forked.status) == ("running", "pending")
    parts.mended()
    other.signal("go", 2)
    drain(app)
    assert forked.result(0) == "used(['made(1)', 1])"
    assert sum(call.startswith("made") for call in parts.calls) == 0


def test_what_cannot_be_forked_is_refused_by_name(app: Penstock) -> None:
    parts = Parts(app, "made")
    made, used = parts.task("made"), parts.task("used")

    @app.pipeline(name="refusing")
    def refusing() -> Any:
        return used(made(wait_for("go")))

    run = refusing.trigger()
    drain(app)
    with pytest.raises(ReviveError, match="is running: only a run that has ended can be forked"):
        run.fork("made")
    run.signal("go", 1)
    following = run.then(refusing)
    drain(app)
    assert following.status == "skipped"
    with pytest.raises(ReviveError, match="is skipped"):
        following.fork("made")
    with pytest.raises(ReviveError, match="no step 'mode'; its steps are go, made, used.*made"):
        run.fork("mode")
    for wrong in ("", None, 1):
        with pytest.raises(ConfigurationError):
            run.fork(wrong)  # type: ignore[arg-type]
    with pytest.raises(ReviveError, match="there is no run"):
        app.run("01a00000-0000-7000-8000-000000000000").fork("made")
    assert "fork" not in [act.act for act in app.audit(run)]
    assert len(app.runs()) == 2


def test_a_cancelled_run_is_forked_and_what_it_did_not_reach_is_done(app: Penstock) -> None:
    parts = Parts(app)
    made, used = parts.task("made"), parts.task("used")

    @app.pipeline(name="cancelled")
    def cancelled() -> Any:
        return used([made(1), wait_for("go")])

    run = cancelled.trigger()
    drain(app)
    run.cancel(grace=0)
    drain(app)
    assert run.status == "cancelled"
    parts.mended()
    again = run.fork("made")
    again.signal("go", 2)
    drain(app)
    assert again.result(0) == "used(['made(1)', 2])"
    assert parts.calls == ["made 1", "used ['made(1)', 2]"]
