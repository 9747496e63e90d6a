"""pipelines/model/compatibility: a run may go on with another definition exactly where that gives what the other
would have given from the start.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from penstock.pipelines.define.graph import barrier, first, switch, wait_for
from penstock.pipelines.define.validation import check
from penstock.pipelines.model.compatibility import StoredState, nodes_that_fired, obstacles, stable_nodes
from penstock.pipelines.model.definition import Definition
from penstock.pipelines.plan.plan import begin
from penstock.values.status import RunStatus
from tests.pure.pipelines.fakes import graph, task
from tests.pure.pipelines.machine import Machine
from tests.pure.pipelines.programs import Program, Writer
from tests.pure.pipelines.reference import Reference
from tests.pure.pipelines.test_planner_against_reference import check_invariants, expected_status

A, B, C, D = (task(name, "*values") for name in "abcd")
SEEDS = st.integers(0, 2**40)


def present(machine: Machine) -> StoredState:
    """What storage would have of this run."""
    steps: dict[str, bool] = {}
    for (node, _), step in machine.steps.items():
        steps[node] = steps.get(node, False) or step.status.terminal
    joins: dict[str, bool] = {}
    for (node, _), row in machine.joins.items():
        joins[node] = joins.get(node, False) or row.fired
    for arrival in machine.waiting:
        joins.setdefault(arrival.door, False)
    return StoredState(True, steps, joins)


def after(function: Any, *ended: str) -> tuple[Definition, StoredState]:
    """A definition, and a run of it in which these steps have ended."""
    definition = graph(function)
    machine = Machine(definition, lambda *_: ["x", "y"], {"p": 1})
    machine.apply(begin(machine.wiring))
    for key in ended:
        machine.finish(*([key] if "[" not in key else [key[:-3], (int(key[-2]),)]))
    return definition, present(machine)


def in_the_way(old: tuple[Definition, StoredState], function: Any) -> list[str]:
    return obstacles(check(old[0]), check(graph(function)), old[1])


# by hand


def test_what_was_not_reached_may_change() -> None:
    old = after(lambda p: C(B(A(p))), "a")
    assert in_the_way(old, lambda p: D(B(A(p)), 7)) == []
    assert in_the_way(old, lambda p: D(C(B(A(p))))) == []
    assert in_the_way(old, lambda p: B(A(p))) == []


def test_a_step_that_is_there_may_not_change() -> None:
    old = after(lambda p: C(B(A(p))), "a")
    (told,) = in_the_way(old, lambda p: C(B(A(p), 7)))
    assert told == "step 'b' is in the run already, and has changed: arguments: (a) → (a, 7)"
    assert "'b' is in the run already, and is no longer there" in in_the_way(old, lambda p: C(A(p)))[0]


def test_what_made_a_step_that_is_there_may_not_change() -> None:
    old = after(lambda p: C(B(A(p))), "a", "b")
    assert in_the_way(old, lambda p: C(B(A(p, 1))))[0].startswith("step 'a' is in the run already")


def test_nothing_can_be_put_behind_what_has_ended() -> None:
    def more(p: Any) -> Any:
        made = A(p)
        return [C(B(made)), D(made)]

    old = after(lambda p: C(B(A(p))), "a")
    assert "step 'a' has ended and would have to lead to step 'd' too" in in_the_way(old, more)


def test_nothing_can_start_with_a_run_that_has_begun() -> None:
    old = after(lambda p: B(A(p)), "a")
    assert "step 'd' would have to start with the run, which has begun" in in_the_way(
        old, lambda p: [B(A(p)), D(p)]
    )
    assert in_the_way((old[0], StoredState(begun=False)), lambda p: [B(A(p)), D(p)]) == []


def test_a_join_that_has_counted_keeps_its_count() -> None:
    old = after(lambda p: C(A(p), B(p)), "a")
    told = in_the_way(old, lambda p: C(A(p), B(p), D(p)))
    assert "step 'c' has begun to count: it waits for 2, and would for 3" in told
    fresh = after(lambda p: C(A(p), B(p)))
    assert "step 'd' would have to start with the run, which has begun" in in_the_way(
        fresh, lambda p: C(A(p), B(p), D(p))
    )
    assert in_the_way(fresh, lambda p: C(A(p), B(p), 1)) == []


def test_the_end_of_a_run_may_be_moved_while_it_counts() -> None:
    """Two leaves, one has ended: a step behind the other is one leaf for another."""
    old = after(lambda p: [A(p), B(p)], "a")
    assert in_the_way(old, lambda p: [A(p), C(B(p))]) == []
    assert in_the_way(old, lambda p: [A(p), C(B(p)), D(p)]) != []


def test_inside_an_expand_what_no_element_has_reached_may_change() -> None:
    old = after(lambda p: C(B.map(A(p)).collect()), "a", "b[0]")
    assert in_the_way(old, lambda p: D(B.map(A(p)).collect())) == []
    assert in_the_way(old, lambda p: C(D(B.map(A(p))).collect())) != []
    begun = after(lambda p: C(B.map(A(p)).collect()), "a")
    told = in_the_way(begun, lambda p: C(D(B.map(A(p))).collect()))
    assert "@expand.b has ended and would have to lead to @collect.d too" in told


def test_an_expand_that_is_open_has_waited_for_all_it_will_ever_wait_for() -> None:
    def old(p: Any) -> Any:
        late = C(wait_for("go"))
        B.map(A(p))
        return late

    def more(p: Any) -> Any:
        late = C(wait_for("go"))
        D(B.map(A(p)), late)
        return late

    definition, there = after(old, "a")
    together = check(replace(graph(more), doors=False))
    told = obstacles(check(definition), together, there)
    assert "@expand.b has begun and would have had to wait for step 'c' too" in told
    assert in_the_way((definition, there), more) == [], "the step waits by itself, and has not begun"
    assert in_the_way(after(old), more) == [], "no step has opened it yet"
    told = in_the_way(after(more, "a", "go", "c"), old)
    assert (
        "step 'c' has ended and led to what step 'd' uses from outside of its expand, and would no longer"
        in told
    )


def test_what_waits_at_a_door_is_in_the_run() -> None:
    def old(p: Any) -> Any:
        late = C(wait_for("go"))
        D(B.map(A(p)), late)
        return late

    def less(p: Any) -> Any:
        late = C(wait_for("go"))
        D(B.map(A(p)))
        return late

    told = in_the_way(after(old, "a", "b[0]"), less)
    door = "what step 'd' uses from outside of its expand"
    assert f"{door} is in the run already, and is no longer there" in told


def test_where_a_step_waits_changes_nothing_about_what_it_comes_to() -> None:
    new = graph(lambda p: D(B.map(A(p)), C(p)).collect())
    assert new.doors
    old = check(replace(new, doors=False))
    assert {"a", "b", "c", "d"} <= stable_nodes(old, check(new)) == stable_nodes(old, old)


def test_a_parameter_is_not_a_step_of_the_same_name() -> None:
    old = after(lambda p: [B(p), C(wait_for("go"))], "b")
    told = in_the_way(old, lambda p: [B(A.options(key="p")(p)), C(wait_for("go"))])
    changed = "step 'b' is in the run already, and has changed"
    assert f"{changed}: arguments: (parameter p) → (output of p)" in told


def test_options_may_change_for_what_is_there() -> None:
    old = after(lambda p: B(A(p)), "a")
    assert in_the_way(old, lambda p: B.options(queue="mail", timeout=3)(A.options(retries=1)(p))) == []


def test_nodes_that_only_steer_count_as_decided_where_it_is_not_known() -> None:
    definition, there = after(lambda p: C.options(after=[barrier(A(p), B(p))])(p), "a")
    assert nodes_that_fired(check(definition), there) >= {"a"}
    assert "@barrier.a" not in nodes_that_fired(check(definition), there)
    definition, there = after(lambda p: D(first(A(p), B(p))), "a")
    assert "@first.a" in nodes_that_fired(check(definition), there)


@pytest.mark.parametrize("label", ["x", "y"])
def test_an_arm_that_was_passed_by_may_not_change_either(label: str) -> None:
    definition = graph(lambda p: D(switch(A(p), {"x": B}, otherwise=C)))
    machine = Machine(definition, lambda *_: label, {"p": 1})
    machine.apply(begin(machine.wiring))
    machine.finish("a")
    other = graph(lambda p: D(switch(A(p), {"z": B}, otherwise=C)))
    assert any("@switch.a" in told for told in obstacles(machine.wiring, check(other), present(machine)))
    same = graph(lambda p: B(D(switch(A(p), {"x": B}, otherwise=C))))
    assert obstacles(machine.wiring, check(same), present(machine)) == []


def test_stable_is_what_comes_to_the_same() -> None:
    old = check(graph(lambda p: D(B(A(p)), C(p))))
    new = check(graph(lambda p: D(B(A(p), 1), C(p))))
    assert {key for key in stable_nodes(old, new) if not key.startswith("@")} == {"a", "c"}
    assert stable_nodes(old, old) >= {"a", "b", "c", "d"}


# by chance


class Turning(Random):
    """Chooses like one seed for a while, then like another: two programs with the same beginning."""

    def __init__(self, seed: int, turn: int, other: int) -> None:
        super().__init__(seed)
        self.left = turn
        self.other = Random(other)

    def random(self) -> float:
        self.left -= 1
        return super().random() if self.left >= 0 else self.other.random()

    def getrandbits(self, k: int) -> int:
        self.left -= 1
        return super().getrandbits(k) if self.left >= 0 else self.other.getrandbits(k)


def written(choose: Random, seed: int, failing: float) -> Program:
    def random_pipeline(given: object) -> object:
        return Writer(choose, strategies=False).write(given)

    return Program(graph(random_pipeline, on_failure="continue"), seed, failing)


@settings(max_examples=400, deadline=None)
@given(
    seed=SEEDS,
    other=SEEDS,
    turn=st.integers(1, 120),
    order=SEEDS,
    begun=st.integers(0, 12),
    failing=st.sampled_from([0.0, 0.15]),
    together=st.booleans(),
)
def test_a_moved_run_ends_as_if_it_had_begun_so(
    seed: int, other: int, turn: int, order: int, begun: int, failing: float, together: bool
) -> None:
    before = written(Turning(seed, turn, seed + 1), seed, failing)
    if together:
        # A run from before steps inside expands waited by themselves.
        before = replace(before, definition=replace(before.definition, doors=False))
    now = written(Turning(seed, turn, other), seed, failing)
    machine = Machine(before.definition, before.outcome, {"given": "hello"}, seed=order)
    machine.apply(begin(machine.wiring, machine.facts))
    for _ in range(begun):
        ready = [at for at, step in machine.steps.items() if not step.status.terminal]
        if not ready:
            break
        machine.finish(*machine.random.choice(ready))
    if machine.ended or machine.mode != "running":
        return
    target = check(now.definition)
    refused = obstacles(machine.wiring, target, present(machine))
    event("the same" if before.definition == now.definition else "refused" if refused else "moved")
    if refused:
        return
    machine.wiring, machine.outcome = target, now.outcome
    while ready := [at for at, step in machine.steps.items() if not step.status.terminal]:
        machine.finish(*machine.random.choice(ready))
    if machine.status is RunStatus.HALTED:
        return
    check_invariants(machine)

    def winner(key: str, path: tuple[int, ...]) -> str | None:
        row = machine.joins.get((key, path))
        return row.tally.winner if row else None

    reference = Reference(now.definition, now.outcome, {"given": "hello"}, winner)
    lost = reference.losers({at: step.reason for at, step in machine.steps.items()})
    found = {at: (step.status, step.reason) for at, step in machine.steps.items() if at not in lost}
    ends = {at: reference.end(*at) for at in reference.steps() if at not in lost}
    assert found == {at: expected_status(end.how, end.failed) for at, end in ends.items()}
    for at, end in ends.items():
        assert machine.steps[at].output == end.value
    if machine.status is RunStatus.SUCCEEDED:
        assert machine.result == reference.result
