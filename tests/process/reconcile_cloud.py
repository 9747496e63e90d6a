"""A small cloud that real worker processes run: `penstock worker tests.process.reconcile_cloud:app`.

Handlers write a diary and, where told to, wait for a gate: two files in a folder that the test names.
"""

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from penstock import Children, Penstock, Reconcilable

FOLDER = Path(os.environ.get("CLOUD_FOLDER", "."))
LEASE = float(os.environ.get("CLOUD_LEASE", "30"))
SKEW = float(os.environ.get("CLOUD_SKEW", "0"))

if SKEW:
    _honest = time.time
    time.time = lambda: _honest() + SKEW

app = Penstock()


class Base(DeclarativeBase):
    pass


class Volume(Base, Reconcilable):
    __tablename__ = "volumes"
    id: Mapped[int] = mapped_column(primary_key=True)
    status: Mapped[str] = mapped_column(String(20), default="submitted")
    maker: Mapped[int | None]
    recovered: Mapped[int | None]


class Fleet(Base, Reconcilable):
    __tablename__ = "fleets"
    id: Mapped[int] = mapped_column(primary_key=True)
    status: Mapped[str] = mapped_column(String(20), default="new")
    maker: Mapped[int | None]


class Instance(Base, Reconcilable):
    __tablename__ = "instances"
    id: Mapped[int] = mapped_column(primary_key=True)
    fleet_id: Mapped[int] = mapped_column(ForeignKey("fleets.id"))
    status: Mapped[str] = mapped_column(String(20), default="new")


def note(word: str, item: Any) -> None:
    with (FOLDER / "diary").open("a") as diary:
        diary.write(f"{word} {item.target.table.name} {item.id} {os.getpid()} {time.monotonic():.4f}\n")


async def until_open(item: Any) -> None:
    note("begin", item)
    while (FOLDER / "gate").exists():  # noqa: ASYNC110 - the gate is a file
        await asyncio.sleep(0.01)


def regret(item: Any, values: dict[str, Any] | None) -> None:
    note("regret" if values is None else "undo", item)


@app.reconciler(
    Volume,
    where=Volume.status == "submitted",
    every=3600,
    lease=LEASE,
    workers=4,
    on_lost=regret,
    name="volumes",
)
async def provision(item: Any) -> dict[str, Any]:
    await until_open(item)
    return {"status": "active", "maker": os.getpid(), "recovered": int(item.recovered)}


@app.reconciler(
    Volume,
    where=Volume.status == "threaded",
    every=3600,
    lease=LEASE,
    workers=4,
    on_lost=regret,
    name="threads",
)
def provision_in_a_thread(item: Any) -> dict[str, Any]:
    asyncio.run(until_open(item))
    return {"status": "active", "maker": os.getpid(), "recovered": int(item.recovered)}


@app.reconciler(
    Volume,
    where=Volume.status == "heavy",
    every=3600,
    lease=LEASE,
    workers=4,
    on_lost=regret,
    executor="process",
    name="processes",
)
def provision_in_a_process(item: Any) -> dict[str, Any]:
    asyncio.run(until_open(item))
    return {"status": "active", "maker": os.getppid(), "recovered": int(item.recovered)}


@app.reconciler(
    Fleet,
    where=Fleet.status == "new",
    every=3600,
    lease=LEASE,
    locks=[Children(Instance, Instance.fleet_id == Fleet.id)],
    name="fleets",
)
async def form(item: Any) -> dict[str, Any]:
    await until_open(item)
    for child in item.children:
        item.update(child, status="joined")
    return {"status": "formed", "maker": os.getpid()}


@app.reconciler(
    Volume,
    where=Volume.status == "deadly",
    every=3600,
    lease=LEASE,
    max_attempts=10,
    max_crashes=2,
    on_exhausted={"status": "given up"},
    name="deadly",
)
async def die(item: Any) -> None:
    note("begin", item)
    os.kill(os.getpid(), signal.SIGKILL)


@app.reconciler(Volume, where=Volume.status == "broken", every=3600, name="broken")
async def fail(item: Any) -> None:
    raise LookupError("no such zone")
