"""Right uses of reconcilers, as type checkers see them. Nothing here is run."""

from typing import Any, assert_type

from sqlalchemy import Column, Integer, MetaData, String, Table
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from penstock import NOW, Item, Penstock, Reconcilable, Retry, Snooze
from penstock.reconcile.reconciler import Reconciler

app = Penstock()


class Base(DeclarativeBase):
    pass


class Volume(Base, Reconcilable):
    __tablename__ = "volumes"
    id: Mapped[int] = mapped_column(primary_key=True)
    status: Mapped[str] = mapped_column(String(20), default="submitted")


plain = Table("plain", MetaData(), Column("id", Integer, primary_key=True))


@app.reconciler(Volume, where=Volume.status == "submitted", workers=20, every=15, backoff=Retry(delay=5))
async def provision(item: Item[Volume]) -> dict[str, Any] | Snooze:
    assert_type(item.row, Volume)
    assert_type(item.row.status, str)
    if item.recovered:
        return Snooze(60)
    return {"status": "active", "ready_at": NOW}


@app.reconciler(plain, every={"active": 300, None: 15}, lease="30s", executor="process")
def look(item: Item) -> None:
    assert_type(item.attempts, int)


def used() -> None:
    assert_type(provision, Reconciler)
    with app.lock(Volume, 7, timeout=5) as connection:
        connection.exec_driver_sql("SELECT 1")
    app.hint(Volume, 7)
