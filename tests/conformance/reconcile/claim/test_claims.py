"""reconcile/claim: which rows are taken, in which order, and what a claim leaves in them."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, select, update

from penstock import Penstock
from penstock.reconcile.columns import EPOCH, from_micros, reconcilable_columns
from penstock.testing import travel
from penstock.testing.drain_rows import ManualReconciler
from tests.conformance.reconcile.cloud import Cloud, Token, Volume, declare, gadgets, idle, ids

Hands = Callable[..., ManualReconciler]
SUBMITTED = Volume.status == "submitted"


def now(app: Penstock) -> Any:
    row = app.database.read(lambda tx: tx.row("SELECT {now}"))
    assert row is not None
    return from_micros(row[0])


def test_only_rows_that_match_are_taken_and_they_carry_the_claim(
    app: Penstock, cloud: Cloud, hand: Hands
) -> None:
    cloud.add(Volume, {"id": 1, "status": "submitted"}, {"id": 2, "status": "active"})
    (item,) = hand(declare(app, Volume, where=SUBMITTED, lease=30)).take()
    row = cloud.get(Volume, 1)
    assert (item.id, item.row.status, item.recovered, item.attempts) == (1, "submitted", False, 0)
    assert isinstance(item.row, Volume)
    assert (row.lock_token, row.lock_owner) == (item.token, "idle")
    assert timedelta(seconds=25) < row.lock_expires_at - now(app) <= timedelta(seconds=30)
    assert cloud.get(Volume, 2).lock_token is None


def test_those_who_waited_longest_come_first_and_never_more_than_asked_for(
    app: Penstock, cloud: Cloud, hand: Hands
) -> None:
    base = now(app)
    for number, minutes in ((1, 5), (2, 30), (3, 10), (4, 20)):
        due = base - timedelta(minutes=minutes)
        cloud.add(Volume, {"id": number, "next_process_at": due})
    mine = hand(declare(app, Volume))
    assert ids(mine.take(2)) == [2, 4]
    assert ids(mine.take(5)) == [3, 1]


def test_a_new_row_is_visited_at_once_and_again_after_its_interval(
    app: Penstock, cloud: Cloud, hand: Hands
) -> None:
    cloud.volumes(1)
    mine = hand(declare(app, Volume, every=15))
    assert mine.visit() == 1
    assert mine.visit() == 0
    assert cloud.get(Volume, 1).last_processed_at is not None
    with travel(app, 14):
        assert mine.visit() == 0
    with travel(app, 16):
        assert mine.visit() == 1


def test_each_state_can_have_its_own_interval(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    cloud.add(
        Volume, {"id": 1, "status": "starting"}, {"id": 2, "status": "running"}, {"id": 3, "status": "odd"}
    )
    mine = hand(declare(app, Volume, every={"starting": 2, "running": "1m", None: 20}))
    assert mine.visit() == 3
    with travel(app, 3):
        assert ids(mine.take()) == [1]
    with travel(app, 25):
        assert ids(mine.take()) == [3]
    with travel(app, 61):
        assert 2 in ids(mine.take())


def test_an_interval_can_be_computed_from_the_row_as_it_will_be(
    app: Penstock, cloud: Cloud, hand: Hands
) -> None:
    cloud.volumes(1)
    reconciler = declare(app, Volume, lambda _: {"count": 40}, every=lambda row: row.count, name="counting")
    assert hand(reconciler).visit() == 1
    wait = cloud.get(Volume, 1).next_process_at - now(app)
    assert timedelta(seconds=30) < wait <= timedelta(seconds=40)


def test_a_visit_asked_for_during_processing_is_not_lost(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    cloud.volumes(1)
    mine = hand(declare(app, Volume, every=3600))
    (item,) = mine.take()
    app.hint(Volume, 1)
    mine.finish(mine.end(item))
    assert ids(mine.take()) == [1], (
        "asked for while it was worked on: visited once more, without the interval"
    )


def test_a_visit_can_be_asked_for_by_writing_the_column(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    cloud.volumes(1)
    mine = hand(declare(app, Volume, every=3600))
    (item,) = mine.take()
    cloud.set(Volume, 1, next_process_at=EPOCH)
    mine.finish(mine.end(item))
    assert ids(mine.take()) == [1]


def test_what_one_holds_no_other_takes_until_it_expires(
    app: Penstock, other: Penstock, cloud: Cloud, hand: Hands
) -> None:
    cloud.volumes(1)
    reconciler = declare(app, Volume, lease=300)
    assert len(hand(reconciler).take()) == 1
    theirs = hand(reconciler, other)
    assert theirs.take() == []
    with travel(other, 200):
        assert theirs.take() == []
    with travel(other, 301):
        (item,) = theirs.take()
    assert item.recovered


def test_an_expired_row_is_its_own_reconcilers_first(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    cloud.volumes(1)
    mine, theirs = (
        hand(declare(app, Volume, lease=30, name="one")),
        hand(declare(app, Volume, lease=30, name="two")),
    )
    mine.take()
    with travel(app, 31):
        assert theirs.take() == []
        assert len(mine.take()) == 1
    with travel(app, 31 + 31):
        assert theirs.take() == []
    with travel(app, 31 + 61):
        (item,) = theirs.take()
    assert item.recovered, "no row is left out for ever because a reconciler has gone away"


def test_a_row_that_changes_hands_does_not_wait(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    cloud.volumes(1)
    first = declare(
        app, Volume, lambda _: {"status": "provisioning"}, where=SUBMITTED, every=3600, name="first"
    )
    second = declare(app, Volume, where=Volume.status == "provisioning", every=3600, name="second")
    assert hand(second).visit() == 0
    assert hand(first).visit() == 1
    assert hand(second).visit() == 1


def test_a_row_whose_state_changes_but_which_stays_waits_for_its_interval(
    app: Penstock, cloud: Cloud, hand: Hands
) -> None:
    cloud.volumes(2)
    either = Volume.status.in_(["submitted", "provisioning"])
    reconciler = declare(
        app,
        Volume,
        lambda item: {"status": "provisioning" if item.id == 1 else "active"},
        where=either,
        every={"provisioning": 60, "active": 40},
        name="stays",
    )
    other = hand(declare(app, Volume, where=Volume.status == "active", name="next"))
    mine = hand(reconciler)
    assert mine.visit() == 2
    assert (mine.visit(), other.visit()) == (0, 1)
    wait = cloud.get(Volume, 1).next_process_at - now(app)
    assert timedelta(seconds=50) < wait <= timedelta(seconds=60)


def test_a_row_that_stays_waits_for_its_interval(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    cloud.volumes(1)
    reconciler = declare(
        app, Volume, lambda _: {"status": "submitted"}, where=SUBMITTED, every=60, name="stays"
    )
    mine = hand(reconciler)
    assert (mine.visit(), mine.visit()) == (1, 0)


def test_processes_that_claim_at_the_same_time_share_the_rows(
    app: Penstock, other: Penstock, cloud: Cloud, hand: Hands
) -> None:
    cloud.volumes(200)
    reconciler = declare(app, Volume, every=3600)
    numbers: list[int] = []
    enough = time.monotonic() + 60

    def work(one: ManualReconciler) -> None:
        # InnoDB may lock more of a small table than it gives out: then the other finds nothing, and looks again.
        while len(numbers) < 200 and time.monotonic() < enough:
            numbers.extend(ids(one.take(5)))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, [hand(reconciler), hand(reconciler, other)]))
    assert sorted(numbers) == list(range(1, 201))


def test_a_row_that_is_being_written_is_skipped_not_waited_for(
    app: Penstock, cloud: Cloud, hand: Hands, database_kind: str
) -> None:
    if database_kind == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    cloud.volumes(2)
    mine = hand(declare(app, Volume))
    with cloud.engine.begin() as connection:
        connection.execute(select(Volume).where(Volume.id == 1).with_for_update())
        assert ids(mine.take()) == [2]
    assert ids(mine.take()) == [1]


def test_core_tables_and_composite_keys(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    cloud.add(gadgets, *[{"region": r, "number": n, "state": "new"} for r in ("eu", "us") for n in (1, 2)])
    mine = hand(declare(app, gadgets, where=gadgets.c.state == "new", lease=30))
    items = mine.take(3)
    assert {(item.row.region, item.row.number) for item in items} == {item.id for item in items}
    assert mine.renew(*items) == []
    mine.finish(*[mine.end(item, {"state": "old"}) for item in items])
    assert sorted(row.state for row in cloud.all(gadgets)) == ["new", "old", "old", "old"]
    assert [row.lock_token for row in cloud.all(gadgets)] == [None] * 4


def test_keys_that_are_uuids(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    keys = [uuid4() for _ in range(3)]
    cloud.add(Token, *[{"id": key} for key in keys])
    mine = hand(declare(app, Token))
    items = mine.take()
    assert {item.id for item in items} == {item.row.id for item in items} == set(keys)
    mine.finish(*[mine.end(item, {"status": "seen"}) for item in items])
    assert {row.status for row in cloud.all(Token)} == {"seen"}
    with app.lock(Token, keys[0]) as connection:
        connection.execute(update(Token).where(Token.id == keys[0]).values(status="locked"))
    assert [item.row.status for item in mine.take()] == ["locked"]


def test_columns_called_like_our_parameters(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    """A parameter of a write that is called like a column is taken for a value to be written."""
    names = ("deadline", "now", "due", "limit", "keys", "abandoned", "token")
    odd = Table(
        "odd",
        MetaData(),
        Column("id", Integer, primary_key=True),
        *[Column(name, Integer, default=7) for name in names],
        *reconcilable_columns(),
    )
    odd.create(cloud.engine)
    cloud.add(odd, {"id": 1}, {"id": 2})
    mine = hand(declare(app, odd, where=odd.c.due == 7, lease=30))
    items = mine.take()
    assert mine.renew(*items) == []
    app.hint(odd, 1)
    mine.finish(mine.end(items[0], {"due": 8}), mine.end(items[1], {"limit": 9}))
    rows = [tuple(getattr(row, name) for name in names) for row in cloud.all(odd)]
    assert rows == [(7, 7, 8, 7, 7, 7, 7), (7, 7, 7, 9, 7, 7, 7)]


def test_a_claim_whose_answer_was_lost_is_given_back(
    app: Penstock, cloud: Cloud, hand: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.volumes(3)
    mine = hand(declare(app, Volume))
    _lose_answers(app, monkeypatch, 1)
    with pytest.raises(ConnectionAbortedError):
        mine.take()
    assert cloud.locked(Volume) == [1, 2, 3], "it was committed; only we do not know"
    assert ids(mine.take()) == [1, 2, 3]


def _lose_answers(app: Penstock, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """The next commits take place, but the client gets no answer."""
    commit, is_passing, left = app.database.dialect.commit, app.database.is_passing, [count]

    def committed(*args: Any) -> None:
        commit(*args)
        if left[0]:
            left[0] -= 1
            raise ConnectionAbortedError("the answer was lost")

    monkeypatch.setattr(app.database.dialect, "commit", committed)
    monkeypatch.setattr(
        app.database,
        "is_passing",
        lambda error: isinstance(error, ConnectionAbortedError) or is_passing(error),
    )


def test_a_disabled_reconciler_is_left_to_others(app: Penstock, cloud: Cloud) -> None:
    reconciler = declare(app, Volume, idle)
    reconciler.disable()
    assert not reconciler.enabled
    reconciler.enable()
    assert reconciler.enabled
