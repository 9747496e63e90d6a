"""pipelines/lifecycle/fork, pipelines/lifecycle/child_runs: Child runs in forks: a redone child begins anew; one
that the old run did not finish is continued by every fork.
"""

from __future__ import annotations

from typing import Any

from penstock import Penstock, wait_for
from penstock.pipelines.run import Run
from penstock.testing import drain
from tests.conformance.pipelines.revive.test_retry_step import Parts, statuses


class Nested:
    """A pipeline whose middle step is a run of two steps."""

    def __init__(self, app: Penstock, *broken: object) -> None:
        self.app = app
        self.parts = Parts(app, *broken)
        begin, one, two, last = (self.parts.task(name) for name in ("begin", "one", "two", "last"))

        @app.pipeline(name="inner")
        def inner(value: object) -> Any:
            return two(one(value))

        @app.pipeline(name="outer", on_failure="continue")
        def outer() -> Any:
            return [last(inner(begin(1))), wait_for("beside")]

        self.outer = outer

    def run(self) -> Run:
        run = self.outer.trigger()
        run.signal("beside", 1)
        drain(self.app)
        self.parts.mended()
        return run

    def child(self, run: Run) -> Run:
        query = "SELECT id FROM {runs} WHERE parent_run_id = :run"
        ((id,),) = self.app.database.read(lambda tx: tx.rows(query, run=run.id))
        return self.app.run(str(id))


def test_a_redone_child_begins_anew_and_one_before_the_step_is_kept(app: Penstock) -> None:
    nested = Nested(app)
    run = nested.run()
    assert run.status == "succeeded"
    again = run.fork("inner")
    drain(app)
    assert [call.split()[0] for call in nested.parts.calls] == ["one", "two", "last"]
    child = nested.child(again)
    assert (child.forked_from, child.revived_from) == (None, None)
    nested.parts.mended()
    after = run.fork("last")
    drain(app)
    assert after.result(0) == run.result(0)
    assert [call.split()[0] for call in nested.parts.calls] == ["last"]


def test_every_fork_and_the_revival_continue_a_child_that_was_cancelled(app: Penstock) -> None:
    """A fork does not take the child: the other forks, and the revival of the old run, go on from it as well."""
    parts = Parts(app, "fails")
    one, fails = parts.task("one"), parts.task("fails")

    @app.pipeline(name="inner")
    def inner() -> Any:
        return [one(1), wait_for("never")]

    @app.pipeline(name="outer", halt_running="cancel")
    def outer() -> Any:
        return [inner(), fails(wait_for("go"))]

    run = outer.trigger()
    drain(app)
    run.signal("go", 1)
    drain(app)
    assert (run.status, statuses(run)["inner"]) == ("halted", "cancelled")
    (old,) = app.runs(pipeline=inner)
    parts.mended()
    again = [run.fork("fails"), run.fork("fails"), run.revive()]
    drain(app)
    children = [found for found in app.runs(pipeline=inner) if found != old]
    assert sorted(found.forked_from == old for found in children) == [False, True, True]
    for child in children:
        assert child.signal("never", "after all")
    for one_more in again:
        if one_more.revived_from is None:
            one_more.signal("go", 2)
    drain(app)
    assert [found.status for found in again] == ["succeeded"] * 3
    assert "one 1" not in parts.calls, "what the child had finished is kept by all of them"


def test_a_child_is_forked_by_itself_and_its_parent_is_not_concerned(app: Penstock) -> None:
    nested = Nested(app, "two")
    run = nested.run()
    child = nested.child(run)
    forked = child.fork("one")
    drain(app)
    assert (forked.status, forked.parent, forked.forked_from) == ("succeeded", None, child)
    nested.parts.mended()
    again = run.revive()
    drain(app)
    assert again.status == "succeeded"
    assert nested.child(again).revived_from == child
    assert [call.split()[0] for call in nested.parts.calls] == ["two", "last"]
