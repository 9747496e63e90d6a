"""Innocents of every kind, which must come through whatever else is in the tables."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import String, func, insert, select
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from penstock import Concurrency, Penstock, Reconcilable, wait_for
from penstock.database.dialect import Lane
from penstock.database.transaction import Transaction
from penstock.job import Job
from penstock.queue import claim, processes, reclaim
from penstock.telemetry.events import Event, RowSetAside, TroubleBegan
from penstock.values.ids import new_id, new_token
from tests.waiting import until

PATIENCE = 20.0


class Base(DeclarativeBase):
    pass


class Thing(Base, Reconcilable):
    __tablename__ = "fuzz_things"
    id: Mapped[int] = mapped_column(primary_key=True)
    status: Mapped[str] = mapped_column(String(20), default="new")


class Crowd:
    """An app with something of every kind."""

    def __init__(self, app: Penstock) -> None:
        self.app = app
        self.events: list[Event] = []
        app.events.on(Event, self.events.append)

        @app.task(name="add", retries=0)
        def add(a: int, b: int) -> int:
            return a + b

        @app.task(name="numbers", retries=0)
        def numbers(n: int) -> list[int]:
            return list(range(n))

        @app.task(name="total", retries=0)
        def total(xs: list[int]) -> int:
            return sum(xs)

        @app.task(name="limited", retries=0, limits=[Concurrency(1, key="k")])
        def limited(k: str) -> str:
            return k

        @app.task(name="only one", retries=0, limits=[Concurrency(1)])
        def only_one(seconds: float) -> float:
            time.sleep(seconds)
            return seconds

        @app.task(name="fails", retries=0)
        def fails() -> None:
            raise ValueError("as it is meant to")

        @app.pipeline(name="fan")
        def fan(n: int) -> Any:
            return total(add.map(numbers(n), 1).collect())

        @app.pipeline(name="waits")
        def waits() -> Any:
            return add(wait_for("go", timeout=1000), 1)

        @app.reconciler(Thing, name="things", where=Thing.status == "new")
        def things(item: Any) -> dict[str, object]:
            return {"status": "done"}

        self.add, self.limited, self.fan, self.waits = add, limited, fan, waits
        self.only_one, self.fails = only_one, fails
        app.prepare()
        Base.metadata.create_all(app.database.engine)

    def fill(self) -> None:
        """Something at every stage of its life, for a hand to tamper with."""
        self.add.options(delay=0.3).enqueue(1, 2)
        self.add.options(delay=3600, key="keyed").enqueue(1, 2)
        self.add.options(queue="elsewhere").enqueue(1, 2)
        for _ in range(3):
            self.only_one.enqueue(0.2)
        self.fails.enqueue()
        self.fan.trigger(3)
        self.fan.options(delay=0.3).trigger(3)
        self.waits.options(labels=["some"], key="waits").trigger().signal("go", 1)
        self.waits.trigger()
        self.held("lost")

    def held(self, queue: str) -> Job:
        """A job that another process has claimed, which lives no more."""
        job = self.add.options(queue=queue).enqueue(20, 3)
        process = new_id()
        database = self.app.database

        def work(tx: Transaction) -> None:
            processes.register(tx, process, "elsewhere", 1, "worker", None, "{}", 3600.0)
            lanes = [Lane(queue, tier, 0, 10) for _, tier in claim.discover(tx, [queue])]
            claim.claim(tx, lanes, ["add"], 10, new_token(), process)

        database.in_transaction(work)
        database.in_transaction(reclaim.remove_process, process)
        return job

    async def come_through(self, number: int) -> None:
        """New work of every kind is done, and what a killed process held is done again."""
        taken_back = self.held(f"dead{number}")
        delayed = await self.add.options(delay=0.1).enqueue_async(2, 2)
        run = await self.fan.trigger_async(4)
        limited = await self.limited.enqueue_async(f"k{number}")
        with self.app.database.engine.begin() as connection:
            connection.execute(insert(Thing), [{"id": 1_000_000 + number}])
        assert await (await self.add.enqueue_async(1, 2)).result_async(PATIENCE) == 3
        assert await delayed.result_async(PATIENCE) == 4
        assert await limited.result_async(PATIENCE) == f"k{number}"
        assert await run.result_async(PATIENCE) == 10
        assert await taken_back.result_async(PATIENCE) == 23
        await until(lambda: self._done(1_000_000 + number), PATIENCE)

    def told(self) -> str:
        """What has been set aside, and what was in trouble."""
        return "; ".join(str(one) for one in self.events if isinstance(one, RowSetAside | TroubleBegan))[
            -1500:
        ]

    def _done(self, id: int) -> bool:
        with self.app.database.engine.connect() as connection:
            found = select(func.count()).select_from(Thing).where(Thing.id == id, Thing.status == "done")
            return connection.execute(found).scalar_one() == 1
