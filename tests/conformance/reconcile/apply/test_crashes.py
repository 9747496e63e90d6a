"""reconcile/outcome: Rows whose holders die: counted on the row, never mixed with errors, and not worth the workers
for ever.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from penstock import Children, Penstock, Retry
from penstock.operate.reconcilers import failing
from penstock.reconcile.events import RowSettled
from penstock.reconcile.item import Item
from penstock.testing import travel
from penstock.testing.drain_rows import ManualReconciler
from penstock.values.retry import crash_delay
from tests.conformance.reconcile.apply.test_apply import heard
from tests.conformance.reconcile.claim.test_claims import now
from tests.conformance.reconcile.claim.test_failing import broken
from tests.conformance.reconcile.cloud import Cloud, Fleet, Instance, Volume, declare, ids

Hands = Callable[..., ManualReconciler]
LEASE = 30
FREE = 3
"""Crashes that are taken for the process's own."""


def die(app: Penstock, hand: ManualReconciler, times: int = 1) -> None:
    """Take whatever is due, never come back, and let the lease run out; again and again."""
    for _ in range(times):
        assert hand.take(), "nothing to die over"
        travel(app, LEASE + 1)


def test_crashes_are_counted_until_a_handler_ends(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    cloud.volumes(1)
    mine = hand(declare(app, Volume, lease=LEASE, every=0))
    die(app, mine, 2)
    (item,) = mine.take()
    assert (item.crashes, item.recovered, item.attempts) == (2, True, 0)
    mine.finish(mine.work(item))
    (item,) = mine.take()
    assert (item.crashes, item.recovered) == (0, False)


def test_a_handler_that_raises_has_come_back_too(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    cloud.volumes(1)
    mine = hand(declare(app, Volume, broken, lease=LEASE, backoff=Retry(delay=0, jitter=0)))
    die(app, mine)
    mine.visit()
    (item,) = mine.take()
    assert (item.crashes, item.attempts) == (0, 1)


def test_what_is_given_back_has_still_lost_its_earlier_holder(
    app: Penstock, cloud: Cloud, hand: Hands
) -> None:
    cloud.volumes(1)
    mine = hand(declare(app, Volume, lease=LEASE))
    die(app, mine)
    mine.give_back(*mine.take())
    (item,) = mine.take()
    assert (item.crashes, item.recovered) == (1, True)


def test_the_first_crashes_cost_the_lease_and_no_more(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    cloud.volumes(1)
    seen: list[int] = []
    mine = hand(declare(app, Volume, lambda item: seen.append(item.crashes), lease=LEASE, name="looking"))
    die(app, mine, FREE)
    assert mine.visit() == 1
    assert seen == [FREE]


def test_then_it_waits_longer_each_time_while_others_go_on(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    cloud.volumes(2)
    worked: list[Item] = []
    settled = heard(app, RowSettled)
    mine = hand(declare(app, Volume, worked.append, where=Volume.id == 1, lease=LEASE, name="deadly"))
    others = hand(declare(app, Volume, where=Volume.id == 2, every=0, name="others"))
    die(app, mine, FREE)
    for crash in (FREE + 1, FREE + 2):
        die(app, mine)
        assert (mine.visit(), worked) == (1, []), "taken back, but not worked on"
        row = cloud.get(Volume, 1)
        wait = timedelta(seconds=crash_delay(crash))
        assert (row.process_crashes, row.process_attempts, row.lock_token) == (crash, 0, None)
        assert wait / 2 < row.next_process_at - now(app) <= wait
        assert others.visit() == 1
        travel(app, crash_delay(crash))
    assert [event.outcome for event in settled if event.row == "1"] == ["crashed", "crashed"]
    (noted,) = app.database.read(failing)
    assert (noted.row, noted.attempts) == ("1", FREE + 2)
    assert (
        noted.error == f"Crashed: the process died {FREE + 2} times in a row while this row was in its hands"
    )
    assert mine.visit() == 1
    (item,) = worked
    assert item.recovered, "and its handler is told, although the row was let go in between"
    assert app.database.read(failing) == [], "it went well: nothing to be seen any more"


def test_after_the_last_crash_the_row_becomes_what_was_declared(
    app: Penstock, cloud: Cloud, hand: Hands
) -> None:
    cloud.volumes(1)
    settled = heard(app, RowSettled)
    reconciler = declare(
        app,
        Volume,
        where=Volume.status == "submitted",
        lease=LEASE,
        max_attempts=1,
        max_crashes=2,
        on_exhausted=lambda item: {"status": f"died {item.crashes}"},
    )
    mine = hand(reconciler)
    die(app, mine, 3)
    assert (mine.visit(), mine.visit()) == (1, 0)
    row = cloud.get(Volume, 1)
    assert (row.status, row.process_crashes, row.process_attempts, row.lock_token) == ("died 3", 0, 0, None)
    assert [event.outcome for event in settled] == ["exhausted"]


@pytest.mark.parametrize(
    "exhausted", [None, {"name": "v2"}, lambda _: 1 / 0], ids=["undeclared", "refused", "broken"]
)
def test_a_row_that_cannot_be_given_up_rests_for_long(
    app: Penstock, cloud: Cloud, hand: Hands, exhausted: Any
) -> None:
    cloud.volumes(2)
    given = {"on_exhausted": exhausted, "max_attempts": 5} if exhausted else {}
    worked: list[Item] = []
    mine = hand(
        declare(
            app,
            Volume,
            worked.append,
            where=Volume.id == 1,
            lease=LEASE,
            max_crashes=0,
            name="deadly",
            **given,
        )
    )
    die(app, mine)
    mine.visit()
    row = cloud.get(Volume, 1)
    assert (worked, row.lock_token, row.name) == ([], None, "v1")
    assert row.next_process_at - now(app) > timedelta(minutes=55)
    travel(app, 3600)
    assert mine.visit() == 1
    assert ids(worked) == [1], "a fixed version may have been deployed: one more try"


def test_a_process_that_dies_of_a_parent_lets_its_children_go(
    app: Penstock, cloud: Cloud, hand: Hands
) -> None:
    cloud.add(Fleet, {"id": 1})
    cloud.add(Instance, {"id": 1, "fleet_id": 1})
    locks = [Children(Instance, Instance.fleet_id == Fleet.id)]
    mine = hand(declare(app, Fleet, locks=locks, lease=LEASE, max_crashes=0))
    die(app, mine)
    assert mine.visit() == 1
    assert (cloud.locked(Fleet), cloud.locked(Instance)) == ([], [])
    assert cloud.get(Instance, 1).process_crashes == 0, "it was the parent's handler"


def test_no_cap(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    cloud.volumes(1)
    cloud.set(Volume, 1, process_crashes=1000)
    mine = hand(declare(app, Volume, lease=LEASE, max_crashes=None))
    die(app, mine)
    mine.visit()
    wait = cloud.get(Volume, 1).next_process_at - now(app)
    assert timedelta(minutes=9) < wait <= timedelta(minutes=10)
