"""reconcile/outcome: Attributes set on a row: the handler's error, which says how rows are written. What is no such
thing is none.
"""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import JSON, ForeignKey, String
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from penstock import Penstock, Reconcilable, Retry, Snooze
from penstock.reconcile.locks import Children, Shared
from penstock.testing.drain_rows import ManualReconciler
from tests.conformance.reconcile.claim.test_failing import failures
from tests.conformance.reconcile.cloud import Cloud, Fleet, Instance, Note, Volume, declare, gadgets
from tests.conformance.reconcile.cloud import Task as CloudTask

Hands = Callable[..., ManualReconciler]
PLAIN = Retry(delay=5, factor=2, jitter=0)
INSTEAD = "Return what is to be written as a dict, or use item.update(row, name=value)"


class Base(DeclarativeBase):
    pass


class Depot(Base):
    __tablename__ = "depots"
    id: Mapped[int] = mapped_column(primary_key=True)
    trucks: Mapped[list["Truck"]] = relationship(back_populates="depot")


class Truck(Base, Reconcilable):
    __tablename__ = "trucks"
    id: Mapped[int] = mapped_column(primary_key=True)
    status: Mapped[str] = mapped_column(String(20), default="new")
    load: Mapped[dict[str, int]] = mapped_column(JSON, default=dict)
    depot_id: Mapped[int | None] = mapped_column(ForeignKey("depots.id"))
    depot: Mapped[Depot | None] = relationship(back_populates="trucks")
    parcels: Mapped[list["Parcel"]] = relationship(back_populates="truck")


class Parcel(Base):
    __tablename__ = "parcels"
    id: Mapped[int] = mapped_column(primary_key=True)
    truck_id: Mapped[int] = mapped_column(ForeignKey("trucks.id"))
    truck: Mapped[Truck] = relationship(back_populates="parcels")


@pytest.fixture
def trucks(cloud: Cloud) -> Cloud:
    Base.metadata.create_all(cloud.engine)
    cloud.add(Depot, {"id": 1})
    cloud.add(Truck, {"id": 1, "load": {"boxes": 1}, "depot_id": 1})
    return cloud


def told(app: Penstock, hand: Hands, model: Any, work: Callable[[Any], Any], **options: Any) -> str:
    """What is noted as the error of the only row that this visits; nothing if it went well."""
    assert hand(declare(app, model, work, backoff=PLAIN, **options)).visit() == 1
    return " ".join(message for *_, message in failures(app))


def test_it_is_the_error_of_the_handler(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    cloud.volumes(1)

    def work(item: Any) -> None:
        item.row.status = "active"
        item.row.count += 1

    message = told(app, hand, Volume, work)
    assert message == f"volumes.status, volumes.count set on a row, which is not how it is written. {INSTEAD}"
    row = cloud.get(Volume, 1)
    assert (row.status, row.process_attempts, row.lock_token) == ("submitted", 1, None)


def test_a_snooze_does_not_hide_it(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    cloud.volumes(1)

    def work(item: Any) -> Any:
        item.row.status = "active"
        item.update(item.row, count=1)
        return Snooze(60)

    assert "volumes.status set on a row" in told(app, hand, Volume, work)
    assert cloud.get(Volume, 1).count == 0


def test_related_rows_likewise(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    cloud.add(Fleet, {"id": 1})
    cloud.add(Instance, {"id": 1, "fleet_id": 1})
    cloud.add(CloudTask, {"id": 1, "instance_id": 1})

    def children(item: Any) -> None:
        item.children[0].status = "busy"

    def shared(item: Any) -> None:
        item.shared.load = 7

    locks: list[Any] = [Children(Instance, Instance.fleet_id == Fleet.id)]
    assert "instances.status set on a row" in told(app, hand, Fleet, children, locks=locks)
    locks = [Shared(Instance, Instance.id == CloudTask.instance_id)]
    assert "instances.load set on a row" in told(app, hand, CloudTask, shared, locks=locks)


def test_rows_of_core_tables_say_so_at_once(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    cloud.add(gadgets, {"region": "eu", "number": 1, "state": "new"})

    def work(item: Any) -> None:
        item.row.state = "active"

    assert INSTEAD in told(app, hand, gadgets, work)


def test_what_becomes_of_a_row_that_is_given_up_is_returned_too(
    app: Penstock, cloud: Cloud, hand: Hands
) -> None:
    cloud.volumes(1)

    def work(item: Any) -> None:
        item.row.ip = "half-way"
        raise ConnectionError

    def given_up(item: Any) -> None:
        item.row.status = "failed"

    message = told(app, hand, Volume, work, max_attempts=1, on_exhausted=given_up)
    assert message == f"on_exhausted has set volumes.status on a row. {INSTEAD}"


def test_a_handler_that_fails_after_setting_something_is_given_up_all_the_same(
    app: Penstock, cloud: Cloud, hand: Hands
) -> None:
    cloud.volumes(1)

    def work(item: Any) -> None:
        item.row.ip = "half-way"
        raise ConnectionError

    declared = declare(app, Volume, work, max_attempts=1, on_exhausted={"status": "failed"})
    hand(declared).visit()
    assert cloud.get(Volume, 1).status == "failed"


def test_a_reference_to_another_row_is_a_column_of_this_one(
    app: Penstock, trucks: Cloud, hand: Hands
) -> None:
    def work(item: Any) -> None:
        item.row.depot = None

    assert "trucks.depot set on a row" in told(app, hand, Truck, work)


def same(item: Any) -> None:
    item.row.status = item.row.status


def plain(item: Any) -> None:
    item.row.seen_by_me = True
    assert item.row.load["boxes"] == 1


def updated(item: Any) -> None:
    item.update(item.row, status="active")
    assert item.row.status == "new"


def inserted(item: Any) -> None:
    parcel = Parcel(id=1, truck=item.row, truck_id=item.id)
    parcel.id = 2
    item.insert(parcel)


def related(item: Any) -> None:
    with Session(item.engine) as session:
        session.add(item.row)
        assert item.row.depot.id == 1
        assert item.row.parcels == []


@pytest.mark.parametrize("work", [same, plain, updated, inserted, related])
def test_no_false_alarm(app: Penstock, trucks: Cloud, hand: Hands, work: Callable[[Any], Any]) -> None:
    def handler(item: Any) -> Any:
        item.engine = trucks.engine
        return work(item)

    assert told(app, hand, Truck, handler) == ""
    assert trucks.get(Truck, 1).process_attempts == 0


def changed_in_place(item: Any) -> dict[str, Any]:
    item.row.load["boxes"] += 1
    item.row.load["bags"] = 3
    return {"load": item.row.load}


def test_what_is_changed_where_it_is_and_returned_is_written(
    app: Penstock, trucks: Cloud, hand: Hands
) -> None:
    """It was compared with itself, taken for another writer's, and left alone; and so at every further visit."""
    assert told(app, hand, Truck, changed_in_place) == ""
    assert trucks.get(Truck, 1).load == {"boxes": 2, "bags": 3}


def test_also_of_core_tables_and_of_related_rows(app: Penstock, trucks: Cloud, hand: Hands) -> None:
    def work(item: Any) -> None:
        item.children[0].load["boxes"] += 1
        item.update(item.children[0], load=item.children[0].load)

    assert told(app, hand, Truck.__table__, changed_in_place) == ""
    trucks.add(Fleet, {"id": 1})
    assert told(app, hand, Fleet, work, locks=[Children(Truck, Truck.depot_id == Fleet.id)]) == ""
    assert trucks.get(Truck, 1).load == {"boxes": 3, "bags": 3}


def test_what_another_writer_has_written_meanwhile_stays(app: Penstock, trucks: Cloud, hand: Hands) -> None:
    mine = hand(declare(app, Truck, changed_in_place))
    (item,) = mine.take()
    trucks.set(Truck, 1, load={"boxes": 100})
    mine.finish(mine.work(item))
    assert trucks.get(Truck, 1).load == {"boxes": 100}


def test_rows_that_a_handler_makes_may_be_set(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    cloud.volumes(1)

    def work(item: Any) -> None:
        note = Note(text="draft")
        note.text = "made"
        item.insert(note)

    assert told(app, hand, Volume, work) == ""
    assert [row.text for row in cloud.all(Note)] == ["made"]
