"""pipelines/lifecycle/revive, pipelines/model/compatibility: a revival with the app's definition of now, and a
re-run: what is kept, what is new, what cannot be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import penstock
from penstock import Penstock, wait_for
from penstock.errors import ActionRefused, DefinitionError, ReviveError
from penstock.testing import drain
from tests.conformance.pipelines.runs.test_definitions import nodes, seen_by, versions
from tests.conformance.pipelines.versions import Versions

__all__ = ["versions"]


def ran(versions: Versions) -> list[str]:
    names = sorted([name for name, _ in versions.calls])
    versions.calls.clear()
    return names


def test_finished_work_is_kept_where_it_is_unchanged(versions: Versions) -> None:
    old = versions(lambda t, x: t.d(t.b(t.a(x)), t.c(x)))
    new = versions(lambda t, x: t.e(t.d(t.b(t.a(x), "new"), t.c(x))))
    versions.broken = {"d"}
    run = old.trigger(1)
    drain(old.host)
    assert (run.status, ran(versions)) == ("halted", ["a", "b", "c", "d"])
    versions.broken = set()
    again = seen_by(new, run).revive(definition="current")
    drain(new.host)
    assert again.result(1) == "e(d(b(a(1),new),c(1)))"
    assert ran(versions) == ["b", "d", "e"], "a and c are unchanged; b is not, and so is not what comes of it"
    assert (again.definition, again.revived_from) == (new.definition.hash, run)


def test_without_being_asked_for_a_revival_has_the_definition_of_its_run(versions: Versions) -> None:
    old, new = versions(lambda t, x: t.b(t.a(x))), versions(lambda t, x: t.c(t.a(x)))
    versions.broken = {"b"}
    run = old.trigger(1)
    drain(old.host)
    versions.broken = set()
    again = seen_by(new, run).revive()
    drain(old.host)
    assert (again.result(1), again.definition) == ("b(a(1))", old.definition.hash)
    with pytest.raises(ReviveError, match="'own' or 'current'"):
        run.revive(definition="newest")


def test_a_step_may_be_put_before_and_behind_finished_ones(versions: Versions) -> None:
    """What a move of a running run must refuse."""
    old = versions(lambda t, x: t.c(t.a(x)))
    new = versions(lambda t, x: t.c(t.a(x), t.b(x)))
    versions.broken = {"c"}
    run = old.trigger(1)
    drain(old.host)
    versions.broken, versions.calls[:] = set(), []
    again = seen_by(new, run).revive(definition="current")
    drain(new.host)
    assert (again.result(1), ran(versions)) == ("c(a(1),b(1))", ["b", "c"])


def test_elements_are_kept_and_the_lineage_may_have_several_definitions(versions: Versions) -> None:
    first = versions(lambda t, x: t.e(t.total(t.a.map(t.many(x)).collect())))
    second = versions(lambda t, x: t.e(t.b(t.total(t.a.map(t.many(x)).collect()))))
    third = versions(lambda t, x: t.d(t.total(t.a.map(t.many(x)).collect())))
    versions.broken = {"e", "b"}
    run = first.trigger(3)
    drain(first.host)
    assert ran(versions) == ["a", "a", "a", "e", "total"]
    run = seen_by(second, run).revive(definition="current")
    drain(second.host)
    assert (run.status, ran(versions)) == ("halted", ["b"])
    run = seen_by(third, run).revive(definition="current")
    drain(third.host)
    assert (run.result(1), ran(versions)) == ("d(3)", ["d"])


def test_waits_are_over_where_they_are_unchanged(versions: Versions) -> None:
    old = versions(lambda t, x: t.b(wait_for("go", timeout=60, default="no", after=[t.a(x)])))
    new = versions(lambda t, x: t.c(wait_for("go", timeout=60, default="no", after=[t.a(x)])))
    versions.broken = {"b"}
    run = old.trigger(1)
    drain(old.host)
    run.signal("go", "yes")
    drain(old.host)
    again = seen_by(new, run).revive(definition="current")
    drain(new.host)
    assert again.result(1) == "c(yes)"


def test_a_changed_step_has_a_new_idempotency_key_and_an_unchanged_one_its_old(
    make_app: Callable[..., Penstock],
) -> None:
    keys: list[tuple[str, str]] = []
    broken = [True]

    def version(extra: tuple[int, ...]) -> Any:
        app = make_app()

        @app.task(name="pay", retries=0)
        def pay(x: int, y: int = 0) -> int:
            keys.append(("pay", penstock.current().idempotency_key))
            if broken:
                raise ValueError
            return x

        @app.task(name="ship", retries=0)
        def ship(x: int, y: int = 0) -> int:
            keys.append(("ship", penstock.current().idempotency_key))
            raise ValueError

        @app.pipeline(name="buying", on_failure="continue")
        def buying(x: int) -> Any:
            return [pay(x), ship(x, *extra)]

        return buying

    old, new = version(()), version((1,))
    run = old.trigger(1)
    drain(old.host)
    broken.clear()
    seen_by(new, run).revive(definition="current")
    drain(new.host)
    of = {name: [key for task, key in keys if task == name] for name in ("pay", "ship")}
    assert len(of["pay"]) == len(of["ship"]) == 2
    assert len(set(of["pay"])) == 1
    assert len(set(of["ship"])) == 2


def test_children_have_the_new_definition_too(make_app: Callable[..., Penstock]) -> None:
    calls: list[str] = []
    broken = {"last"}

    def version(fixed: bool) -> Any:
        app = make_app()

        def noting(name: str) -> Any:
            @app.task(name=name, retries=0)
            def work(x: Any) -> Any:
                calls.append(name)
                if name in broken:
                    raise ValueError(name)
                return f"{name}({x})"

            return work

        one, last, other = noting("one"), noting("last"), noting("other")

        @app.pipeline(name="inner")
        def inner(x: int) -> Any:
            return (other if fixed else last)(one(x))

        @app.pipeline(name="outer")
        def outer(x: int) -> Any:
            return inner(x)

        return outer

    old, new = version(False), version(True)
    run = old.trigger(1)
    drain(old.host)
    assert (run.status, calls) == ("halted", ["one", "last"])
    calls.clear()
    again = seen_by(new, run).revive(definition="current")
    drain(new.host)
    assert (again.result(1), calls) == ("other(one(1))", ["other"])


def test_what_cannot_be_is_refused(
    versions: Versions, app: Penstock, make_app: Callable[..., Penstock]
) -> None:
    versions.broken = {"a"}
    run = versions(lambda t, x: t.a(x)).trigger(1)
    drain(versions(lambda t, x: t.a(x)).host)
    assert run.status == "halted"
    with pytest.raises(DefinitionError, match="knows no pipeline 'order'"):
        app.run(run.id).revive(definition="current")
    other = make_app()
    take = other.task(name="a")(lambda x: x)

    @other.pipeline(name="order")
    def order(x: int, y: int) -> Any:
        return take([x, y])

    with pytest.raises(ReviveError, match="'y' is new, has no default.*give args="):
        other.run(run.id).revive(definition="current")
    with pytest.raises(ActionRefused, match="'y' is new, has no default.*give args="):
        other.run(run.id).rerun()
    again = other.run(run.id).revive(definition="current", args=[1, 2])
    drain(other)
    assert again.result(1) == [1, 2]


def test_a_run_is_run_again_from_the_beginning_and_knows_of_what(versions: Versions) -> None:
    old, new = versions(lambda t, x: t.b(t.a(x))), versions(lambda t, x: t.c(t.a(x)))
    run = old.options(key="march").trigger(1)
    with pytest.raises(ActionRefused, match="running"):
        run.rerun()
    drain(old.host)
    versions.calls.clear()
    again = seen_by(new, run).rerun()
    other = seen_by(new, run).rerun(args={"x": 5})
    drain(new.host)
    assert (again.result(1), other.result(1), run.result(1)) == ("c(a(1))", "c(a(5))", "b(a(1))")
    assert ran(versions) == ["a", "a", "c", "c"], "nothing is kept"
    assert (again.rerun_of, other.rerun_of, run.rerun_of, again.revived_from) == (run, run, None, None)
    assert nodes(again) == ["a", "c"]
    assert old.options(key="march").trigger(1) == run, "the key stays with the first"
