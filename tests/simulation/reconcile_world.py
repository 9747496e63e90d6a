"""A model of the locking of rows: processes, writers and a clock, moved by a seeded scheduler.

Every step is one real transaction on a real (SQLite) database; which one comes next is chance, and the same seed makes
the same history. Processes freeze, go on with what they held, or die; handlers end well, badly or never.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ForeignKey, String, insert, select, update
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from penstock import Children, Penstock, Reconcilable, Retry, Shared, Snooze
from penstock.errors import LockTimeout
from penstock.reconcile.columns import EPOCH
from penstock.reconcile.item import Item
from penstock.reconcile.outcome import VisitKind, failed
from penstock.reconcile.reconciler import Reconciler
from penstock.runtime.reconcilers.row_services import Sweeper
from penstock.testing.drain_rows import ManualReconciler
from penstock.values.failure import Failure

START = 1_800_000_000_000_000
LEASE = 30.0


class Base(DeclarativeBase):
    pass


class Fleet(Base, Reconcilable):
    __tablename__ = "fleets"
    id: Mapped[int] = mapped_column(primary_key=True)
    visits: Mapped[int] = mapped_column(default=0)
    requests: Mapped[int] = mapped_column(default=0)


class Instance(Base, Reconcilable):
    __tablename__ = "instances"
    id: Mapped[int] = mapped_column(primary_key=True)
    fleet_id: Mapped[int] = mapped_column(ForeignKey("fleets.id"))
    visits: Mapped[int] = mapped_column(default=0)
    requests: Mapped[int] = mapped_column(default=0)


class Order(Base, Reconcilable):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    instance_id: Mapped[int] = mapped_column(ForeignKey("instances.id"))
    state: Mapped[str] = mapped_column(String(10), default="new")
    visits: Mapped[int] = mapped_column(default=0)
    requests: Mapped[int] = mapped_column(default=0)


MODELS = (Fleet, Instance, Order)
Place = tuple[str, Any]


@dataclass(eq=False)
class Work:
    """An item in a process's hands."""

    hand: ManualReconciler
    item: Item
    taken_at: int
    until: float
    """When its handler will be done, by the clock of the world."""


@dataclass(eq=False)
class Process:
    hands: list[ManualReconciler]
    works: list[Work] = field(default_factory=list)
    frozen_until: float = 0.0


class World:
    """The database, the processes on it, and the history of what was applied."""

    def __init__(self, seed: int, processes: int = 3) -> None:
        self.chance = random.Random(seed)
        self.app = Penstock("sqlite://", listen=False, notify=False)
        self.app.prepare()
        Base.metadata.create_all(self.app.database.engine)
        self.now = 0.0
        self.step = 0
        self.reconcilers = _declare(self.app)
        self.processes = [self.new_process() for _ in range(processes)]
        self.applied: list[tuple[Place, int, int]] = []
        """(row, step of its claim, step of its apply) of every accepted apply, related rows included."""
        self.visits: Counter[Place] = Counter()
        self.written: Counter[Place] = Counter()
        self.last_visit: dict[Place, int] = {}
        self._tick(0.0)
        self._fill()

    def _fill(self) -> None:
        with self.app.database.engine.begin() as connection:
            connection.execute(insert(Fleet), [{"id": number} for number in (1, 2)])
            connection.execute(
                insert(Instance), [{"id": number, "fleet_id": 1 + number % 2} for number in range(1, 7)]
            )
            orders = [{"id": number, "instance_id": 1 + number % 6} for number in range(1, 9)]
            connection.execute(insert(Order), orders)

    def new_process(self) -> Process:
        return Process([ManualReconciler(self.app, reconciler) for reconciler in self.reconcilers])

    # steps

    def act(self, calm: bool = False) -> None:
        """One step of one process."""
        self.step += 1
        process = self.chance.choice(self.processes)
        moves = [self.take] * 5 + [self.finish] * 6 + [self.renew] * 2 + [self.pass_time] * 3
        if not calm:
            moves += [self.write, self.write, self.ask, self.freeze, self.die, self.sweep]
        move = self.chance.choice(moves)
        if process.frozen_until > self.now and move in (self.take, self.finish, self.renew):
            return
        move(process)

    def take(self, process: Process) -> None:
        hand = self.chance.choice(process.hands)
        if self.chance.random() < 0.3:
            hand.source.heard({"rows"})
        for item in hand.take(self.chance.randint(1, 3)):
            self.note_claim(item)
            long = self.chance.choice([0.0, 2.0, 8.0, 20.0])
            process.works.append(Work(hand, item, self.step, self.now + long))

    def finish(self, process: Process) -> None:
        ready = [work for work in process.works if work.until <= self.now]
        if not ready:
            return
        work = self.chance.choice(ready)
        process.works.remove(work)
        self.end(work, self.chance.random())

    def end(self, work: Work, luck: float) -> None:
        item, hand = work.item, work.hand
        lost_before = hand.source.counts["lost"]
        if luck < 0.15:
            failure = Failure.note("Unlucky", "chance")
            hand.finish(failed(hand.reconciler.policy, item, failure, VisitKind.ERRORED, 0.0))
            return
        if luck < 0.25:
            hand.finish(hand.end(item, Snooze(self.chance.randint(1, 20))))
            return
        for held in item.held:
            item.update(held.row, visits=held.row.visits + 1)
        hand.finish(hand.end(item, {"visits": item.row.visits + 1}))
        if hand.source.counts["lost"] == lost_before and not item.lease_lost:
            self.note_apply(work)

    def renew(self, process: Process) -> None:
        for hand in process.hands:
            items = [work.item for work in process.works if work.hand is hand]
            if items:
                hand.renew(*items)
        process.works = [work for work in process.works if not work.item.lease_lost]

    def pass_time(self, _: Process) -> None:
        self._tick(self.chance.choice([0.1, 1.0, 3.0, 12.0]))

    def write(self, _: Process) -> None:
        model = self.chance.choice(MODELS)
        id = self.chance.randint(1, 2)
        try:
            with self.app.lock(model, id, timeout=0.0) as connection:
                connection.execute(update(model).where(model.id == id).values(requests=model.requests + 1))
                self.written[model.__tablename__, id] += 1
        except LockTimeout:
            return

    def ask(self, _: Process) -> None:
        self.app.hint(self.chance.choice(MODELS), self.chance.randint(1, 2))

    def freeze(self, process: Process) -> None:
        """It stops, and later goes on with whatever it held, not knowing how late it is."""
        process.frozen_until = self.now + self.chance.choice([5.0, 40.0, 100.0])

    def die(self, process: Process) -> None:
        if self.chance.random() < 0.5:
            self.processes[self.processes.index(process)] = self.new_process()

    def sweep(self, _: Process) -> None:
        Sweeper(self.app.database, self.app.events, lambda: self.reconcilers).turn()

    def _tick(self, seconds: float) -> None:
        self.now += seconds
        micros = START + int(self.now * 1_000_000)
        self.app.database.set_clock(str(micros))
        self.app.database.clock_shift = micros  # time that passes, and no clock that is set

    # history

    def places(self, item: Item) -> list[Place]:
        own = (item.target.table.name, item.id)
        return [own, *((held.target.table.name, held.key[0]) for held in item.held)]

    def note_claim(self, item: Item) -> None:
        """A related row is never held without the row it was taken for."""
        assert {row.lock_token for row in self.rows_of(item)} == {item.token}

    def note_apply(self, work: Work) -> None:
        for place in self.places(work.item):
            self.applied.append((place, work.taken_at, self.step))
            self.visits[place] += 1
        self.last_visit[self.places(work.item)[0]] = self.step

    def rows_of(self, item: Item) -> Iterator[Any]:
        by_name = {model.__tablename__: model for model in MODELS}
        with self.app.database.engine.begin() as connection:
            for table, id in self.places(item):
                model = by_name[table]
                yield connection.execute(select(model).where(model.id == id)).one()

    def rows(self, model: Any) -> list[Any]:
        with self.app.database.engine.begin() as connection:
            return list(connection.execute(select(model)).all())

    def make_due(self) -> None:
        """Everything is worth a visit, now."""
        for model in MODELS:
            with self.app.database.engine.begin() as connection:
                connection.execute(update(model).values(next_process_at=EPOCH))

    def calm_down(self) -> None:
        """No process is frozen any more, and what they held is finished, late as it may be."""
        for process in self.processes:
            process.frozen_until = 0.0
            while process.works:
                self.step += 1
                self.end(process.works.pop(), 1.0)

    def close(self) -> None:
        for process in self.processes:
            for hand in process.hands:
                hand.close()
        self.app.close()


def _declare(app: Penstock) -> list[Reconciler]:
    plain: dict[str, Any] = {"lease": LEASE, "backoff": Retry(delay=2, jitter=0)}
    children = Children(Instance, Instance.fleet_id == Fleet.id, patience=60)
    shared = Shared(Instance, Instance.id == Order.instance_id, patience=60)
    return [
        app.reconciler(Fleet, name="fleets", every=20, locks=[children], **plain)(_unused),
        app.reconciler(Instance, name="instances", every=0, **plain)(_unused),
        app.reconciler(Order, name="orders", every=10, locks=[shared], **plain)(_unused),
    ]


def _unused(item: Item) -> None:
    """The scheduler ends the items itself."""


@contextmanager
def world(seed: int) -> Iterator[World]:
    made = World(seed)
    try:
        yield made
    finally:
        made.close()
