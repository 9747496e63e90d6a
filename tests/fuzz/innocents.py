"""Innocents of every kind, which must come through whatever else is in the tables."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import String, func, insert, select
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import penstock
from penstock import Concurrency, Penstock, Reconcilable, wait_for
from penstock.database.dialect import Lane
from penstock.database.transaction import Transaction
from penstock.job import Job
from penstock.queue import claim, enqueue, processes, reclaim
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

        @app.task(name="after", retries=0)
        def after(x: int, answer: int) -> int:
            return x + answer

        @app.pipeline(name="each waits")
        def each_waits(n: int) -> Any:
            each = add.map(numbers(n), 1)
            return total(after(each, wait_for("each", after=[each], timeout=1000)).collect())

        @app.pipeline(name="one at a time", max_running=1)
        def one_at_a_time() -> Any:
            return add(wait_for("go", timeout=1000), 1)

        @app.task(name="noting", retries=0)
        def noting() -> int:
            return int(penstock.current().once("noted", lambda: 1))

        @app.reconciler(Thing, name="things", where=Thing.status.in_(["new", "bad"]))
        def things(item: Any) -> dict[str, object]:
            if item.row.status == "bad":
                raise ValueError("as it is meant to")
            return {"status": "done"}

        self.add, self.limited, self.fan, self.waits = add, limited, fan, waits
        self.only_one, self.fails, self.noting = only_one, fails, noting
        self.each_waits, self.one_at_a_time = each_waits, one_at_a_time
        app.prepare()
        assert not app.schedules(limit=1)  # imported now: CPython 3.11 fails if two threads parse at once
        Base.metadata.create_all(app.database.engine)

    def held(self, queue: str, *, alive: bool = False) -> Job:
        """A job that another process has claimed, which lives no more; or which says nothing for an hour."""
        process = new_id()
        database = self.app.database

        def work(tx: Transaction) -> str:
            # In one transaction: the worker, which takes from all queues, must not be there first.
            draft = self.add.options(queue=queue).drafted(((20, 3), {}))
            (id,) = enqueue.enqueue(tx, [draft._replace(id=new_id())])
            processes.register(tx, process, "elsewhere", 1, "worker", None, "{}", 3600.0)
            lanes = [Lane(queue, tier, 0, 10) for _, tier in claim.discover(tx, [queue])]
            assert claim.claim(tx, lanes, ["add"], 10, new_token(), process)
            return id

        job = self.app.job(database.in_transaction(work))
        if not alive:
            database.in_transaction(reclaim.remove_process, process)
        return job

    async def come_through(self, number: int) -> None:
        """New work of every kind is done, and what a killed process held is done again."""
        taken_back = self.held(f"dead{number}")
        delayed = await self.add.options(delay=0.1).enqueue_async(2, 2)
        run = await self.fan.trigger_async(4)
        limited = await self.limited.enqueue_async(f"k{number}")
        schedule = self.app.schedules.create(self.add, every=0.2, name=f"innocent {number}", args=(1, 2))
        with self.app.database.engine.begin() as connection:
            connection.execute(insert(Thing), [{"id": -1 - number}])
        assert await (await self.add.enqueue_async(1, 2)).result_async(PATIENCE) == 3
        assert await delayed.result_async(PATIENCE) == 4
        assert await limited.result_async(PATIENCE) == f"k{number}"
        assert await run.result_async(PATIENCE) == 10
        assert await taken_back.result_async(PATIENCE) == 23
        await until(lambda: self._done(-1 - number), PATIENCE)
        await until(lambda: any(tick.outcome == "fired" for tick in schedule.ticks(limit=10)), PATIENCE)
        await schedule.delete_async()

    def told(self) -> str:
        """What has been set aside, and what was in trouble."""
        return "; ".join(str(one) for one in self.events if isinstance(one, RowSetAside | TroubleBegan))[
            -1500:
        ]

    def _done(self, id: int) -> bool:
        with self.app.database.engine.connect() as connection:
            found = select(func.count()).select_from(Thing).where(Thing.id == id, Thing.status == "done")
            return connection.execute(found).scalar_one() == 1
