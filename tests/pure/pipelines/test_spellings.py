"""pipelines/define/graph, pipelines/define/fluent: both spellings make the same definition, with the same hash on
every boot.
"""

# ruff: noqa: PLW0108 - each lambda stands for a whole pipeline

from __future__ import annotations

from typing import Any

from penstock.pipelines.define.fluent import flow
from penstock.pipelines.define.graph import barrier, switch, wait_for
from penstock.pipelines.model.definition import Definition
from tests.pure.pipelines.fakes import app_flow, graph, pipeline, task

QUERY, LOAD, REPORT = task("query_users", "days"), task("load_user"), task("report")
FETCH_A, FETCH_B, UPDATE = task("fetch_a"), task("fetch_b"), task("update_user")
COLLATE, MERGE, PAGE = task("collate", "a, b"), task("merge"), task("page_oncall", "run_id=None")


@pipeline(on_halt=PAGE)
def enrich_users(days: int) -> Any:
    ids = QUERY(days)
    user = LOAD.map(ids)
    a, b = FETCH_A(user), FETCH_B(user)
    done = UPDATE(COLLATE(a, b))
    return REPORT(done.collect())


FLUENT = (
    app_flow("enrich_users")
    .start(QUERY)
    .expand(LOAD)
    .divide(FETCH_A, FETCH_B)
    .combine(COLLATE)
    .chain(UPDATE)
    .collapse(REPORT)
    .on_halt(PAGE)
)


def test_the_example_of_the_contract_is_the_same_in_both_spellings() -> None:
    assert enrich_users.definition == FLUENT.definition
    assert enrich_users.definition.hash == FLUENT.definition.hash


def test_the_hash_is_pinned() -> None:
    """It is stored with runs: a change here needs a new definition format."""
    assert FLUENT.definition.hash == "085591635fe85f1a32920d81525ecb01b2b11203430073e8c7ebcb0241039244"


def test_a_definition_is_read_back_as_it_was() -> None:
    assert Definition.from_text(FLUENT.definition.text) == FLUENT.definition


def test_a_task_with_one_parameter_combines_a_list() -> None:
    def two(days: int) -> Any:
        ids = QUERY(days)
        return MERGE([FETCH_A(ids), FETCH_B(ids)])

    fluent = app_flow("two").start(QUERY).divide(FETCH_A, FETCH_B).combine(MERGE)
    assert graph(two) == fluent.definition


def test_switches_are_the_same_in_both_spellings() -> None:
    def chosen(days: int) -> Any:
        found = QUERY(days)
        return REPORT(
            switch(found, {"x": FETCH_A, 1: flow(FETCH_B).chain(UPDATE), "none": None}, otherwise=LOAD)
        )

    fluent = (
        app_flow("chosen")
        .start(QUERY)
        .divert({"x": FETCH_A, "1": flow(FETCH_B).chain(UPDATE), "none": None}, otherwise=LOAD)
        .converge(REPORT)
    )
    assert graph(chosen) == fluent.definition


def test_a_divert_that_never_converges_ends_with_the_value_of_its_arm() -> None:
    def chosen(days: int) -> Any:
        return switch(QUERY(days), {"x": FETCH_A}, otherwise=None)

    assert graph(chosen) == app_flow("chosen").start(QUERY).divert({"x": FETCH_A}, otherwise=None).definition


def test_nested_expands_are_the_same_in_both_spellings() -> None:
    def nested(days: int) -> Any:
        inner = FETCH_A.map(LOAD.map(QUERY(days)))
        return REPORT(UPDATE(inner.collect()).collect())

    fluent = app_flow("nested").start(QUERY).expand(LOAD).expand(FETCH_A).collapse(UPDATE).collapse(REPORT)
    assert graph(nested) == fluent.definition
    flowed = (
        app_flow("nested").start(QUERY).expand(flow(LOAD).expand(FETCH_A).collapse(UPDATE)).collapse(REPORT)
    )
    assert flowed.definition == fluent.definition


def test_waits_barriers_and_children_are_the_same_in_both_spellings() -> None:
    def waiting(days: int) -> Any:
        found = QUERY(days)
        a, b = FETCH_A(found), FETCH_B(found)
        passed = barrier(a, b)
        both = MERGE([LOAD.options(after=[passed])(a), LOAD.options(after=[passed])(b)])
        return enrich_users(wait_for("approve", timeout=5, default="no", after=[both]))

    fluent = (
        app_flow("waiting")
        .start(QUERY)
        .divide(FETCH_A, FETCH_B)
        .barrier()
        .chain(LOAD)
        .combine(MERGE)
        .wait_for("approve", timeout=5, default="no")
        .chain(enrich_users)
    )
    assert graph(waiting) == fluent.definition


def test_a_barrier_before_a_divert_counts_behind_an_arm_without_steps() -> None:
    def passed_by(days: int) -> Any:
        found = QUERY(days)
        a, b = FETCH_A(found), FETCH_B(found)
        passed = barrier(a, b)
        load, update = LOAD.options(after=[passed]), UPDATE.options(after=[passed])
        return MERGE([update(switch(each, {"x": load}, otherwise=None)) for each in (a, b)])

    fluent = (
        app_flow("passed_by")
        .start(QUERY)
        .divide(FETCH_A, FETCH_B)
        .barrier()
        .divert({"x": LOAD}, otherwise=None)
        .converge(UPDATE)
        .combine(MERGE)
    )
    assert graph(passed_by) == fluent.definition


def test_an_open_expand_in_the_fluent_spelling_ends_with_all_elements() -> None:
    def all_elements(days: int) -> Any:
        return LOAD.map(QUERY(days)).collect()

    assert graph(all_elements) == app_flow("all_elements").start(QUERY).expand(LOAD).definition


def test_the_same_task_may_occur_many_times_and_keys_are_numbered_in_order() -> None:
    def many(days: int) -> Any:
        return LOAD(LOAD(LOAD.options(key="last")(LOAD(days))))

    keys = [node.key for node in graph(many).nodes]
    assert keys == ["last", "load_user", "load_user_2", "load_user_3"]


def test_a_given_key_pushes_a_numbered_one_aside() -> None:
    def many(days: int) -> Any:
        return LOAD.options(key="load_user")(LOAD(days))

    assert [node.key for node in graph(many).nodes] == ["load_user", "load_user_2"]


def test_a_flow_can_be_used_twice() -> None:
    branch = flow(FETCH_A).chain(UPDATE)
    definition = app_flow("twice").start(QUERY).divide(branch, branch).combine(MERGE).definition
    assert {"fetch_a", "fetch_a_2", "update_user", "update_user_2"} <= definition.by_key.keys()


def test_a_flow_is_not_changed_by_what_is_said_after_it() -> None:
    base = app_flow("base").start(QUERY)
    longer = base.chain(LOAD)
    assert len(base.definition.nodes) == 1
    assert len(longer.definition.nodes) == 2


def test_step_options_are_kept_and_are_part_of_the_identity() -> None:
    def one(days: int) -> Any:
        return QUERY.options(queue="mail", priority=3, timeout=9, retries=2, optional=True, delay=1.5)(days)

    options = graph(one).by_key["query_users"].options
    assert options.delay == 1.5
    assert options.on_failure == "optional"
    assert options.job == {"queue": "mail", "priority": 3, "timeout": 9.0, "retries": {"max": 2}}
    assert graph(one).hash != graph(lambda days: QUERY(days)).hash


def test_a_step_that_another_stands_in_for_is_the_same_by_key_and_by_handle() -> None:
    def ordered(by_key: bool) -> Any:
        def found(days: int) -> Any:
            fallback = LOAD.options(key="other", on_failure=UPDATE.options(after=["main", "other"]))
            main = QUERY.options(key="main", on_failure=fallback)(days)
            return [main, REPORT.options(after=["main" if by_key else main])(1)]

        return graph(found)

    assert ordered(by_key=True) == ordered(by_key=False)
    nodes = ordered(by_key=True).by_key
    assert nodes["report"].after == ("@merge.main",)
    assert nodes["update_user"].after == ("main", "other"), (
        "what stands in for a step does not wait for itself"
    )


def test_constants_parameters_and_handles_mix() -> None:
    anything = task("anything", "*args, **kwargs")

    def mixed(days: int, *, unit: str = "d") -> Any:
        return anything(days, [1, {"ids": QUERY(days)}], unit=unit, limit=(1, 2))

    definition = graph(mixed)
    assert definition.params == ("days", "unit")
    assert definition.by_key["anything"].reads == ("query_users",)


def test_pipeline_options_reach_the_definition() -> None:
    definition = graph(
        lambda days: QUERY(days),
        on_failure=["ignore", PAGE],
        on_success=[PAGE, REPORT],
        max_fanout=7,
        deadline=60,
    )
    assert definition.on_failure == "ignore"
    assert definition.max_fanout == 7
    assert definition.deadline == 60.0
    told = {event: tuple(one.task for one in callbacks) for event, callbacks in definition.callbacks}
    assert told == {
        "on_failure": ("tests.page_oncall",),
        "on_success": ("tests.page_oncall", "tests.report"),
    }
