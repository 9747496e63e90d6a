"""pipelines/model/diff: the difference of two definitions, as people and programs read it."""

# ruff: noqa: PLW0108 - each lambda stands for a whole pipeline

from __future__ import annotations

from typing import Any

from penstock.pipelines.define.graph import first, switch, wait_for
from penstock.pipelines.model.diff import compare, shape_changes
from tests.pure.pipelines.fakes import graph, task

A, B, C = (task(name, "*values") for name in "abc")
TELL = task("tell", "run_id")


def told(before: Any, after: Any, **settings: object) -> list[str]:
    difference = compare(graph(before), graph(after, **settings))
    return [line.replace("<lambda>", "f") for line in str(difference).splitlines()[1:]]


def test_the_same_is_no_difference() -> None:
    difference = compare(graph(lambda p: A(p)), graph(lambda p: A(p)))
    assert not difference
    assert difference.summary == "no difference"
    assert str(difference).endswith(": no difference")


def test_steps_and_edges() -> None:
    assert told(lambda p: B(A(p)), lambda p: C(A(p))) == [
        "+ c",
        "- b",
        "+ a → c",
        "- a → b",
        "~ result: b → c",
    ]


def test_edges_are_seen_through_what_only_steers() -> None:
    lines = told(lambda p: B(A(p)), lambda p: B(C.map(A(p)).collect()))
    assert {"+ a → c", "+ c → b", "- a → b"} <= set(lines)
    assert "~ b (arguments: (a) → (@collect.c))" in lines


def test_what_has_changed_of_a_node() -> None:
    def one(p: Any) -> Any:
        return switch(A(p), {"x": B}, otherwise=None)

    def two(p: Any) -> Any:
        return switch(A(p), {"y": B}, otherwise=None)

    assert told(one, two) == ["~ @switch.a (arms: 'x', otherwise → 'y', otherwise)"]
    several = told(lambda p: first(A(p), B(p), C(p)), lambda p: first(A(p), B(p), C(p), count=2))
    assert several == ["~ @first.a (count: none → 2)"]


def test_settings_of_the_whole() -> None:
    lines = told(lambda p: A(p), lambda p: A(p), max_steps=5, halt_running="cancel", on_failure="continue")
    assert lines == [
        "~ on_failure: halt → continue",
        "~ max_steps: none → 5",
        "~ halt_running: finish → cancel",
    ]


def test_a_reminder_is_told_and_is_not_what_a_step_is() -> None:
    one = graph(lambda _: wait_for("go"))
    two = graph(lambda _: wait_for("go", remind=TELL, remind_every=60))
    (change,) = compare(one, two).changed
    assert str(change) == "go (reminder: none → tests.tell every 60 s)"
    assert shape_changes(one.by_key["go"], two.by_key["go"]) == ()


def test_what_only_looks_alike_is_told_apart() -> None:
    """A parameter may be called like a step, and a step like a number; else both are told by their names alone."""
    seven = A.options(key="7")
    lines = told(lambda a: B(a), lambda a: B(A(a)))
    assert "~ b (arguments: (parameter a) → (output of a))" in lines
    assert "~ c (arguments: (7) → (output of 7))" in told(
        lambda p: [seven(p), C(7)], lambda p: [None, C(seven(p))]
    )
    assert "~ result: parameter a → output of a" in told(lambda a: [A(1), a][1], lambda _a: A(1))
    assert "~ b (arguments: (a) → (a, p))" in told(lambda p: B(A(p)), lambda p: B(A(p), p))
