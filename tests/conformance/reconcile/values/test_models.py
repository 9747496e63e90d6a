"""reconcile/table: models of users: dataclasses, several models in one table, JSON, keys of several columns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import (
    JSON,
    Column,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    and_,
    case,
    event,
    exists,
    func,
    select,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, Session, mapped_column, relationship

from penstock import Children, Penstock, Reconcilable
from penstock.errors import ConfigurationError, RowNotFound
from penstock.operate.reconcilers import look
from penstock.reconcile.columns import reconcilable_columns
from penstock.testing import drain
from penstock.testing.drain_rows import ManualReconciler
from tests.conformance.reconcile.cloud import Cloud, Volume, declare, gadgets, idle


class Records(MappedAsDataclass, DeclarativeBase):
    pass


class Record(Records, Reconcilable):
    __tablename__ = "records"
    id: Mapped[int] = mapped_column(primary_key=True)
    status: Mapped[str] = mapped_column(String(20), default="new")


class Base(DeclarativeBase):
    pass


class Zoo(Base, Reconcilable):
    __tablename__ = "zoos"
    id: Mapped[int] = mapped_column(primary_key=True)


class Animal(Base, Reconcilable):
    __tablename__ = "animals"
    id: Mapped[int] = mapped_column(primary_key=True)
    zoo_id: Mapped[int | None] = mapped_column(ForeignKey("zoos.id"))
    kind: Mapped[str] = mapped_column(String(10))
    status: Mapped[str] = mapped_column(String(10), default="new")
    zoo: Mapped[Zoo | None] = relationship()
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "animal"}


class Dog(Animal):
    bark: Mapped[str | None] = mapped_column(String(10))
    __mapper_args__ = {"polymorphic_identity": "dog"}


class Puppy(Dog):
    __mapper_args__ = {"polymorphic_identity": "puppy"}


class Note(Base, Reconcilable):
    __tablename__ = "memos"
    id: Mapped[int] = mapped_column(primary_key=True)
    data: Mapped[Any] = mapped_column(JSON)
    status: Mapped[str] = mapped_column(String(10), default="new")


class Tally(Base, Reconcilable):
    __tablename__ = "tallies"
    id: Mapped[int] = mapped_column(primary_key=True)
    first: Mapped[int] = mapped_column(default=5)
    second: Mapped[int] = mapped_column(default=0)
    third: Mapped[int] = mapped_column(default=0)
    status: Mapped[str] = mapped_column(String(10), default="new")


@pytest.fixture
def session(app: Penstock) -> Iterator[Session]:
    Base.metadata.create_all(app.database.engine)
    Records.metadata.create_all(app.database.engine)
    with Session(app.database.engine, expire_on_commit=False) as session:
        yield session


def put(session: Session, *rows: object) -> None:
    session.add_all(rows)
    session.commit()


def test_a_model_that_is_a_dataclass(app: Penstock, session: Session) -> None:
    put(session, Record(id=1), Record(2, "old"))

    @app.reconciler(Record, where=Record.status == "new", name="visit")
    def visit(item: Any) -> dict[str, str]:
        return {"status": f"seen {type(item.row).__name__}"}

    assert drain(app) == 1
    assert session.scalars(select(Record.status).order_by(Record.id)).all() == ["seen Record", "old"]


def test_a_model_that_shares_its_table_has_its_own_rows_only(app: Penstock, session: Session) -> None:
    put(session, Animal(id=1), Dog(id=2, bark="wau"), Puppy(id=3))
    seen = []

    @app.reconciler(Dog, name="walk", every=60)
    def walk(item: Any) -> None:
        seen.append((item.id, type(item.row)))

    drain(app)
    assert sorted(seen) == [(2, Dog), (3, Puppy)]
    with app.lock(Dog, 3):
        pass
    with pytest.raises(RowNotFound), app.lock(Dog, 1):
        pass


def test_the_base_of_several_models_gives_each_its_columns(app: Penstock, session: Session) -> None:
    put(session, Animal(id=1), Dog(id=2, bark="wau"))
    seen = {}

    @app.reconciler(Animal, where=Animal.status == "new", name="feed")
    def feed(item: Any) -> dict[str, str]:
        seen[item.id] = getattr(item.row, "bark", "none")
        return {"status": "fed", **({"bark": "wuff"} if isinstance(item.row, Dog) else {})}

    drain(app)
    assert seen == {1: "none", 2: "wau"}
    assert session.scalars(select(Dog.bark)).all() == ["wuff"]


def test_children_of_a_model_that_shares_its_table(app: Penstock, session: Session) -> None:
    put(session, Zoo(id=1))
    put(session, Animal(id=1, zoo_id=1), Dog(id=2, zoo_id=1))
    seen = []

    @app.reconciler(Zoo, name="count", locks=[Children(Dog, Dog.zoo_id == Zoo.id)])
    def count(item: Any) -> None:
        seen.append([child.id for child in item.children])

    drain(app)
    assert seen == [[2]]


def test_a_value_that_was_changed_in_place_is_written(app: Penstock, session: Session) -> None:
    """It was taken for what another writer had written meanwhile, and dropped."""
    put(session, Zoo(id=1), Note(id=1, data={"n": 1, "all": [1]}))

    @app.reconciler(Note, where=Note.status == "new", name="add")
    def add(item: Any) -> dict[str, Any]:
        data = item.row.data
        data["n"] += 1
        data["all"].append(2)
        return {"data": data, "status": "done"}

    @app.reconciler(Zoo, name="related", locks=[Children(Note, Note.id == Zoo.id, when=lambda _: closing)])
    def related(item: Any) -> None:
        for note in item.children:
            note.data["n"] += 1
            item.update(note, data=note.data)

    closing = False
    drain(app)
    assert session.scalars(select(Note.data)).all() == [{"n": 2, "all": [1, 2]}]
    session.rollback()
    closing = True
    app.hint(Zoo, 1)
    drain(app)
    assert session.scalars(select(Note.data)).all() == [{"n": 3, "all": [1, 2]}]


def test_values_that_are_equal_and_of_another_type(app: Penstock, session: Session) -> None:
    """Rows that get the same values share a statement; true is not 1."""
    given: dict[int, Any] = {1: 1, 2: True, 3: 0, 4: False}
    put(session, *[Note(id=number, data="?") for number in given])
    reconciler = declare(app, Note, lambda item: {"data": given[item.id]}, name="fill")
    with ManualReconciler(app, reconciler) as hand:
        assert hand.visit() == len(given)
    found = session.scalars(select(Note.data).order_by(Note.id)).all()
    assert [repr(value) for value in found] == ["1", "True", "0", "False"]


def test_rows_are_written_and_locked_by_their_key(app: Penstock, cloud: Cloud, database_kind: str) -> None:
    """A condition that no index can be used for would read, and on MySQL lock, the whole table."""
    cloud.volumes(2)
    declare(app, Volume, lambda item: {"ip": f"10.0.0.{item.id}"}, name="visit")
    said: list[str] = []
    with listening(cloud, said):
        drain(app)
        app.hint(Volume, 1)
        with app.lock(Volume, 1, timeout=2):
            pass
    by_key = [sql for sql in said if "volumes" in sql and ("IN (" in sql or "ANY (" in sql)]
    assert by_key
    assert not [sql for sql in by_key if ") = 1" in sql]
    if database_kind != "sqlite":  # it has one writer
        with app.lock(Volume, 1, timeout=2), app.lock(Volume, 2, timeout=2):
            pass


@contextmanager
def listening(cloud: Cloud, said: list[str]) -> Iterator[None]:
    def hear(_conn: Any, _cursor: Any, sql: str, *_: Any) -> None:
        said.append(sql)

    event.listen(cloud.engine, "before_cursor_execute", hear)
    try:
        yield
    finally:
        event.remove(cloud.engine, "before_cursor_execute", hear)


def test_a_key_of_several_columns_is_given_whole(app: Penstock, cloud: Cloud) -> None:
    cloud.add(gadgets, {"region": "eu", "number": 1, "state": "new"})
    declare(app, gadgets, idle, name="turn")
    for id in (("eu", 1), ["eu", 1], {"region": "eu", "number": 1}):
        with app.lock(gadgets, id):
            pass
        app.hint(gadgets, id)
    for wrong in ("eu", ("eu",), ("eu", 1, 2), {"region": "eu"}):
        with pytest.raises(ConfigurationError, match=r"its key is \(region, number\), a tuple"):
            app.lock(gadgets, wrong)
    with pytest.raises(ConfigurationError, match="its key is id"):
        app.lock(Volume, (1, 2))
    with pytest.raises(ConfigurationError, match="not the key of a row of gadgets"):
        app.hint(gadgets, "eu")


def test_a_table_whose_columns_have_names_of_their_own_in_the_database(app: Penstock) -> None:
    status = Column("the state", String(10), key="status")
    visits = Column("n", Integer, key="visits", server_default="1")
    key = Column("id", Integer, primary_key=True)
    table = Table("renamed", MetaData(), key, status, visits, *reconcilable_columns())

    @app.reconciler(table, where=status == "new", name="renamed")
    def visit(item: Any) -> dict[str, Any]:
        assert item.row.status == "new"
        return {"status": "done", "visits": visits + item.row.visits}

    table.metadata.create_all(app.database.engine)
    with app.database.engine.begin() as connection:
        connection.execute(table.insert(), [{"status": "new"}, {"status": "old"}])
    drain(app)
    with app.database.engine.begin() as connection:
        found = connection.execute(select(table.c.status, table.c.visits).order_by(table.c.id))
        assert [tuple(row) for row in found] == [("done", 2), ("old", 1)]


OPEN = Zoo.next_process_at < datetime(2030, 1, 1, tzinfo=UTC)
LOOKED_UP = [
    Animal.zoo.has(OPEN),
    exists().where(Zoo.id == Animal.zoo_id, OPEN),
    select(Zoo.id).where(Zoo.id == Animal.zoo_id, OPEN).exists(),
    select(func.count(Zoo.id)).where(Zoo.id == Animal.zoo_id, OPEN).scalar_subquery() == 1,
    Animal.zoo_id.in_(select(Zoo.id).where(OPEN)),
]


@pytest.mark.parametrize("number", range(len(LOOKED_UP)))
def test_a_condition_that_looks_up_what_belongs_to_the_row(
    app: Penstock, session: Session, number: int
) -> None:
    put(session, Zoo(id=1), Zoo(id=2, next_process_at=datetime(2031, 1, 1, tzinfo=UTC)))
    put(session, *(Animal(id=zoo, zoo_id=zoo, kind="animal") for zoo in (1, 2)))

    @app.reconciler(Animal, where=and_(Animal.status == "new", LOOKED_UP[number]), name="visit", index=False)
    def visit(item: Any) -> dict[str, Any]:
        return {"status": "done"}

    assert [told.eligible for told in look(app.database, [visit])] == [1]
    drain(app)
    assert [told.eligible for told in look(app.database, [visit])] == [0]
    found = session.execute(select(Animal.status).order_by(Animal.id)).scalars()
    assert list(found) == ["done", "new"]


def test_a_condition_with_bytes(app: Penstock) -> None:
    digest = Column("digest", LargeBinary(20))
    key = Column("id", Integer, primary_key=True)
    table = Table("digests", MetaData(), key, digest, *reconcilable_columns())
    seen: list[bytes] = []

    @app.reconciler(table, where=digest.in_([b"abc", b"\x00'\\"]), name="digests")
    def visit(item: Any) -> None:
        seen.append(item.row.digest)

    table.metadata.create_all(app.database.engine)
    with app.database.engine.begin() as connection:
        connection.execute(table.insert(), [{"digest": b"abc"}, {"digest": b"\x00'\\"}, {"digest": b"d"}])
    drain(app)
    assert sorted(seen) == [b"\x00'\\", b"abc"]


def test_expressions_read_what_was_there_before(app: Penstock, session: Session) -> None:
    """On MySQL they read what the same statement had written, depending on the order of the columns."""
    put(session, Tally(id=1), Tally(id=2))

    @app.reconciler(Tally, where=Tally.status == "new", name="visit")
    def visit(item: Any) -> dict[str, Any]:
        size = case((Tally.first > 50, "large"), else_="small")
        return {"first": 100, "second": Tally.first + 1, "third": Tally.second + 1, "status": size}

    drain(app)
    found = session.execute(select(Tally.first, Tally.second, Tally.third, Tally.status)).all()
    assert [tuple(row) for row in found] == [(100, 6, 1, "small")] * 2
