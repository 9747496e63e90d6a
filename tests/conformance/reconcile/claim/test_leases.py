"""reconcile/leases: Leases: renewed near their end in one statement, lost without a write, never trusted too long."""

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from penstock import Penstock
from penstock.reconcile import claim
from penstock.reconcile.events import LeaseLost
from penstock.runtime.reconcilers.row_services import LeaseKeeper
from penstock.telemetry import fault_points
from penstock.testing import travel
from penstock.testing.drain_rows import ManualReconciler
from tests.conformance.reconcile.apply.test_apply import heard
from tests.conformance.reconcile.cloud import Cloud, Volume, declare

Hands = Callable[..., ManualReconciler]


@pytest.fixture
def statements() -> Iterator[list[str]]:
    """Every statement of a renewal, as it is sent."""
    seen: list[str] = []
    with fault_points.watching(lambda point: seen.append(point) if point.startswith("renew_rows.") else None):
        yield seen


def keeper_of(hand: ManualReconciler) -> LeaseKeeper:
    return LeaseKeeper(hand.app.database, hand.app.events, lambda: [hand.source], lambda: "")


def age(hand: ManualReconciler, seconds: float) -> None:
    """Let time pass for this process alone."""
    for item in hand.source.holdings.near_end(0.0, float("inf")):
        item.trusted_until -= seconds


def test_only_rows_near_their_end_are_renewed_all_in_one_statement(
    app: Penstock, cloud: Cloud, hand: Hands, statements: list[str]
) -> None:
    cloud.volumes(10)
    mine = hand(declare(app, Volume, lease=30))
    items = mine.take()
    keeper = keeper_of(mine)
    keeper.turn()
    assert statements == [], "there is time yet"
    age(mine, 16)
    keeper.turn()
    assert [point for point in statements if point.endswith((".1", ".2", ".3"))] == [
        "renew_rows.1",
        "renew_rows.2",
    ]
    statements.clear()
    keeper.turn()
    assert statements == [], "renewed: there is time again"
    assert mine.source.holdings.count == len(items)


def test_a_renewed_row_is_kept_beyond_its_first_lease(
    app: Penstock, other: Penstock, cloud: Cloud, hand: Hands
) -> None:
    cloud.volumes(1)
    reconciler = declare(app, Volume, lease=30)
    mine, theirs = hand(reconciler), hand(reconciler, other)
    (item,) = mine.take()
    with travel(app, 20):
        assert mine.renew(item) == []
    with travel(other, 40):
        assert theirs.take() == []
    with travel(other, 51):
        assert len(theirs.take()) == 1


def test_who_is_idle_knows_when_the_lease_of_a_silent_process_ends(
    app: Penstock, other: Penstock, cloud: Cloud, hand: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "LOOK_AHEAD", timedelta(seconds=100))
    cloud.volumes(2)
    reconciler = declare(app, Volume, lease=600)
    mine = hand(reconciler)
    dead, alive = mine.take()
    assert _looks_in(hand(reconciler, other)) is None, "there is time yet"
    with travel(app, 300):
        mine.renew(alive)
    with travel(other, 540):
        seconds = _looks_in(hand(reconciler, other))
        assert seconds is not None
        assert 0 < seconds < 61
    with travel(other, 601):
        theirs = hand(reconciler, other)
        assert [item.id for item in theirs.take()] == [dead.id]
        assert _looks_in(theirs) is None, "the other row was renewed, and this one is ours"
    with travel(other, 840):
        assert (_looks_in(hand(reconciler, other)) or 0) > 0, "the renewed one in its turn"


def _looks_in(hand: ManualReconciler) -> float | None:
    """In how many seconds an idle process that finds nothing now looks again; None: when it would anyway."""
    assert hand.take() == []
    with hand.app.database.reading() as tx:
        assert not hand.source.has_due_rows(tx)
    return hand.source.due.until_next()


def test_a_row_that_was_taken_over_is_dropped_and_its_handler_told(
    app: Penstock, other: Penstock, cloud: Cloud, hand: Hands
) -> None:
    cloud.volumes(3)
    reconciler = declare(app, Volume, lease=30)
    mine, theirs = hand(reconciler), hand(reconciler, other)
    items = mine.take()
    with travel(other, 31):
        (taken,) = theirs.take(1)
    lost = heard(app, LeaseLost)
    age(mine, 16)
    keeper_of(mine).turn()
    assert [event.row for event in lost] == [str(taken.id)]
    assert [item.id for item in items if item.lease_lost] == [taken.id]
    assert mine.source.holdings.count == 2
    assert cloud.get(Volume, taken.id).lock_token == taken.token


def test_what_could_not_be_renewed_in_time_is_lost_without_a_write(
    app: Penstock, cloud: Cloud, hand: Hands, statements: list[str]
) -> None:
    cloud.volumes(2)
    mine = hand(declare(app, Volume, lease=30))
    before = mine.take() and cloud.all(Volume)
    age(mine, 31)
    keeper_of(mine).turn()
    assert (statements, mine.source.holdings.count) == ([], 0)
    assert cloud.all(Volume) == before


def test_an_outage_shorter_than_the_margin_costs_nothing(
    app: Penstock, cloud: Cloud, hand: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.volumes(2)
    mine = hand(declare(app, Volume, lease=30))
    items = mine.take()
    keeper = keeper_of(mine)
    age(mine, 16)
    with monkeypatch.context() as outage:
        outage.setattr(app.database.dialect, "begin", _refuse)
        for _ in range(3):
            with pytest.raises(ConnectionError):
                keeper.turn()
            age(mine, 4)
    keeper.turn()
    assert not any(item.lease_lost for item in items)
    mine.finish(*[mine.end(item, {"status": "active"}) for item in items])
    assert [row.status for row in cloud.all(Volume)] == ["active", "active"]


def _refuse(*_: object) -> None:
    raise ConnectionError("the database is away")


def test_an_old_claim_cannot_untrack_a_newer_one_of_the_same_row(
    app: Penstock, cloud: Cloud, hand: Hands
) -> None:
    cloud.volumes(1)
    mine = hand(declare(app, Volume, lease=30))
    (old,) = mine.take()
    with travel(app, 31):
        (new,) = mine.take()
        assert old.lease_lost, "we took our own row over: the older attempt is over"
        mine.finish(mine.end(old, {"status": "old"}))
        assert mine.source.holdings.count == 1
        mine.finish(mine.end(new, {"status": "new"}))
    assert cloud.get(Volume, 1).status == "new"
