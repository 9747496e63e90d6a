"""pipelines/maintenance/retention: an old run stays while a run that continues it, or its parent, may need it."""

from __future__ import annotations

from typing import Any

import pytest

import penstock
from penstock import Penstock, wait_for
from penstock.errors import ReviveError
from penstock.pipelines.maintenance import retention
from penstock.testing import drain, travel

DAY = 86_400


class Shop:
    """Charges once, and then fails for as long as it is broken."""

    def __init__(self, app: Penstock) -> None:
        self.charges: list[str] = []
        self.keys: set[str] = set()
        self.broken = True

        @app.task(name="pack")
        def pack(item: int) -> int:
            self.charges.append(f"pack {item}")
            return item

        @app.task(name="charge", retries=0)
        def charge(packed: list[int]) -> int:
            job = penstock.current()
            self.keys.add(job.idempotency_key)
            job.once("charge", self.charges.append, "charge")
            if self.broken:
                raise ValueError("not today")
            return len(packed)

        @app.pipeline(name="order")
        def order() -> Any:
            return charge(pack.map([1, 2, 3]).collect())

        @app.pipeline(name="basket")
        def basket() -> Any:
            return order()

        @app.pipeline(name="day", on_failure="continue")
        def day() -> Any:
            return [basket(), wait_for("evening")]

        self.order, self.day = order, day


def test_a_run_stays_as_long_as_one_that_was_revived_from_it(app: Penstock) -> None:
    shop = Shop(app)
    first = shop.order.trigger()
    drain(app)
    with travel(app, 10 * DAY):
        second = first.revive()
        drain(app)
        assert second.status == "halted"
    with travel(app, 15 * DAY):
        app.engine.chores.prune()
        shop.broken = False
        third = second.revive()
        drain(app)
        assert third.result(0) == 3
        assert shop.charges.count("charge") == 1, "what once() has done is done, over all revivals"
        assert len(shop.keys) == 1, "the same work has the same key"
    with travel(app, 40 * DAY):
        assert app.engine.chores.prune() == 3, "together they are old enough"
        assert list(app.runs()) == []


def test_a_child_stays_as_long_as_its_parent_to_any_depth(app: Penstock) -> None:
    shop = Shop(app)
    run = shop.day.trigger()
    drain(app)
    with travel(app, 20 * DAY):
        app.engine.chores.prune()
        run.signal("evening", "late")
        drain(app)
        assert run.status == "failed"
        shop.broken = False
        shop.charges.clear()
        again = run.revive()
        drain(app)
        assert again.result(0) == [3, "late"]
        assert shop.charges == [], "what the order had finished is kept"
    with travel(app, 60 * DAY):
        app.engine.chores.prune()
        assert list(app.runs()) == []


def test_many_that_stay_do_not_keep_a_younger_one(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "TOGETHER", 5)
    shop = Shop(app)
    kept = [shop.order.trigger() for _ in range(retention.TOGETHER + 2)]
    drain(app)
    with travel(app, DAY):
        younger = shop.order.trigger()
        drain(app)
    with travel(app, 10 * DAY):
        continued = [run.revive() for run in kept]
        drain(app)
    with travel(app, 16 * DAY):
        assert app.engine.chores.prune() == 1
        left = {run.id for run in app.runs()}
    assert left == {run.id for run in [*kept, *continued]}
    assert younger.id not in left


def test_a_run_goes_with_its_steps_or_not_at_all(app: Penstock) -> None:
    shop = Shop(app)
    run = shop.order.trigger()
    drain(app)
    assert app.database.in_transaction(retention.prune, 0) == (1, True)
    assert list(app.runs()) == []
    with pytest.raises(ReviveError, match="pruned"):
        run.revive()


def test_a_large_run_that_is_half_gone_cannot_be_revived(
    app: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(app)
    run = shop.order.trigger()
    drain(app)
    monkeypatch.setattr(retention, "BATCH", 2)
    assert app.database.in_transaction(retention.prune, 0) == (0, True)
    with pytest.raises(ReviveError, match="pruned"):
        run.revive()
    with pytest.raises(ReviveError):
        run.retry_step("charge")
    with pytest.raises(ReviveError, match="pruned"):
        run.fork("charge")
    assert app.engine.chores.prune(0) == 1
    left = app.database.read(lambda tx: tx.rows("SELECT run_key FROM {run_keys}"))
    assert list(left) == []
