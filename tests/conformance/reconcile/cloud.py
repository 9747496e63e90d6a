"""A small cloud for the tests of reconcilers: models, rows, and ways to look at them."""

from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    Integer,
    String,
    Table,
    insert,
    select,
    update,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from penstock import Penstock, Reconcilable
from penstock.reconcile.columns import reconcilable_columns
from penstock.reconcile.reconciler import Reconciler
from penstock.testing.drain_rows import ManualReconciler


class Base(DeclarativeBase):
    pass


class Volume(Base, Reconcilable):
    __tablename__ = "volumes"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str | None] = mapped_column(String(50), unique=True)
    status: Mapped[str] = mapped_column(String(20), default="submitted")
    ip: Mapped[str | None] = mapped_column(String(40))
    count: Mapped[int] = mapped_column(default=0)
    ready_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))


class Note(Base):
    __tablename__ = "notes"
    id: Mapped[int] = mapped_column(primary_key=True)
    text: Mapped[str] = mapped_column(String(100), unique=True)


class Disk(Base, Reconcilable):
    __tablename__ = "disks"
    __table_args__ = (CheckConstraint("size > 0", name="some_size"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    size: Mapped[int] = mapped_column(default=1)


class Fleet(Base, Reconcilable):
    __tablename__ = "fleets"
    id: Mapped[int] = mapped_column(primary_key=True)
    status: Mapped[str] = mapped_column(String(20), default="active")
    size: Mapped[int] = mapped_column(default=0)


class Instance(Base, Reconcilable):
    __tablename__ = "instances"
    id: Mapped[int] = mapped_column(primary_key=True)
    fleet_id: Mapped[int | None] = mapped_column(ForeignKey("fleets.id"))
    status: Mapped[str] = mapped_column(String(20), default="idle")
    load: Mapped[int] = mapped_column(default=0)


class Task(Base, Reconcilable):
    __tablename__ = "cloud_tasks"
    id: Mapped[int] = mapped_column(primary_key=True)
    instance_id: Mapped[int | None] = mapped_column(ForeignKey("instances.id"))
    status: Mapped[str] = mapped_column(String(20), default="submitted")


class Token(Base, Reconcilable):
    __tablename__ = "tokens"
    id: Mapped[UUID] = mapped_column(primary_key=True)
    owner: Mapped[UUID | None]
    status: Mapped[str] = mapped_column(String(20), default="new")


gadgets = Table(
    "gadgets",
    Base.metadata,
    Column("region", String(20), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("state", String(20), nullable=False),
    *reconcilable_columns(),
)


class Cloud:
    """The tables on one database, seen without Penstock's help."""

    def __init__(self, app: Penstock) -> None:
        self.app = app
        self.engine = app.database.engine
        Base.metadata.create_all(self.engine)

    def add(self, model: Any, *rows: dict[str, Any]) -> None:
        with self.engine.begin() as connection:
            connection.execute(insert(model), list(rows))

    def volumes(self, count: int, **values: Any) -> None:
        self.add(Volume, *[{"id": number, "name": f"v{number}", **values} for number in range(1, count + 1)])

    def set(self, model: Any, id: Any, **values: Any) -> None:
        with self.engine.begin() as connection:
            connection.execute(update(model).where(_key(model) == id).values(**values))

    def get(self, model: Any, id: Any) -> Any:
        with self.engine.begin() as connection:
            return connection.execute(select(model).where(_key(model) == id)).one()

    def all(self, model: Any) -> list[Any]:
        with self.engine.begin() as connection:
            return list(connection.execute(select(model).order_by(_key(model))).all())

    def locked(self, model: Any) -> list[Any]:
        return sorted(row[0] for row in self.all(model) if row.lock_token is not None)


def _key(model: Any) -> Any:
    return model.c[0] if isinstance(model, Table) else model.id


def idle(item: Any) -> None:
    """A handler that does nothing."""


def declare(app: Penstock, model: Any, handler: Callable[..., Any] = idle, **options: Any) -> Reconciler:
    options.setdefault("name", getattr(handler, "__name__", "handler"))
    return app.reconciler(model, **options)(handler)


def ids(items: list[Any]) -> list[Any]:
    return [item.id for item in items]


__all__ = [
    "Cloud",
    "Disk",
    "Fleet",
    "Instance",
    "ManualReconciler",
    "Note",
    "Task",
    "Volume",
    "declare",
    "gadgets",
    "idle",
    "ids",
]
