"""What the cloud keeps about its resources. `Reconcilable` adds the columns that reconcilers need."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import DateTime, ForeignKey, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from penstock import Reconcilable


class Base(DeclarativeBase):
    pass


class Fleet(Base, Reconcilable):
    """A number of instances that somebody wants."""

    __tablename__ = "fleets"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(100))
    size: Mapped[int]
    status: Mapped[str] = mapped_column(String(20), default="active")


class Instance(Base, Reconcilable):
    """One machine: submitted → provisioning → idle → terminating → terminated, or failed."""

    __tablename__ = "instances"

    id: Mapped[int] = mapped_column(primary_key=True)
    fleet_id: Mapped[int] = mapped_column(ForeignKey("fleets.id"))
    status: Mapped[str] = mapped_column(String(20), default="submitted")
    machine: Mapped[str | None] = mapped_column(String(50))
    ready_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))


class Volume(Base, Reconcilable):
    """A disk that is attached to one instance at a time."""

    __tablename__ = "volumes"

    id: Mapped[int] = mapped_column(primary_key=True)
    instance_id: Mapped[int | None] = mapped_column(ForeignKey("instances.id"))
    status: Mapped[str] = mapped_column(String(20), default="submitted")
    disk: Mapped[str | None] = mapped_column(String(50))
