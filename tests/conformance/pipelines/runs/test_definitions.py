"""pipelines/model/definition, pipelines/lifecycle/migrate: a run is pinned to its definition, can be moved to
another, and the difference is shown.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from penstock import Penstock, wait_for
from penstock.errors import ActionRefused, DefinitionError, DefinitionsDiffer
from penstock.pipelines.advance import waits
from penstock.pipelines.lifecycle import signals
from penstock.pipelines.run import Run
from penstock.queue.jobs import Attempt, Claim
from penstock.queue.settle import settle
from penstock.telemetry import fault_points
from penstock.testing import SimulatedCrash, crash_at, drain, travel
from penstock.values.outcome import Outcome
from penstock.values.status import OutcomeKind
from tests.conformance.pipelines.random_worker import RandomWorker
from tests.conformance.pipelines.versions import Versions
from tests.conformance.rows import rows

ROUNDS = {"sqlite": 2, "postgres": 5, "mariadb": 4}


@pytest.fixture
def versions(make_app: Callable[..., Penstock]) -> Versions:
    return Versions(make_app)


def seen_by(pipeline: Any, run: Run) -> Run:
    """The same run, in the hands of another version's process."""
    return pipeline.host.run(run.id)  # type: ignore[no-any-return]


def nodes(run: Run) -> list[str]:
    return sorted([step.key for step in run.steps()])


def test_a_run_keeps_its_definition_until_it_is_moved(versions: Versions) -> None:
    old = versions(lambda t, x: t.b(wait_for("go", after=[t.a(x)])))
    new = versions(lambda t, x: t.d(t.c(wait_for("go", after=[t.a(x)]))))
    kept, moved = old.trigger(1), old.trigger(2)
    drain(old.host)
    assert kept.definition == moved.definition == old.definition.hash
    assert seen_by(new, moved).migrate() is True
    assert seen_by(new, moved).migrate() is False, "it has that definition already"
    assert moved.definition == new.definition.hash
    kept.signal("go", 5)
    # By the old process, which remembers what the run was: it must look.
    moved.signal("go", 7)
    drain(old.host)
    drain(new.host)
    assert (kept.result(1), moved.result(1)) == ("b(5)", "d(c(7))")
    assert nodes(kept) == ["a", "b", "go"]
    assert nodes(moved) == ["a", "c", "d", "go"]


def test_the_difference_is_told(versions: Versions) -> None:
    old = versions(lambda t, x: t.b(t.a(x)))
    new = versions(lambda t, x: t.c(t.b.options(queue="mail")(t.a(x), 7)), max_fanout=5)
    run = old.trigger(1)
    assert not run.diff()
    told = seen_by(new, run).diff()
    assert (told.added, told.removed, told.edges_added) == (("c",), (), (("b", "c"),))
    assert [(change.what, change.before, change.after) for change in told.changed[0].changes] == [
        ("arguments", "(a)", "(a, 7)"),
        ("queue", "none", "mail"),
    ]
    assert {change.what for change in told.settings} == {"result", "max_fanout"}
    assert told.summary == "1 added, 1 changed"


def test_what_is_in_the_way_is_told_and_nothing_is_changed(versions: Versions) -> None:
    old = versions(lambda t, x: t.b(wait_for("go", after=[t.a(x)])))
    new = versions(lambda t, x: t.b(wait_for("go", after=[t.a(t.c(x))])))
    run = old.trigger(1)
    drain(old.host)
    with pytest.raises(DefinitionsDiffer, match="step 'a' is in the run already, and has changed") as refused:
        seen_by(new, run).migrate()
    assert "step 'c' would have to start with the run, which has begun" in refused.value.differences
    assert run.definition == old.definition.hash
    run.signal("go", 1)
    drain(old.host)
    assert run.result(1) == "b(1)"


def test_only_a_run_that_goes_on_is_moved(versions: Versions) -> None:
    old, new = versions(lambda t, x: t.a(x)), versions(lambda t, x: t.b(t.a(x)))
    over, cancelled = old.trigger(1), old.trigger(2)
    drain(old.host)
    with pytest.raises(ActionRefused, match="succeeded"):
        seen_by(new, over).migrate()
    waiting = old.options(delay=60).trigger(3)
    assert seen_by(new, waiting).migrate() is True
    cancelled = old.options(delay=60).trigger(4)
    cancelled.cancel()
    with pytest.raises(ActionRefused, match="cancelled"):
        seen_by(new, cancelled).migrate()
    with travel(new.host, 61):
        drain(new.host)
    assert waiting.result(1) == "b(a(3))"


def test_an_app_that_does_not_know_the_pipeline_says_so(app: Penstock, versions: Versions) -> None:
    run = versions(lambda t, x: t.a(x)).trigger(1)
    for action in (app.run(run.id).diff, app.run(run.id).migrate):
        with pytest.raises(DefinitionError, match="knows no pipeline 'order'"):
            action()


def test_a_paused_run_is_moved_and_goes_on(versions: Versions) -> None:
    old, new = versions(lambda t, x: t.b(t.a(x))), versions(lambda t, x: t.c(t.a(x)))
    run = old.trigger(1)
    run.pause()
    drain(old.host)
    assert seen_by(new, run).migrate() is True
    run.resume()
    drain(new.host)
    assert run.result(1) == "c(a(1))"


def test_a_new_parameter_has_its_default_or_is_in_the_way(make_app: Callable[..., Penstock]) -> None:
    def version(describe: Callable[[Any], Any]) -> Any:
        app = make_app()
        add = app.task(name="add")(lambda x, y=0: x + y)
        return describe((app.pipeline(name="adding"), add))

    def one(given: Any) -> Any:
        pipeline, add = given

        @pipeline
        def adding(x: int) -> Any:
            return add(wait_for("go"), x)

        return adding

    def two(given: Any) -> Any:
        pipeline, add = given

        @pipeline
        def adding(x: int, y: int = 40) -> Any:
            return add(add(wait_for("go"), x), y)

        return adding

    def three(given: Any) -> Any:
        pipeline, add = given

        @pipeline
        def adding(x: int, z: int) -> Any:
            return add(add(wait_for("go"), x), z)

        return adding

    old, new, more = version(one), version(two), version(three)
    run = old.trigger(1)
    with pytest.raises(DefinitionsDiffer, match="'z' is new, has no default") as refused:
        seen_by(more, run).migrate()
    assert any("'add' has begun" in told or "'z'" in told for told in refused.value.differences)
    assert seen_by(new, run).migrate() is True
    run.signal("go", 1)
    drain(new.host)
    assert run.result(1) == 42


def test_the_deadline_is_that_of_the_new_definition(versions: Versions) -> None:
    old = versions(lambda t, _: t.b(wait_for("go")), deadline=60)
    longer = versions(lambda t, _: t.b(wait_for("go")), deadline=600)
    none = versions(lambda t, _: t.b(wait_for("go")))
    first, second, third = old.trigger(1), old.trigger(2), none.trigger(3)
    seen_by(longer, first).migrate()
    seen_by(none, second).migrate()
    seen_by(old, third).migrate()
    with travel(old.host, 61):
        drain(old.host)
    assert (first.status, second.status, third.status) == ("running", "running", "halted")
    with travel(old.host, 601):
        drain(old.host)
    assert (first.status, second.status) == ("halted", "running")


def test_an_open_expand_is_given_steps_that_wait_by_themselves(versions: Versions) -> None:
    """Its elements have not come to them. Where one has ended, it has told those behind it."""

    def described(t: Any, x: Any, more: bool) -> Any:
        late = t.b(wait_for("go"))
        item = t.a.map(t.many(x))
        if more:
            t.c(item, late)
        return late

    old = versions(partial(described, more=False))
    new = versions(partial(described, more=True))
    run, fresh = old.trigger(2), old.trigger(2)
    assert seen_by(new, fresh).migrate() is True, "nothing is open yet"
    late = old.trigger(2)
    drain(old.host, limit=3)
    assert [step.key for step in run.steps()].count("a") == 2, "it is open"
    assert seen_by(new, run).migrate() is True
    drain(old.host)
    with pytest.raises(DefinitionsDiffer, match="step 'a' has ended and would have to lead to step 'c' too"):
        seen_by(new, late).migrate()
    for each in (run, fresh, late):
        each.signal("go", 1)
    drain(new.host)
    assert [each.result(1) for each in (run, fresh, late)] == ["b(1)"] * 3
    called = sorted(call for call in versions.calls if call[0] == "c")
    assert called == [("c", "a(0)")] * 2 + [("c", "a(1)")] * 2


@pytest.mark.parametrize("turns", [1, 2, 4])
def test_a_large_expand_under_way_is_moved_at_any_chunk(versions: Versions, turns: int) -> None:
    small = {"inline_fanout": 2}
    old = versions(lambda t, x: t.total(t.a.map(t.many(x)).collect()), settings=small)
    new = versions(lambda t, x: t.b(t.total(t.a.map(t.many(x)).collect())), settings=small)
    run = old.trigger(7)
    worker = RandomWorker(old.host, 0)
    old.host.engine.chores.advancer.chunk = 2
    while "many" not in [step.key for step in run.steps() if step.status == "succeeded"]:
        old.host.database.in_transaction(worker.settle_and_claim, [], 0)
        (claim,) = old.host.database.in_transaction(worker.settle_and_claim, [], 1)
        worker.app.database.in_transaction(worker.settle_and_claim, [worker.execute(claim)], 0)
    for _ in range(turns):
        old.host.database.in_transaction(old.host.engine.chores.advancer.turn)
    assert rows(old.host, "SELECT width FROM {advancements}") == [(7,)]
    assert seen_by(new, run).migrate() is True
    drain(new.host)
    assert run.result(1) == "b(7)"


def test_killed_at_any_statement_it_is_moved_completely_or_not_at_all(versions: Versions) -> None:
    old = versions(lambda t, x: t.b(wait_for("go", after=[t.a(x)])))
    new = versions(lambda t, x: t.c(wait_for("go", after=[t.a(x)])), deadline=3600)
    first, run = old.trigger(1), old.trigger(1)
    drain(old.host)
    seen_by(new, first).migrate()
    passed: list[str] = []
    with fault_points.watching(passed.append):
        seen_by(new, run).migrate()
    assert any(point.startswith("migrate_run") for point in passed)
    for point in dict.fromkeys(passed):
        again = old.trigger(1)
        drain(old.host)
        with crash_at(point) as crash, pytest.raises(SimulatedCrash):
            seen_by(new, again).migrate()
        assert crash.crashed
        done = point.endswith(".committed")
        assert again.definition == (new if done else old).definition.hash, point
        again.signal("go", 1)
        drain(old.host)
        drain(new.host)
        assert again.result(1) == ("c(1)" if done else "b(1)")


# who runs at the same time


def claimed(worker: RandomWorker) -> list[Claim]:
    claims: list[Claim] = []
    while some := worker.app.database.in_transaction(worker.settle_and_claim, [], 50):
        claims += some
    worker.source.committed()
    return claims


def test_a_settle_at_the_same_moment_sees_one_definition_or_the_other(
    versions: Versions, database_kind: str
) -> None:
    """Every run is advanced and moved at once: what follows is of the definition that it has in the end."""
    old = versions(lambda t, x: t.d(t.b(x), t.c(x)))
    new = versions(lambda t, x: t.f(t.e(t.b(x)), t.c(x)))
    worker = RandomWorker(old.host, 0)
    for number in range(ROUNDS[database_kind]):
        runs = [old.trigger(each) for each in range(8)]
        attempts = [Attempt(c, Outcome(OutcomeKind.SUCCEEDED, output='"x"')) for c in claimed(worker)]
        assert len(attempts) == 16
        moved: dict[str, bool] = {}

        def move(run: Run, moved: dict[str, bool] = moved) -> None:
            try:
                moved[run.id] = seen_by(new, run).migrate()
            except DefinitionsDiffer:
                moved[run.id] = False

        def advance(attempt: Attempt) -> None:
            old.host.database.in_transaction(settle, [attempt], worker.identity.id, (), old.host.follow)

        works: list[list[Callable[[], object]]] = [
            [partial(move, run) for run in runs[part::2]] for part in range(2)
        ]
        works += [[partial(advance, one) for one in attempts[part::3]] for part in range(3)]
        together(works)
        drain(old.host)
        drain(new.host)
        for run in runs:
            ends = ["b", "c", "e", "f"] if moved[run.id] else ["b", "c", "d"]
            assert (run.status, nodes(run)) == ("succeeded", ends), (number, moved[run.id])
            assert run.definition == (new if moved[run.id] else old).definition.hash


def test_a_signal_that_is_just_delivered_looks_again_when_it_holds_the_step(
    versions: Versions, database_kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delivery reads the run before it locks the step that waits; the run is moved between the two."""
    if database_kind == "sqlite":
        pytest.skip("one writer at a time: there is nothing between the two")
    old = versions(lambda t, _: t.b(wait_for("go")))
    new = versions(lambda t, _: t.c(wait_for("go")))
    run = old.trigger(1)
    conclude = waits.finish_waiting
    moved: list[bool] = []

    def late(tx: Any, conclusions: Any) -> Any:
        if conclusions and not moved:
            moved.append(seen_by(new, run).migrate())
        return conclude(tx, conclusions)

    monkeypatch.setattr(signals, "finish_waiting", late)
    run.signal("go", 1)
    drain(old.host)
    drain(new.host)
    assert moved == [True]
    assert run.result(1) == "c(1)"


def test_workers_at_work_and_runs_moved_to_and_fro(versions: Versions) -> None:
    """Two kinds of processes with memories of their own, and a caller that changes its mind."""
    old = versions(lambda t, x: t.e(t.total(t.b(t.a.map(t.many(x))).collect())))
    new = versions(lambda t, x: t.f(t.total(t.b(t.a.map(t.many(x))).collect())))
    runs = [old.trigger(5) for _ in range(6)]
    busy = [RandomWorker(version.host, seed) for seed in range(2) for version in (old, new)]
    works: list[Any] = [[worker.run] for worker in busy]

    def to_and_fro() -> None:
        for turn in range(12):
            for run in runs:
                try:
                    seen_by((new, old)[turn % 2], run).migrate()
                except ActionRefused:
                    continue

    together([*works, [to_and_fro]])
    drain(old.host)
    drain(new.host)
    for run in runs:
        last = "e" if run.definition == old.definition.hash else "f"
        assert run.result(1) == f"{last}(5)"
        assert nodes(run) == sorted([*["a"] * 5, *["b"] * 5, "many", "total", last])


def together(works: list[list[Callable[[], object]]]) -> None:
    """Each list in a thread of its own, all beginning at once."""
    barrier = threading.Barrier(len(works))
    problems: list[BaseException] = []

    def work(todo: list[Callable[[], object]]) -> None:
        try:
            barrier.wait()
            for one in todo:
                one()
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(todo,)) for todo in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
