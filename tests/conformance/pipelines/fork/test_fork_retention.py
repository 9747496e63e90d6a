"""pipelines/maintenance/retention: a run stays as long as a fork of it, which reads what it keeps there; and no
longer.
"""

from __future__ import annotations

from penstock import Penstock
from penstock.testing import drain, travel
from tests.conformance.pipelines.retention.test_retention_keeps_what_is_needed import DAY, Shop


def test_a_run_stays_as_long_as_its_forks(app: Penstock) -> None:
    shop = Shop(app)
    first = shop.order.trigger()
    drain(app)
    with travel(app, 10 * DAY):
        second = first.fork("charge")
        drain(app)
        assert second.status == "halted"
    with travel(app, 15 * DAY):
        app.engine.chores.prune()
        shop.broken = False
        third = second.revive()
        drain(app)
        assert third.result(0) == 3
        assert sorted(shop.charges) == ["charge", "charge", "pack 1", "pack 2", "pack 3"]
    with travel(app, 40 * DAY):
        assert app.engine.chores.prune() == 3, "together they are old enough"
        assert list(app.runs()) == []


def test_a_fork_that_is_gone_keeps_nothing(app: Penstock) -> None:
    shop = Shop(app)
    shop.broken = False
    run, other = shop.order.trigger(), shop.order.trigger()
    drain(app)
    forks = [run.fork("charge"), run.fork("pack")]
    drain(app)
    with travel(app, 10 * DAY):
        last = run.fork("charge")
        drain(app)
    with travel(app, 15 * DAY):
        assert app.engine.chores.prune() == 3, "two forks and the run without one"
        assert {found.id for found in app.runs()} == {run.id, last.id}
        assert other not in app.runs()
        assert forks[0] not in app.runs()
    with travel(app, 25 * DAY):
        assert app.engine.chores.prune() == 2


def test_a_fork_of_a_child_is_not_kept_for_the_parent(app: Penstock) -> None:
    """A revival of the parent goes on from the child itself: the fork of the child is a run like any other."""
    shop = Shop(app)
    run = shop.day.trigger()
    drain(app)
    (child,) = app.runs(pipeline="order")
    shop.broken = False
    forked = child.fork("charge")
    drain(app)
    assert forked.status == "succeeded"
    with travel(app, 20 * DAY):
        assert app.engine.chores.prune() == 1
        assert forked not in app.runs()
        run.signal("evening", "late")
        drain(app)
        again = run.revive()
        drain(app)
        assert again.result(0) == [3, "late"]
