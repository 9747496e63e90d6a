"""pipelines/define: definitions that are refused before any row is written, and their messages."""

# ruff: noqa: ARG005, PLW0108 - each lambda stands for a whole pipeline

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from penstock import Penstock
from penstock.errors import DefinitionError
from penstock.pipelines.define.fluent import flow
from penstock.pipelines.define.graph import barrier, first, switch, wait_for
from penstock.pipelines.model.definition import Definition
from tests.pure.pipelines.fakes import app_flow, graph, task

A, B, C, D = (task(name) for name in "abcd")
TWO = task("two", "x, y")
START = task("start", "n")
WRONG: Any = 3
BRANCH: Any = flow(A)


def nothing(n: int) -> Any:
    return n


def cycle(n: int) -> Any:
    return A.options(after=["b"])(1), B.options(after=["c"])(2), C.options(after=["a"])(3)


def itself(n: int) -> Any:
    return A.options(after=["a"])(n)


def inner_needs_all(n: int) -> Any:
    element = A.map(START(n))
    total = B(element.collect())
    return TWO(element, total).collect()


def into_an_expand(n: int) -> Any:
    A.map(START(n))
    return B.options(after=["a"])(n)


def siblings(n: int) -> Any:
    found = START(n)
    return TWO(A.map(found), B.map(found))


def arm_reaches_into_expand(n: int) -> Any:
    element = A.map(START(n))
    return switch(START(n), {"x": lambda: B(element)}, otherwise=None)


def arm_ends_in_expand(n: int) -> Any:
    return switch(START(n), {"x": lambda: B.map(START(n))}, otherwise=None)


def bare_barrier(n: int) -> Any:
    barrier(A(n), B(n))
    return C(n)


def bare_wait(n: int) -> Any:
    A(n)
    wait_for("go")
    return B(n)


def wait_beside(n: int) -> Any:
    a = A(n)
    wait_for("go", after=[a])
    return B(a)


GRAPHS: list[tuple[Callable[..., Any], list[str]]] = [
    (nothing, ["'nothing'", "no steps"]),
    (cycle, ["cycle", "a", "→"]),
    (itself, ["'a' depends on itself"]),
    (inner_needs_all, ["cycle", "second", ".map()"]),
    (into_an_expand, ["'b' comes after 'a'", "collect()"]),
    (siblings, ["'two'", "two different expands", "collect()"]),
    (arm_reaches_into_expand, ["'b'", "collect()"]),
    (arm_ends_in_expand, ["inside an expand", "collect()"]),
    (bare_barrier, ["barrier()", "no step comes after", "options(after=[passed])"]),
    (bare_wait, ["wait_for('go')", "no step uses its value", "options(after=[answer])"]),
    (wait_beside, ["wait_for('go')", "no step uses its value"]),
    (lambda n: A.options(after=["nope"])(n), ["'a'", "'nope'", "no such step"]),
    (lambda n: [A.options(key="k")(n), B.options(key="k")(n)], ["two steps", "'k'", "options(key="]),
    (lambda n: A.options(key="@end")(n), ["'@end'", "reserved"]),
    (lambda n: A.options(after=["@expand.a"])(n), ["no such step"]),
    (lambda n: A.options(key="a b")(n), ["'a b'", "not allowed"]),
    (lambda n: TWO(n), ["'two'", "missing a required argument", "'y'", "(x, y)"]),
    (lambda n: A(n, n), ["'a'", "too many positional arguments"]),
    (lambda n: A(n, z=n), ["'a'", "'z'"]),
    (lambda n: A.map(n), ["returns a", "never closed", ".collect()"]),
    (lambda n: A(n).collect(), ["a.collect()", "not inside an expand"]),
    (lambda n: A.map(), ["first argument"]),
    (lambda n: switch(A(n), {"x": B}), ["otherwise="]),
    (lambda n: switch(5, {"x": B}, otherwise=None), ["not on 5"]),
    (lambda n: switch(A(n), {1: B, "1": C}, otherwise=None), ["same label"]),
    (lambda n: switch(A(n), {"x": lambda value: B(value)}, otherwise=None), ["takes no parameters"]),
    (lambda n: switch(A(n), {"x": B(n)}, otherwise=None), ["called already", "lambda"]),
    (lambda n: switch(A(n), {"x": 3}, otherwise=None), ["not 3"]),
    (lambda n: first(), ["first()", "at least one"]),
    (lambda n: first(A(n), n), ["first()", "steps"]),
    (lambda n: barrier(3), ["barrier()", "not 3"]),
    (lambda n: A.options(after=3)(n), ["after=", "list"]),
    (lambda n: A.options(after=[3])(n), ["after=", "not 3"]),
    (lambda n: wait_for(""), ["signal"]),
    (lambda n: wait_for("x", default=1), ["default needs a timeout"]),
    (lambda n: wait_for("x", timeout=-1), ["wait_for('x'): timeout=-1"]),
    (lambda n: A.options(quueue="mail")(n), ["'a'", "'quueue'", "Did you mean 'queue'"]),
    (lambda n: A.options(connection=object())(n), ["'a'", "connection", "trigger"]),
    (lambda n: A.options(on_failure="panic")(n), ["'a'", "'panic'", "halt"]),
    (lambda n: A.options(optional=True, on_failure="halt")(n), ["'a'", "Leave one of them out"]),
    (lambda n: A.options(delay=-1)(n), ["'a'", "delay=-1"]),
    (lambda n: A.options(priority="high")(n), ["'a'", "priority='high'"]),
    (lambda n: A.options(retries=-1)(n), ["'a'", "max=-1"]),
    (lambda n: A(object()), ["'a'", "object"]),
    (lambda *n: A(n), ["names", "*n"]),
    # a value that does not exist yet
    (lambda n: A(n) if n else B(n), ["'n'", "switch("]),
    (lambda n: [A(x) for x in n], ["'n'", ".map("]),
    (lambda n: A(A(n).name), ["of a is known only", "'name'"]),
    (lambda n: A(A(n)["k"]), ["of a is known only", "'k'"]),
    (lambda n: A(n + 1), ["'n'", "computed"]),
    (lambda n: A(f"{n}"), ["'n'", "string"]),
    (lambda n: A(n) if A(n) == 3 else B(n), ["compared", "switch("]),
    (lambda n: A(len(n)), ["length"]),
]


@pytest.mark.parametrize(("function", "words"), GRAPHS)
def test_a_wrong_graph_is_refused_with_the_step_and_the_way_out(
    function: Callable[..., Any], words: list[str]
) -> None:
    with pytest.raises(DefinitionError) as caught:
        graph(function)
    for word in words:
        assert word in str(caught.value)


FLOWS: list[tuple[Callable[[], Any], list[str]]] = [
    (lambda: app_flow("p").chain(A), ["'p'", ".chain()", "before the start"]),
    (lambda: app_flow("p").definition, ["'p'", "no start"]),
    (lambda: app_flow("p").start(START).start(A), ["'p'", "two starts", ".divide("]),
    (lambda: app_flow("p").start(START).combine(A).definition, ["combine() without a divide"]),
    (lambda: app_flow("p").start(START).collapse(A).definition, ["collapse() without an expand"]),
    (lambda: app_flow("p").start(START).converge(A).definition, ["converge() without a divert"]),
    (lambda: app_flow("p").start(START).expand(A).combine(B).definition, ["innermost", ".collapse(task)"]),
    (lambda: app_flow("p").start(START).divide(A, B).collapse(C).definition, ["innermost", ".combine(task)"]),
    (lambda: app_flow("p").start(START).divert({"x": A}), ["otherwise="]),
    (lambda: app_flow("p").start(START).divide(), ["'p'", "at least one branch"]),
    (lambda: app_flow("p").start(START).divide(A, WRONG), ["'p'", "divide()", "not 3"]),
    (lambda: app_flow("p").start(START).chain(BRANCH), ["'p'", "chain()", "divide()"]),
    (
        lambda: app_flow("p").start(START).divide(flow(A).expand(B), C).combine(D).definition,
        ["combine()", "expand that is never closed", ".collapse(task)"],
    ),
    (
        lambda: app_flow("p").start(START).expand(A).barrier().chain(B).definition,
        ["barrier()", "an expand is open", ".collapse(task)"],
    ),
    (
        lambda: app_flow("p").start(START).divide(A, flow(B).divide(C, D)).barrier().definition,
        ["barrier()", "never closed", ".combine(task)"],
    ),
    (lambda: app_flow("p").start(START).divide(A, B).barrier().definition, ["barrier()", "no step comes"]),
    (lambda: app_flow("p").start(START).barrier().definition, ["barrier()", "no step comes after"]),
    (lambda: app_flow("p").start(START).chain(TWO).definition, ["'two'", "'y'"]),
    (lambda: app_flow("p").start(START).on_halt(WRONG), ["'p'", "on_halt", "not 3"]),
    (lambda: app_flow("p", on_failure="stop"), ["'p'", "'stop'"]),
    (lambda: app_flow("p", timeout=3), ["'p'", "'timeout'"]),
]


@pytest.mark.parametrize(("build", "words"), FLOWS)
def test_a_wrong_flow_is_refused(build: Callable[[], Any], words: list[str]) -> None:
    with pytest.raises(DefinitionError) as caught:
        build()
    for word in words:
        assert word in str(caught.value)


def test_what_orders_or_ends_a_run_is_not_refused() -> None:
    def by_key(n: int) -> Any:
        wait_for("go", key="gate")
        return A.options(after=["gate"])(n)

    def last(n: int) -> Any:
        a = A(n)
        wait_for("go")
        return a

    def behind(n: int) -> Any:
        wait_for("go", after=["a"])
        return A(n)

    for function in (by_key, last, behind, lambda n: barrier(A(n)), lambda n: [wait_for("go"), A(n)]):
        graph(function)
    arms = app_flow("p").start(START).divert({"x": flow(A).divide(B, C), "y": D}, otherwise=None)
    for built in (app_flow("p").start(START).barrier().chain(A), arms.barrier().chain(A)):
        built.definition  # noqa: B018 - it is built


def test_parts_of_a_pipeline_are_refused_outside_of_one() -> None:
    calls: list[Callable[[], Any]] = [
        lambda: switch(1, {}, otherwise=None),
        lambda: first(1),
        lambda: barrier(1),
        lambda: wait_for("x"),
    ]
    for call in calls:
        with pytest.raises(DefinitionError, match=r"@app\.pipeline"):
            call()


def test_a_value_of_another_pipeline_is_refused() -> None:
    kept: list[Any] = []

    def one(n: int) -> Any:
        kept.append(A(n))
        return kept[0]

    graph(one)
    with pytest.raises(DefinitionError, match="another pipeline"):
        graph(lambda n: B(kept[0]))


def test_a_flow_and_a_function_do_not_share_a_name() -> None:
    app = Penstock("sqlite://")
    start = app.task(name="start")(lambda: 1)
    app.pipeline(name="one")(lambda: start())
    with pytest.raises(DefinitionError, match="two pipelines named 'one'"):
        app.flow("one")
    app.flow("two").start(start)
    with pytest.raises(DefinitionError, match="two pipelines named 'two'"):
        app.pipeline(name="two")(lambda: start())


def test_an_async_function_is_refused() -> None:
    async def described(n: int) -> Any:
        return A(n)

    with pytest.raises(DefinitionError, match="use def"):
        graph(described)


def test_a_pipeline_is_not_called_outside_of_another() -> None:
    with pytest.raises(DefinitionError, match=r"\.trigger\("):
        app_flow("p").start(START)(1)


def test_limits_of_width_and_number_hold_for_what_is_defined() -> None:
    a, b = task("a"), task("b")

    def divided(x: Any) -> Any:
        first = a(x)
        return [b(first), b(first), b(first)]

    graph(divided, max_fanout=3, max_steps=4)
    with pytest.raises(DefinitionError, match="'a' is divided into 3; max_fanout is 2"):
        graph(divided, max_fanout=2)
    with pytest.raises(DefinitionError, match="begins with 3 steps at once; max_fanout is 2"):
        graph(lambda x: [a(x), a(x), b(x)], max_fanout=2)
    with pytest.raises(DefinitionError, match="4 steps outside of expands alone; max_steps is 3"):
        graph(divided, max_steps=3)
    with pytest.raises(DefinitionError, match=r"max_fanout limits an expand.*\.map"):
        graph(lambda x: b.options(max_fanout=3)(a(x)))
    with pytest.raises(DefinitionError, match="give one of finish, cancel"):
        graph(divided, halt_running="stop")


def test_a_pipeline_does_not_start_itself_in_every_run() -> None:
    with Penstock("sqlite://") as app:

        @app.pipeline(name="endless")
        def endless(x: int) -> Any:
            return endless(x)

        with pytest.raises(
            DefinitionError, match="step 'endless' starts the same pipeline again, in every run"
        ):
            _ = endless.definition

        @app.pipeline(name="ending")
        def ending(x: int) -> Any:
            return switch(x, {0: None}, otherwise=ending)

        assert ending.definition.name == "ending"


@pytest.mark.parametrize("value", [5, None, "abc", b"abc", 1.5])
def test_what_cannot_be_expanded_is_not_given_to_map(value: Any) -> None:
    with pytest.raises(DefinitionError, match=rf"a\.map\(.*type {type(value).__name__} cannot be expanded"):
        graph(lambda x: A.map(value).collect())


def test_a_pipeline_returns() -> None:
    def yielding(x: Any) -> Any:
        yield A(x)

    with pytest.raises(DefinitionError, match="is a generator"):
        graph(yielding)


def test_what_is_not_used_does_not_change_a_hash() -> None:
    a = task("a")
    plain = graph(lambda x: a(x))
    assert "max_steps" not in plain.text
    assert "halt_running" not in plain.text
    other = graph(lambda x: a(x), max_steps=3, halt_running="cancel")
    assert Definition.from_text(other.text) == other
    assert other.hash != plain.hash


def odd_name(colour: str, run_id: str) -> None: ...


def odd_type(run_id: int) -> None: ...


def nothing_of_it(x: int) -> None: ...


@pytest.mark.parametrize("event", ["on_complete", "on_success", "on_failure", "on_halt"])
@pytest.mark.parametrize(
    ("callback", "message"),
    [
        (odd_name, "needs 'colour', and is told only run_id, pipeline, status, reasons"),
        (odd_type, "does not accept what it is told: argument 'run_id'"),
        (nothing_of_it, "does not accept what it is told: argument 'x'"),
    ],
)
def test_a_callback_that_could_not_be_called(event: str, callback: Callable[..., None], message: str) -> None:
    app = Penstock("sqlite://")
    step, hears = app.task(name="step")(nothing), app.task(name="hears")(callback)

    told: Any = {event: hears}

    @app.pipeline(name="heard", **told)
    def heard(n: int) -> Any:
        return step(n)

    with pytest.raises(DefinitionError, match=f"pipeline 'heard': its {event} .*{message}"):
        _ = heard.definition


def choosy(status: Literal["halted"], reasons: Annotated[list[str], Field(min_length=1)]) -> None: ...


@pytest.mark.parametrize("event", ["on_complete", "on_failure", "on_halt"])
def test_a_callback_that_can_be_called_at_times(event: str) -> None:
    app = Penstock("sqlite://")
    step, hears = app.task(name="step")(nothing), app.task(name="hears")(choosy)

    told: Any = {event: hears}

    @app.pipeline(name="heard", **told)
    def heard(n: int) -> Any:
        return step(n)

    assert [name for name, _ in heard.definition.callbacks] == [event]
