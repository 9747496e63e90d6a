"""pipelines/define/graph, pipelines/define/fluent: Graphs that other systems get wrong, one test each: at the level
of the planner.
"""

from __future__ import annotations

from typing import Any

import pytest

from penstock.pipelines.define.fluent import flow
from penstock.pipelines.define.graph import switch
from penstock.pipelines.model.definition import Definition
from penstock.pipelines.model.expressions import Path
from penstock.values.status import JobStatus, Reason, RunStatus
from tests.pure.pipelines.fakes import app_flow, graph, task
from tests.pure.pipelines.machine import Boom, Machine, Outcome

A, B, C, D, E, F = (task(name) for name in "abcdef")
START = task("start", "n")
ORDERS = range(20)


def outcome_of(**values: Any) -> Outcome:
    """A step returns what is given for its key (functions are called with its arguments), or these."""

    def outcome(node: str, path: Path, args: list[object], kwargs: dict[str, object]) -> object:
        value = values.get(node, lambda *given: [node, *given])
        if value is Boom:
            raise Boom
        return value(*args) if callable(value) else value

    return outcome


def run(definition: Definition, seed: int = 0, max_fanout: int | None = None, **values: Any) -> Machine:
    params: dict[str, object] = dict.fromkeys(definition.params, 1)
    return Machine(definition, outcome_of(**values), params, seed, max_fanout).run()


def same(x: object) -> object:
    return x


def test_01_an_empty_expansion_collapses_to_an_empty_list() -> None:
    definition = app_flow("p").start(START).expand(A).collapse(B).definition
    machine = run(definition, start=[], b=same)
    assert machine.result == []
    assert machine.statuses("b") == ["succeeded"]
    assert machine.statuses("a") == []


@pytest.mark.parametrize("seed", ORDERS)
def test_02_an_empty_inner_expansion_does_not_hold_up_the_outer_collapse(seed: int) -> None:
    definition = app_flow("p").start(START).expand(A).expand(B).collapse(C).collapse(D).definition
    machine = run(definition, seed, start=[2, 0, 1], a=lambda n: list(range(n)), b=same, c=same, d=same)
    assert machine.result == [[0, 1], [], [0]]
    assert machine.statuses("d") == ["succeeded"]


def test_03_elements_that_are_false_are_elements() -> None:
    definition = app_flow("p").start(START).expand(A).collapse(B).definition
    assert run(definition, start=[None, False, 0], a=same, b=same).result == [None, False, 0]


@pytest.mark.parametrize("seed", ORDERS)
def test_04_nested_divides_combine_once_each(seed: int) -> None:
    definition = app_flow("p").start(START).divide(A, flow(B).divide(C, D).combine(E)).combine(F).definition
    machine = run(definition, seed, start=0, a="a", c="c", d="d", e=same, f=same)
    assert machine.result == ["a", ["c", "d"]]
    assert machine.statuses("e") == machine.statuses("f") == ["succeeded"]


@pytest.mark.parametrize("seed", ORDERS)
def test_04_nested_divides_in_one_line(seed: int) -> None:
    definition = app_flow("p").start(START).divide(A, B).divide(C, D).combine(E).combine(F).definition
    machine = run(definition, seed, e=same, f=same)
    assert machine.statuses("f") == ["succeeded"]
    assert isinstance(machine.result, list)
    assert len(machine.result) == 2
    assert [machine.statuses(key) for key in ("e", "e_2")] == [["succeeded"]] * 2


@pytest.mark.parametrize("seed", ORDERS)
def test_05_a_branch_that_expands_and_collapses_combines_as_one_value(seed: int) -> None:
    definition = app_flow("p").start(START).divide(flow(A).expand(B).collapse(C), D).combine(E).definition
    machine = run(definition, seed, start=0, a=[1, 2, 3], b=same, c=sum, d="d", e=same)
    assert machine.result == [6, "d"]
    assert machine.statuses("e") == ["succeeded"]


@pytest.mark.parametrize("seed", range(100))
def test_06_two_of_three_combine_whatever_the_order(seed: int) -> None:
    def partial(n: int) -> Any:
        start = START(n)
        a, b, _ = A(start), B(start), C(start)
        return D([a, b])

    machine = run(graph(partial), seed, start=0, a="a", b="b", c="c", d=same)
    assert machine.result == ["a", "b"]
    assert machine.statuses("c") == machine.statuses("d") == ["succeeded"]


def test_07_what_follows_a_block_keeps_the_block() -> None:
    definition = app_flow("p").start(START).divide(flow(A).chain(B), C).chain(D).combine(E).definition
    machine = run(
        definition,
        start=0,
        a="a",
        b=lambda x: x + "b",
        c="c",
        d=lambda x: x + "d",
        d_2=lambda x: x + "d",
        e=same,
    )
    assert machine.result == ["abd", "cd"]


def test_07_an_expand_behind_a_divide_expands_each_branch() -> None:
    definition = app_flow("p").start(START).divide(A, B).expand(C).collapse(D).combine(E).definition
    machine = run(definition, start=0, a=[1, 2], b=[3], c=same, c_2=same, d=same, d_2=same, e=same)
    assert machine.result == [[1, 2], [3]]


@pytest.mark.parametrize("seed", ORDERS)
def test_08_joins_are_in_definition_and_element_order(seed: int) -> None:
    definition = app_flow("p").start(START).expand(A).divide(B, C).combine(D).collapse(E).definition
    machine = run(
        definition, seed, start=list(range(5)), a=same, b=lambda x: -x, c=lambda x: x * 10, d=same, e=same
    )
    assert machine.result == [[-n, n * 10] for n in range(5)]


@pytest.mark.parametrize("value", [7, "text", None, True, 1.5])
@pytest.mark.parametrize("strategy", ["halt", "continue", "ignore"])
def test_09_a_value_that_cannot_be_iterated_halts_at_once_and_says_its_type(
    value: object, strategy: str
) -> None:
    definition = app_flow("p", on_failure=strategy).start(START).expand(A).collapse(B).definition
    machine = run(definition, start=value)
    assert machine.status is RunStatus.HALTED
    ((node, _, _, reason, detail),) = machine.failures
    assert (node, reason) == ("@expand.a", Reason.TRANSITION_INVALID)
    assert ("None" if value is None else type(value).__name__) in detail
    assert machine.statuses("b") == ["skipped"]


def test_09_max_fanout_is_refused_before_anything_is_created() -> None:
    definition = app_flow("p").start(START).expand(A).collapse(B).definition
    machine = run(definition, max_fanout=2, start=[1, 2, 3])
    assert machine.failures[0][3] is Reason.MAX_FANOUT_EXCEEDED
    assert machine.statuses("a") == []
    assert run(definition, max_fanout=3, start=[1, 2, 3]).status is RunStatus.SUCCEEDED


def test_09_a_pipelines_own_max_fanout_goes_before_the_apps() -> None:
    definition = app_flow("p", max_fanout=5).start(START).expand(A).definition
    assert run(definition, max_fanout=1, start=[1, 2, 3]).status is RunStatus.SUCCEEDED
    assert run(definition, max_fanout=9, start=list(range(6))).status is RunStatus.HALTED


def test_09_an_optional_expand_that_cannot_be_is_empty() -> None:
    definition = app_flow("p").start(START).expand(A.options(optional=True)).collapse(B).definition
    machine = run(definition, start=7, b=same)
    assert machine.status is RunStatus.SUCCEEDED
    assert machine.result == []


@pytest.mark.parametrize("seed", ORDERS)
def test_10_branches_nest_and_branch_inside_an_element(seed: int) -> None:
    def pipeline(n: int) -> Any:
        element = A.map(START(n))

        def outer() -> Any:
            return switch(B(element), {"2": C}, otherwise=lambda: D(element))

        return switch(element, {"1": None}, otherwise=outer).collect()

    machine = run(
        graph(pipeline), seed, start=[1, 2, 3], a=same, b=same, c=lambda x: f"c{x}", d=lambda x: f"d{x}"
    )
    assert machine.result == [1, "c2", "d3"]
    assert machine.steps["b", (0,)].reason is Reason.BRANCH_NOT_TAKEN


def test_10_expands_inside_arms() -> None:
    def pipeline(n: int) -> Any:
        start = START(n)
        return F(switch(start, {"[1, 2]": lambda: B.map(start).collect()}, otherwise=A))

    assert run(graph(pipeline), start=[1, 2], b=lambda x: x * 2, f=same).result == [2, 4]
    other = run(graph(pipeline), start=[3], a="a", f=same)
    assert other.result == "a"
    assert other.statuses("b") == []


def test_11_a_step_can_raise_to_halt() -> None:
    def pipeline() -> Any:
        return B(A.options(on_failure="halt")(1)), C(2), D(3)

    machine = run(graph(pipeline, on_failure="continue"), a=Boom)
    assert machine.status is RunStatus.HALTED
    assert machine.statuses("b") == ["skipped"]


def test_11_a_step_can_lower_to_continue() -> None:
    def pipeline() -> Any:
        return B(A.options(on_failure="continue")(1)), D(C(2))

    machine = run(graph(pipeline), a=Boom)
    assert machine.status is RunStatus.FAILED
    assert machine.steps["b", ()].reason is Reason.UPSTREAM_FAILED
    assert machine.statuses("d") == ["succeeded"]


def test_11_ignore_lets_descendants_run_with_none_and_still_fails_the_run() -> None:
    machine = run(graph(lambda: B(A.options(on_failure="ignore")(1))), a=Boom, b=lambda x: [x])
    assert machine.outputs("b") == [[None]]
    assert machine.status is RunStatus.FAILED


def test_12_an_optional_step_that_fails_leaves_the_run_succeeded_with_a_mark() -> None:
    machine = run(graph(lambda: B(A.options(optional=True)(1))), a=Boom, b=lambda x: [x])
    assert machine.status is RunStatus.SUCCEEDED
    assert machine.result == [None]
    assert machine.failures[0][:2] == ("a", ())
    assert machine.steps["a", ()].status is JobStatus.FAILED


@pytest.mark.parametrize("seed", ORDERS)
def test_a_skip_does_not_become_harmless_by_ignoring(seed: int) -> None:
    """A skipped step blocks what is behind it, also when failures are ignored there."""

    def pipeline() -> Any:
        return C(B.options(on_failure="ignore")(A.options(on_failure="continue")(1)))

    machine = run(graph(pipeline), seed, a=Boom)
    assert machine.statuses("b") == machine.statuses("c") == ["skipped"]


def test_a_dict_expands_to_its_items() -> None:
    definition = app_flow("p").start(START).expand(A).collapse(B).definition
    assert run(definition, start={"k": 1, "l": 2}, a=same, b=same).result == [["k", 1], ["l", 2]]


def test_an_expand_that_is_never_closed_ends_with_its_last_element() -> None:
    def pipeline(n: int) -> Any:
        B(A.map(START(n)))
        return C(1)

    machine = run(graph(pipeline), start=[1, 2, 3])
    assert machine.status is RunStatus.SUCCEEDED
    assert machine.statuses("b") == ["succeeded"] * 3


def test_one_failed_element_skips_the_collapse_under_continue_and_not_under_ignore() -> None:
    def fails_on_two(x: int) -> int:
        if x == 2:
            raise Boom
        return x

    definition = app_flow("p", on_failure="continue").start(START).expand(A).collapse(B).definition
    assert run(definition, start=[1, 2, 3], a=fails_on_two).statuses("b") == ["skipped"]
    definition = app_flow("p", on_failure="ignore").start(START).expand(A).collapse(B).definition
    assert run(definition, start=[1, 2, 3], a=fails_on_two, b=same).outputs("b") == [[1, None, 3]]
