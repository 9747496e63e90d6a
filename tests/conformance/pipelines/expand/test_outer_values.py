"""pipelines/model/doors, pipelines/advance/expand: a step inside an expand waits for what it uses from outside by
itself; elements go their own way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock import Penstock, wait_for
from penstock.pipelines.lifecycle.start import NewRun
from penstock.pipelines.run import Run
from penstock.testing import drain, travel
from penstock.values.ids import new_id
from tests.conformance.rows import count


class Sums:
    """A few tasks; `bad` fails until it is mended."""

    def __init__(self, app: Penstock) -> None:
        self.app = app
        self.broken = True
        self.ran: list[str] = []
        self.nums = app.task(name="nums")(lambda n: list(range(1, n + 1)))
        self.total = app.task(name="total")(sum)
        self.bad = app.task(name="bad", retries=0)(self._bad)
        self.late = app.task(name="late")(lambda: 10)
        self.take = app.task(name="take")(self._take)
        self.inc = app.task(name="inc")(lambda x: x + 1)
        self.add = app.task(name="add")(lambda x, y: x + y)

    def _bad(self) -> int:
        if self.broken:
            raise ValueError("bad")
        return 100

    def _take(self, x: int) -> int:
        self.ran.append(f"take {x}")
        return x


@pytest.fixture
def sums(app: Penstock) -> Sums:
    return Sums(app)


def ends(run: Run) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for step in run.steps():
        found.setdefault(step.key, []).append(f"{step.status}")
    return found


def test_a_failed_value_from_outside_stops_only_the_steps_that_use_it(sums: Sums) -> None:
    @sums.app.pipeline(name="p", on_failure="continue")
    def p() -> Any:
        b = sums.bad()
        e = sums.take.map(sums.nums(3))
        sums.add(e, b)
        return sums.total(sums.inc(e).collect())

    run = p.trigger()
    drain(sums.app)
    found = ends(run)
    assert found["take"] == found["inc"] == ["succeeded"] * 3
    assert (found["add"], found["total"]) == (["skipped"] * 3, ["succeeded"])
    assert str(run.status) == "failed"


def test_steps_that_need_nothing_from_outside_do_not_wait_for_it(sums: Sums) -> None:
    @sums.app.pipeline(name="q")
    def q() -> Any:
        late = sums.late.options(delay=100)()
        e = sums.take.map(sums.nums(3))
        return sums.total(sums.add(sums.inc(e), late).collect())

    run = q.trigger()
    drain(sums.app)
    found = ends(run)
    assert (found["take"], found["inc"]) == (["succeeded"] * 3, ["succeeded"] * 3)
    assert "add" not in found
    with travel(sums.app, 101):
        drain(sums.app)
    assert run.result(1) == 39


@pytest.mark.parametrize("first_step", [True, False])
def test_over_nothing_there_is_nothing_that_could_use_a_failed_value(sums: Sums, first_step: bool) -> None:
    @sums.app.pipeline(name="empty", on_failure="continue")
    def empty() -> Any:
        b = sums.bad()
        over = sums.nums(0)
        made = sums.add.map(over, b) if first_step else sums.add(sums.take.map(over), b)
        return sums.total(made.collect())

    run = empty.trigger()
    drain(sums.app)
    assert ends(run) == {"bad": ["failed"], "nums": ["succeeded"], "total": ["succeeded"]}


def test_the_first_step_of_an_expand_waits_for_what_it_uses(sums: Sums) -> None:
    @sums.app.pipeline(name="first", on_failure="continue")
    def first() -> Any:
        return sums.total(sums.add.map(sums.nums(3), sums.late.options(delay=100)()).collect())

    run = first.trigger()
    drain(sums.app)
    assert ends(run) == {"late": ["scheduled"], "nums": ["succeeded"]}
    with travel(sums.app, 101):
        drain(sums.app)
    assert run.result(1) == 36


def nested(sums: Sums, **late: Any) -> Any:
    @sums.app.pipeline(name="nested")
    def pipeline() -> Any:
        late_value = sums.late.options(**late)()
        outer = sums.take.map(sums.nums(3))
        middle = sums.inc(outer)
        inner = sums.take.options(key="inner").map(sums.nums.options(key="more")(outer))
        last: Any = sums.add.options(key="last")(sums.add(inner, middle), late_value)
        return sums.total(sums.total.options(key="each")(last.collect()).collect())

    return pipeline


@pytest.mark.parametrize("inline", [1, 2, 100])
def test_values_from_several_depths_outside(make_app: Callable[..., Penstock], inline: int) -> None:
    sums = Sums(make_app(inline_fanout=inline))
    sums.app.engine.chores.advancer.chunk = 2
    run = nested(sums, delay=100).trigger()
    drain(sums.app)
    assert ends(run)["add"] == ["succeeded"] * 6
    with travel(sums.app, 101):
        drain(sums.app)
    # over 1; 1, 2; 1, 2, 3 each with (its outer + 1) and 10 added
    assert run.result(1) == (1 + 2 + 10) + (3 + 2 * 13) + (6 + 3 * 14)
    assert count(sums.app, "advancements") == 0


def test_many_elements_that_wait_go_on_chunk_by_chunk(make_app: Callable[..., Penstock]) -> None:
    sums = Sums(make_app(inline_fanout=5))

    @sums.app.pipeline(name="wide")
    def wide() -> Any:
        late = sums.add(wait_for("go"), 0)
        return sums.total(sums.add.options(key="each")(sums.take.map(sums.nums(40)), late).collect())

    run = wide.trigger()
    drain(sums.app)
    sums.app.engine.chores.advancer.chunk = 7
    run.signal("go", 1)
    drain(sums.app, limit=1)
    turns = 0
    while sums.app.database.in_transaction(sums.app.engine.chores.advancer.turn):
        turns += 1
        assert len(ends(run).get("each", [])) == min(7 * turns, 40)
        assert sums.app.engine.chores.repair(age=-1) == []
    assert turns == 6
    drain(sums.app)
    assert run.result(1) == sum(range(1, 41)) + 40


@pytest.mark.parametrize("inline", [1, 100])
def test_a_run_that_is_cancelled_while_elements_wait_ends(
    make_app: Callable[..., Penstock], inline: int
) -> None:
    sums = Sums(make_app(inline_fanout=inline))
    sums.app.engine.chores.advancer.chunk = 2
    run = nested(sums, delay=100).trigger()
    drain(sums.app)
    run.cancel()
    drain(sums.app)
    assert str(run.status) == "cancelled"
    assert ends(run)["last"] == ["cancelled"] * 6


def again(sums: Sums) -> Any:
    @sums.app.pipeline(name="again", on_failure="continue")
    def pipeline() -> Any:
        b = sums.bad()
        return sums.total(sums.add(sums.take.map(sums.nums(3)), b).collect())

    return pipeline


def test_a_revived_run_keeps_what_did_not_depend_on_the_failure(sums: Sums) -> None:
    run = again(sums).trigger()
    drain(sums.app)
    assert str(run.status) == "failed"
    assert sums.ran == ["take 1", "take 2", "take 3"]
    sums.broken = False
    revived = run.revive()
    drain(sums.app)
    assert revived.result(1) == 306
    assert len(sums.ran) == 3, "done in the first run, and kept"


@pytest.mark.parametrize("definition", ["own", "current"])
def test_a_run_from_before_goes_on_with_the_definition_it_has(sums: Sums, definition: str) -> None:
    pipeline = again(sums)
    assert pipeline.definition.doors
    before = NewRun(new_id(), replace(pipeline.definition, doors=False), "{}")
    sums.app.engine.trigger(before, None)
    drain(sums.app)
    run = sums.app.run(before.id)
    assert ends(run) == {"bad": ["failed"], "nums": ["succeeded"], "total": ["skipped"]}
    told = "values from outside of an expand: the expand waits for all of them → each step waits for its own"
    assert [str(one) for one in run.diff().settings] == [told]
    sums.broken = False
    revived = run.revive(definition=definition)
    drain(sums.app)
    assert revived.result(1) == 306
    assert (revived.definition == before.definition.hash) == (definition == "own")


def test_a_run_from_before_can_be_moved(sums: Sums) -> None:
    @sums.app.pipeline(name="moved")
    def pipeline() -> Any:
        late = sums.late.options(delay=100)()
        over = sums.nums.options(delay=50)(3)
        return sums.total(sums.add(sums.take.map(over), late).collect())

    before = NewRun(new_id(), replace(pipeline.definition, doors=False), "{}")
    sums.app.engine.trigger(before, None)
    run = sums.app.run(before.id)
    assert run.migrate()
    with travel(sums.app, 51):
        drain(sums.app)
        assert len(sums.ran) == 3, "each step waits for what it needs"
        assert not run.migrate()
    with travel(sums.app, 101):
        drain(sums.app)
    assert run.result(1) == 36
