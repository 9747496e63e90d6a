"""reconcile/apply: the outcome of a visit is written in one fenced transaction, or not at all."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import func

from penstock import NOW, Children, Penstock, Snooze
from penstock.reconcile.events import ColumnsKept, LeaseLost, RowSettled
from penstock.telemetry.events import Event
from penstock.testing import travel
from penstock.testing.drain_rows import ManualReconciler
from tests.conformance.reconcile.claim.test_claims import _lose_answers, now
from tests.conformance.reconcile.cloud import Cloud, Disk, Fleet, Instance, Note, Volume, declare

Hands = Callable[..., ManualReconciler]


def heard(app: Penstock, kind: type[Event]) -> list[Any]:
    found: list[Any] = []
    app.events.on(kind, found.append)
    return found


def as_utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def test_the_map_is_written_the_row_is_free_and_stamped(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    cloud.volumes(1)
    settled = heard(app, RowSettled)
    mine = hand(declare(app, Volume, lambda _: {"status": "active", "ip": "10.0.0.1"}, name="provision"))
    assert mine.visit() == 1
    row = cloud.get(Volume, 1)
    assert (row.status, row.ip, row.lock_token, row.lock_owner, row.lock_expires_at) == (
        "active", "10.0.0.1", None, None, None
    )  # fmt: skip
    assert timedelta(0) <= now(app) - row.last_processed_at < timedelta(seconds=10)
    assert [(event.row, event.outcome) for event in settled] == [("1", "applied")]


def test_nothing_to_change_is_a_visit_too(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    cloud.volumes(1)
    assert hand(declare(app, Volume)).visit() == 1
    row = cloud.get(Volume, 1)
    assert (row.status, row.lock_token) == ("submitted", None)
    assert row.last_processed_at is not None


def test_now_is_one_instant_for_all_rows_by_the_databases_clock(
    app: Penstock, cloud: Cloud, hand: Hands
) -> None:
    cloud.add(Fleet, {"id": 1})
    cloud.add(Instance, {"id": 1, "fleet_id": 1}, {"id": 2, "fleet_id": 1})
    cloud.volumes(1)

    def stamp(item: Any) -> dict[str, Any]:
        for child in item.children:
            item.update(child, last_processed_at=NOW)
        return {"size": 2, "next_process_at": NOW}

    reconciler = declare(app, Fleet, stamp, locks=[Children(Instance, Instance.fleet_id == Fleet.id)])
    with travel(app, 86_400):
        assert hand(reconciler).visit() == 1
        fleet, instances = cloud.get(Fleet, 1), cloud.all(Instance)
        times = {
            fleet.last_processed_at,
            fleet.next_process_at,
            *(row.last_processed_at for row in instances),
        }
        assert len(times) == 1
        assert abs(times.pop() - now(app)) < timedelta(seconds=10)


def test_now_fits_columns_with_and_without_time_zones(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    cloud.volumes(1)
    assert hand(declare(app, Volume, lambda _: {"ready_at": NOW}, name="stamp")).visit() == 1
    row = cloud.get(Volume, 1)
    # MySQL keeps whole seconds in a plain DATETIME.
    assert abs(as_utc(row.ready_at) - row.last_processed_at) < timedelta(seconds=1)


def test_inserts_deletes_and_values_that_the_database_computes(
    app: Penstock, cloud: Cloud, hand: Hands
) -> None:
    cloud.volumes(2)

    def work(item: Any) -> Any:
        item.insert(Note(text=f"seen {item.id}"))
        item.insert(Note.__table__, text=f"again {item.id}")
        if item.id == 2:
            item.delete(item.row)
            return None
        return {"count": Volume.count + 5}

    assert hand(declare(app, Volume, work)).visit() == 2
    assert sorted(note.text for note in cloud.all(Note)) == ["again 1", "again 2", "seen 1", "seen 2"]
    assert [(row.id, row.count, row.lock_token) for row in cloud.all(Volume)] == [(1, 5, None)]


def test_a_snooze_looks_again_later_and_spends_nothing(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    cloud.volumes(1)
    mine = hand(declare(app, Volume, lambda _: Snooze(60), every=5, name="wait"))
    assert mine.visit() == 1
    assert cloud.get(Volume, 1).process_attempts == 0
    with travel(app, 50):
        assert mine.visit() == 0
    with travel(app, 61):
        assert mine.visit() == 1


def test_a_lost_claim_writes_nothing_at_all(
    app: Penstock, other: Penstock, cloud: Cloud, hand: Hands
) -> None:
    cloud.volumes(1)
    reconciler = declare(app, Volume, lease=30)
    lost = heard(app, LeaseLost)
    mine, theirs = hand(reconciler), hand(reconciler, other)
    (item,) = mine.take()
    with travel(other, 31):
        (taken,) = theirs.take()
    item.insert(Note(text="side write"))
    mine.finish(mine.end(item, {"status": "mine"}))
    row = cloud.get(Volume, 1)
    assert (row.status, row.lock_token, cloud.all(Note)) == ("submitted", taken.token, [])
    assert [(event.row, event.token) for event in lost] == [("1", item.token)]
    assert [end.values for _, end in mine.refused_visits if end] == [{"status": "mine"}], (
        "the undo hook hears of it"
    )
    assert item.lease_lost
    theirs.finish(theirs.end(taken, {"status": "theirs"}))
    assert cloud.get(Volume, 1).status == "theirs"


def test_a_late_end_counts_as_long_as_no_other_took_over(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    cloud.volumes(1)
    mine = hand(declare(app, Volume, lease=30))
    (item,) = mine.take()
    with travel(app, 3600):
        mine.finish(mine.end(item, {"status": "late"}))
    assert cloud.get(Volume, 1).status == "late"


def test_a_lost_row_does_not_take_others_of_its_batch_with_it(
    app: Penstock, other: Penstock, cloud: Cloud, hand: Hands
) -> None:
    cloud.volumes(3)
    reconciler = declare(app, Volume, lease=30)
    mine, theirs = hand(reconciler), hand(reconciler, other)
    items = mine.take()
    with travel(other, 31):
        theirs.take(1)
    mine.finish(*[mine.end(item, {"status": "mine"}) for item in items])
    assert sorted(row.status for row in cloud.all(Volume)) == ["mine", "mine", "submitted"]


def test_what_the_database_refuses_is_the_rows_own_error(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    cloud.volumes(5)

    def rename(item: Any) -> dict[str, str]:
        return {"name": "v5" if item.id == 3 else f"new {item.id}"}

    settled = heard(app, RowSettled)
    assert hand(declare(app, Volume, rename, where=Volume.id < 5)).visit() == 4
    assert {row.id: row.name for row in cloud.all(Volume)} == {
        1: "new 1",
        2: "new 2",
        3: "v3",
        4: "new 4",
        5: "v5",
    }
    assert {event.row: event.outcome for event in settled} == {
        "1": "applied", "2": "applied", "4": "applied", "3": "errored"
    }  # fmt: skip
    row = cloud.get(Volume, 3)
    assert (row.process_attempts, row.lock_token) == (1, None)
    assert row.next_process_at > now(app)


@pytest.mark.parametrize(
    "wrong",
    [{"sttus": "active"}, {"lock_token": 1}, "active", {"name": NOW}],
    ids=["no such column", "not the user's", "not a map", "not a time"],
)
def test_what_cannot_be_written_is_the_rows_error(
    app: Penstock, cloud: Cloud, hand: Hands, wrong: Any
) -> None:
    cloud.volumes(1)
    settled = heard(app, RowSettled)
    assert hand(declare(app, Volume, lambda _: wrong, name="wrong")).visit() == 1
    assert [event.outcome for event in settled] == ["errored"]
    assert cloud.get(Volume, 1).process_attempts == 1


@pytest.mark.parametrize(
    "wrong", [0, object(), func.nowhere(1)], ids=["a check", "an unknown type", "an unknown function"]
)
def test_a_value_that_the_database_does_not_take_is_no_outage(
    app: Penstock, cloud: Cloud, hand: Hands, wrong: Any
) -> None:
    cloud.add(Disk, *[{"id": number} for number in range(1, 6)])
    one = hand(declare(app, Disk, lambda item: {"size": wrong if item.id == 3 else 2}, name="sizes"))
    assert one.visit() == 5
    rows = cloud.all(Disk)
    assert [row.size for row in rows] == [2, 2, 1, 2, 2]
    assert [row.process_attempts for row in rows] == [0, 0, 1, 0, 0]
    assert cloud.locked(Disk) == []


def test_setting_attributes_of_the_row_is_refused(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    cloud.volumes(1)

    def mutate(item: Any) -> None:
        item.row.status = "active"

    settled = heard(app, RowSettled)
    hand(declare(app, Volume, mutate)).visit()
    assert "item.update" in settled[0].error


def test_an_apply_whose_answer_was_lost_is_not_done_twice(
    app: Penstock, cloud: Cloud, hand: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.volumes(2)
    mine = hand(declare(app, Volume))
    items = mine.take()
    items[0].insert(Note(text="once"))
    items[1].delete(items[1].row)
    _lose_answers(app, monkeypatch, 1)
    mine.finish(*[mine.end(item, {"status": "active"}) for item in items])
    assert [note.text for note in cloud.all(Note)] == ["once"]
    assert [row.status for row in cloud.all(Volume)] == ["active"]
    assert mine.refused_visits == []
    assert mine.source.holdings.count == 0


# Writes that arrive while a row is being worked on


def test_the_lost_update_race(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    """The API says stop while the handler is starting the thing: stop wins, and what the handler learned is kept."""
    cloud.volumes(1)
    kept = heard(app, ColumnsKept)
    mine = hand(declare(app, Volume, every=3600))
    (item,) = mine.take()
    cloud.set(Volume, 1, status="terminating")
    mine.finish(mine.end(item, {"status": "active", "ip": "10.0.0.1"}))
    row = cloud.get(Volume, 1)
    assert (row.status, row.ip) == ("terminating", "10.0.0.1")
    assert [event.columns for event in kept] == [("status",)]
    (again,) = mine.take()
    assert again.row.status == "terminating", "and the row is looked at again at once"


def test_columns_may_be_declared_as_the_handlers_own(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    cloud.volumes(1)
    mine = hand(declare(app, Volume, overwrite=("ip",)))
    (item,) = mine.take()
    cloud.set(Volume, 1, ip="theirs", status="theirs")
    mine.finish(mine.end(item, {"status": "mine", "ip": "mine"}))
    assert (cloud.get(Volume, 1).status, cloud.get(Volume, 1).ip) == ("theirs", "mine")


def test_related_rows_keep_what_others_wrote_too(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    cloud.add(Fleet, {"id": 1})
    cloud.add(Instance, {"id": 1, "fleet_id": 1})
    mine = hand(declare(app, Fleet, locks=[Children(Instance, Instance.fleet_id == Fleet.id)]))
    (item,) = mine.take()
    cloud.set(Instance, 1, status="terminating")
    item.update(item.children[0], status="busy", load=7)
    mine.finish(mine.end(item))
    row = cloud.get(Instance, 1)
    assert (row.status, row.load) == ("terminating", 7)
