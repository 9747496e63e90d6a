"""pipelines/plan/tokens, pipelines/plan/cascade: when joins are decided: early, late, once."""

# ruff: noqa: ARG005, PLW0108 - each lambda stands for a whole pipeline

from __future__ import annotations

from typing import Any

import pytest

from penstock.pipelines.define.graph import barrier, first, switch, wait_for
from penstock.pipelines.model.expressions import Path
from penstock.pipelines.plan.plan import begin
from penstock.values.status import JobStatus, RunStatus
from tests.pure.pipelines.fakes import FakeTask, graph, task
from tests.pure.pipelines.machine import Boom, Machine, Outcome

A, B, C, D, E, F, SLOW, PICK = (task(name, "*x") for name in ("a", "b", "c", "d", "e", "f", "slow", "pick"))


def outcomes(**values: object) -> Outcome:
    """Steps return what is given by key, or their key; `Boom` fails them."""

    def outcome(node: str, path: Path, args: list[object], kwargs: dict[str, object]) -> object:
        value = values.get(node, node)
        if value is Boom:
            raise Boom
        return value(*args) if callable(value) else value

    return outcome


def started(function: Any, given: dict[str, object] | None = None, **options: object) -> Machine:
    machine = Machine(graph(function, **options), outcomes(**(given or {})))
    machine.apply(begin(machine.wiring))
    return machine


def finish(machine: Machine, *nodes: str) -> None:
    for node in nodes:
        machine.finish(node)


def test_first_goes_on_with_the_first_success_while_the_other_still_runs() -> None:
    machine = started(lambda: C(first(A(), B())), {"c": lambda x: x})
    finish(machine, "b", "c")
    assert machine.steps["c", ()].output == "b"
    assert not machine.ended
    finish(machine, "a")
    assert machine.ended
    assert machine.statuses("c") == ["succeeded"]


def test_waits_that_only_a_decided_first_uses_have_lost() -> None:
    def pipeline() -> Any:
        kept = wait_for("kept")
        return [C(first(A(), wait_for("early"), wait_for("late", after=[SLOW()]), kept)), D(kept)]

    machine = started(pipeline)
    finish(machine, "a")
    assert (machine.statuses("early"), machine.statuses("kept")) == (["skipped"], ["waiting"])
    finish(machine, "slow")
    assert machine.statuses("late") == ["skipped"], "it begins when the first is decided"
    finish(machine, "kept", "c", "d")
    assert (machine.ended, machine.status) == (True, RunStatus.SUCCEEDED)


def test_first_waits_for_a_success() -> None:
    machine = started(lambda: C(first(A(), B())), {"a": Boom}, on_failure="continue")
    finish(machine, "a")
    assert ("c", ()) not in machine.steps
    finish(machine, "b", "c")
    assert machine.status is RunStatus.FAILED


def test_first_of_failures_only_is_skipped() -> None:
    machine = started(lambda: C(first(A(), B())), {"a": Boom, "b": Boom}, on_failure="continue")
    finish(machine, "a", "b")
    assert machine.statuses("c") == ["skipped"]
    assert machine.ended


def test_first_of_ignored_failures_only_goes_on_with_none() -> None:
    machine = started(
        lambda: C(first(A(), B())), {"a": Boom, "b": Boom, "c": lambda x: [x]}, on_failure="ignore"
    )
    finish(machine, "a", "b", "c")
    assert machine.result == [None]


@pytest.mark.parametrize("count", [None, 2])
def test_an_ignored_failure_wins_no_first_in_an_arm_either(count: int | None) -> None:
    """In the arm there is a place that stands for the step outside of it."""

    def pipeline() -> Any:
        a, f = A(), F()
        return D(switch(PICK(), {"x": lambda: C(first(a, B(), f, count=count))}, otherwise=None))

    given = {"a": Boom, "pick": "x", "c": lambda x: x, "d": lambda x: x}
    machine = started(pipeline, given, on_failure="ignore")
    finish(machine, "a", "pick")
    assert ("c", ()) not in machine.steps
    finish(machine, "b", "f", "c", "d")
    assert machine.ended
    assert machine.result == ("b" if count is None else ["b", "f"])


def test_an_arm_not_chosen_is_skipped_at_once_although_its_other_input_still_runs() -> None:
    def pipeline() -> Any:
        slow = SLOW()
        return D(switch(PICK(), {"x": A}, otherwise=lambda: B(slow)))

    machine = started(pipeline, {"pick": "x", "d": lambda x: x})
    finish(machine, "pick", "a")
    assert machine.statuses("b") == ["skipped"]
    finish(machine, "d")
    assert not machine.ended
    finish(machine, "slow")
    assert machine.ended
    assert machine.result == "a"


def test_deep_inside_an_arm_not_chosen_nothing_waits_and_the_run_still_ends_last() -> None:
    """The inner switch is pruned, so is its merge, so is c; and c does not vouch for slow."""

    def pipeline() -> Any:
        slow = SLOW()

        def arm() -> Any:
            inner = switch(A(), {"x": lambda: B()}, otherwise=lambda: F())
            return C(inner, slow)

        return D(switch(PICK(), {"x": arm}, otherwise=E))

    machine = started(pipeline, {"pick": "other"})
    finish(machine, "pick", "e", "d")
    assert machine.statuses("c") == ["skipped"]
    assert not machine.ended
    finish(machine, "slow")
    assert machine.ended


def test_a_step_behind_a_failure_is_skipped_when_all_its_inputs_have_ended() -> None:
    machine = started(lambda: C(A(), B()), {"a": Boom}, on_failure="continue")
    finish(machine, "a")
    assert ("c", ()) not in machine.steps
    finish(machine, "b")
    assert machine.statuses("c") == ["skipped"]


def test_a_barrier_orders_without_data_and_takes_not_chosen_for_done() -> None:
    def pipeline() -> Any:
        made = []
        switch(PICK(), {"x": lambda: made.append(A())}, otherwise=None)
        return C.options(after=[barrier(made[0], B())])()

    machine = started(pipeline, {"pick": "y"})
    finish(machine, "pick")
    assert machine.statuses("a") == ["skipped"]
    assert ("c", ()) not in machine.steps
    finish(machine, "b", "c")
    assert machine.status is RunStatus.SUCCEEDED


def test_a_wait_is_a_step_that_waits() -> None:
    machine = started(lambda: A(wait_for("approve", timeout=60, default="no")))
    assert machine.steps["approve", ()].status is JobStatus.WAITING
    finish(machine, "approve", "a")
    assert machine.status is RunStatus.SUCCEEDED


def test_a_sequence_needs_no_join_at_all() -> None:
    machine = started(lambda: C(B(A())))
    finish(machine, "a", "b", "c")
    assert machine.ended
    assert machine.joins == {}


def test_a_delay_is_passed_on() -> None:
    machine = started(lambda: B.options(delay=5)(A()))
    finish(machine, "a")
    assert machine.steps["b", ()].delay == 5.0


def test_an_outer_value_gates_the_expand_and_is_there_for_every_element() -> None:
    load = FakeTask(lambda element, outer: None)
    load.name = "tests.load"

    def pipeline() -> Any:
        return load.map(A(), B()).collect()

    machine = started(pipeline, {"a": [1, 2], "b": "outer", "load": lambda element, outer: [element, outer]})
    finish(machine, "a")
    assert [at for at in machine.steps if at[0] == "load"] == []
    finish(machine, "b")
    machine.finish("load", (1,))
    machine.finish("load", (0,))
    assert machine.result == [[1, "outer"], [2, "outer"]]
