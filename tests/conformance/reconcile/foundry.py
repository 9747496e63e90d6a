"""Reconcilers that a fresh process can import: what `executor="process"` needs."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

from sqlalchemy import JSON, Column, ForeignKey, Integer, String, Table, update
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

from penstock import NOW, Children, Penstock, Reconcilable, Snooze
from penstock.middleware import HandlerCall
from penstock.reconcile.columns import Instant, reconcilable_columns

app = Penstock(os.environ["PENSTOCK_TEST_SHOP_URL"], executor_processes=2, heartbeat_interval=0.05)
FOLDER = Path(os.environ["PENSTOCK_TEST_FOLDER"])
HERE = os.getpid()
if (FOLDER / "no import").exists():
    os._exit(3)  # as a limit of the host ends a process that imports too much


class Secret:
    """A value that does not let itself be pickled."""

    def __reduce__(self) -> str:
        raise TypeError("a secret stays where it is")


class Sealed(TypeDecorator[Any]):
    """A column whose values are such secrets."""

    impl = String(10)
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Any) -> Any:
        return None if value is None else "sealed"

    def process_result_value(self, value: Any, dialect: Any) -> Any:
        return None if value is None else Secret()


class Base(DeclarativeBase):
    pass


class Engine(Base, Reconcilable):
    __tablename__ = "foundry_engines"
    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(String(20))
    state: Mapped[str] = mapped_column(String(20), default="new")
    note: Mapped[str | None] = mapped_column(String(100))
    size: Mapped[int] = mapped_column(default=1)
    tags: Mapped[Any] = mapped_column(JSON, nullable=True)
    seal = mapped_column(Sealed)
    made_at = mapped_column(Instant)


class Wheel(Base, Reconcilable):
    __tablename__ = "foundry_wheels"
    id: Mapped[int] = mapped_column(primary_key=True)
    engine_id: Mapped[int] = mapped_column(ForeignKey("foundry_engines.id"))
    turns: Mapped[int] = mapped_column(default=0)


class Remark(Base):
    __tablename__ = "foundry_remarks"
    id: Mapped[int] = mapped_column(primary_key=True)
    text: Mapped[str] = mapped_column(String(100))


class Animal(Base, Reconcilable):
    __tablename__ = "foundry_animals"
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "animal"}
    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(String(20))
    said: Mapped[str | None] = mapped_column(String(100))


class Dog(Animal):
    __mapper_args__ = {"polymorphic_identity": "dog"}
    bark: Mapped[str | None] = mapped_column(String(20))


bolts = Table(
    "foundry_bolts",
    Base.metadata,
    Column("box", String(20), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("state", String(40), nullable=False),
    *reconcilable_columns(),
)
lines = Table(
    "foundry_lines", Base.metadata, Column("id", Integer, primary_key=True), Column("text", String(50))
)
elsewhere = Table("foundry_elsewhere", type(Base.metadata)(), Column("id", Integer, primary_key=True))


@app.middleware
def around(call: HandlerCall) -> Iterator[None]:
    yield
    if call.item is not None and isinstance(call.result, dict) and "note" in call.result:
        call.result = {**call.result, "note": f"{call.result['note']} by {call.task}"}


def of(kind: str) -> Any:
    return (Engine.kind == kind) & (Engine.state == "new")


@app.reconciler(
    Engine,
    where=of("good"),
    name="turn",
    executor="process",
    locks=[Children(Wheel, Wheel.engine_id == Engine.id)],
)
async def turn(item: Any) -> dict[str, Any]:
    assert os.getpid() != int(item.row.note)
    for wheel in item.children:
        item.update(wheel, turns=wheel.turns + 1)
    item.insert(Remark(text=f"engine {item.id}"))
    item.insert(lines, text=f"line {item.id}")
    item.update(item.row, size=item.row.size + 1)
    item.row.tags.append("changed in place, which writes nothing")
    return {"state": "done", "note": type(item.row).__name__, "made_at": NOW}


@app.reconciler(Engine, where=of("idle"), name="snooze", executor="process")
def snooze(item: Any) -> Snooze:
    item.update(item.row, note="asleep")
    return Snooze(3600)


@app.reconciler(
    Engine,
    where=of("die"),
    name="die",
    executor="process",
    max_crashes=1,
    on_exhausted=lambda _: {"state": "given up", "size": int(os.getpid() == HERE)},
)
def die(item: Any) -> None:
    with Path(FOLDER, "deaths").open("a") as file:
        file.write(f"{item.crashes}\n")
    os.kill(os.getpid(), signal.SIGKILL)


@app.reconciler(
    Engine,
    where=of("hang"),
    name="hang",
    executor="process",
    timeout=0.3,
    max_attempts=1,
    on_exhausted={"state": "late"},
)
def hang(item: Any) -> None:
    _sit("hang")


regretted: list[tuple[Any, Any]] = []


@app.reconciler(
    Engine,
    where=of("wait"),
    name="wait",
    executor="process",
    lease=1,
    on_lost=lambda item, values: regretted.append((item.id, values)),
)
def wait(item: Any) -> None:
    _sit("wait")


@app.reconciler(
    Engine,
    where=of("sold"),
    name="sell",
    executor="process",
    on_lost=lambda item, values: regretted.append((item.id, values)),
)
def sell(item: Any) -> dict[str, Any]:
    """Another process takes the row before this one has returned."""
    with app.database.engine.begin() as connection:
        connection.execute(update(Engine).where(Engine.id == item.id).values(lock_token=7))
    return {"state": "sold", "note": "for nothing"}


def _sit(name: str) -> None:
    """Leaves its number, and goes on until it is killed."""
    file = FOLDER / name
    file.with_suffix(".part").write_text(str(os.getpid()))
    file.with_suffix(".part").rename(file)
    Event().wait()


@app.reconciler(Engine, where=of("odd"), name="odd", executor="process")
def odd(item: Any) -> dict[str, Any]:
    return {"tags": Secret()}


@app.reconciler(Engine, where=of("sealed"), name="sealed", executor="process")
def sealed(item: Any) -> dict[str, Any]:
    return {"state": "opened"}


@app.reconciler(Engine, where=of("sql"), name="sql", executor="process")
def sql(item: Any) -> dict[str, Any]:
    return {"size": Engine.size + 1}


@app.reconciler(Engine, where=of("far"), name="far", executor="process")
def far(item: Any) -> None:
    item.insert(elsewhere, id=1)


@app.reconciler(Engine, where=of("hand"), name="by_hand", executor="process")
def by_hand(item: Any) -> None:
    item.row.state = "written by hand"


@app.reconciler(Engine, where=of("wrong"), name="wrong", executor="process")
def wrong(item: Any) -> int:
    return 7


@app.reconciler(Animal, where=Animal.said.is_(None), name="speak", executor="process")
def speak(item: Any) -> dict[str, Any]:
    return {"said": f"{type(item.row).__name__} {getattr(item.row, 'bark', 'nothing')}"}


@app.reconciler(bolts, where=bolts.c.state == "loose", name="tighten", executor="process")
def tighten(item: Any) -> dict[str, Any]:
    row = item.row
    return {"state": f"{row.box} {row[1]} {row._mapping[bolts.c.state]}"}


def later(item: Any) -> None: ...
