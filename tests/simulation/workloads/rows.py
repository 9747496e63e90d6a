"""Reconcilers over the user's rows, with related locks, against API code that takes the same locks."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from penstock import Children, Retry, Shared, Snooze
from penstock.errors import LockTimeout, PenstockError, RowNotFound
from penstock.reconcile.item import Item
from tests.simulation import virtual
from tests.simulation.server import time_text
from tests.simulation.workloads import Act, row_checks, row_tables
from tests.simulation.workloads.callers import Call, announced, lock, locked, patiently, told_of_writers
from tests.simulation.workloads.row_tables import MODELS, Fleet, Instance, Order
from tests.simulation.world import SECOND, START

if TYPE_CHECKING:
    from penstock.app import Penstock
    from tests.simulation.hosts import ClientHost
    from tests.simulation.story import Story

LEASE = 6.0
PLAIN: dict[str, Any] = {"lease": LEASE, "workers": 2, "backoff": Retry(delay=1, jitter=0), "index": False}
CASTS = (
    ("instances",),
    ("fleets", "instances"),
    ("fleets", "instances"),
    ("orders", "instances"),
    ("fleets", "orders"),
)
VISITED = " + ".join(
    f"(SELECT COUNT(*) FROM {table} WHERE ('{name}' IN (SELECT name FROM sim_cast)) AND {only} AND "
    "(last_processed_at IS NULL OR last_processed_at < sim_calm() OR seen < requests))"
    for table, name, only in (
        ("sim_fleets", "fleets", "1"),
        ("sim_instances", "instances", "1"),
        ("sim_tickets", "orders", "state = 'new'"),
    )
)

Ask = Callable[[str, int], Any]
"""What API code does to a row of that table."""


class Trouble(Exception):
    """What a handler raises on purpose."""


class Rows:
    """The workload."""

    name = "rows"
    often = 1
    unfinished = f"SELECT {VISITED}"

    def __init__(
        self,
        asks: Sequence[Ask] = (),
        most: int = 4,
        casts: Sequence[tuple[str, ...]] = CASTS,
        held: float = 0.0,
    ) -> None:
        self.asks: Sequence[Ask] = asks or (write, write, ask, ask_only, call, call)
        self.most = most
        self.casts = casts
        self.held = held
        """Seconds for which all rows are held to begin with, by a process that is not there: writers come at once."""

    def prepare(self, connection: sqlite3.Connection) -> None:
        row_tables.create(connection)
        for table in MODELS:
            told_of_writers(connection, table)
        connection.execute("CREATE TABLE sim_cast (name TEXT)")

    def declare(self, app: Penstock) -> None:
        children = Children(Instance, Instance.fleet_id == Fleet.id, patience=LEASE)
        shared = Shared(Instance, Instance.id == Order.instance_id, patience=LEASE)
        app.reconciler(Fleet, name="fleets", every=5, locks=[children], timeout=6, **PLAIN)(_reconcile)
        app.reconciler(Instance, name="instances", every=2, timeout=4, **PLAIN)(_reconcile_async)
        exhausted: dict[str, Any] = {"max_attempts": 3, "on_exhausted": {"state": "failed"}}
        new = Order.state == "new"
        app.reconciler(Order, name="orders", where=new, every=4, locks=[shared], **PLAIN, **exhausted)(
            _reconcile
        )

    def fill(self, connection: sqlite3.Connection, rng: random.Random) -> Sequence[str]:
        """Rows to begin with. Says which reconcilers run."""
        row_tables.fill(connection, rng)
        if self.held:
            row_tables.hold(connection, time_text(START + int(self.held * SECOND)))
        cast = rng.choice(self.casts)
        connection.executemany("INSERT INTO sim_cast VALUES (?)", [(name,) for name in cast])
        return cast

    def script(self, rng: random.Random) -> Sequence[Act]:
        acts: list[Act] = []
        for number in range(rng.randint(1, self.most)):
            table, id = rng.choice(list(MODELS)), rng.randint(1, 3)
            if self.held:
                table, id = list(MODELS)[number % 3], 1
            asked = rng.choice(self.asks)
            if asked is call:
                acts.append(patiently(rng, call(table, id)))
            else:
                gap = rng.choice([0.0, 0.5, 2.0, 5.0])
                acts.append(_after(0.0 if self.held else gap, asked(table, id)))
        return acts

    def check(self, story: Story) -> list[str]:
        return [*row_checks.check(story), *(wrong for table in MODELS for wrong in announced(story, table))]


def _after(gap: float, act: Act) -> Act:
    def later(client: ClientHost) -> None:
        client.world.sleep(gap)
        try:
            act(client)
        except (PenstockError, sqlite3.Error) as error:
            client.world.note(client.name, f"gave up: {type(error).__name__} {error}")
        except Exception as error:
            if not client.app.database.is_outage(error):
                raise
            client.world.note(client.name, f"gave up: {type(error).__name__}")

    return later


def write(table: str, id: int) -> Act:
    """API code takes the row's lock, and asks for something."""

    def act(client: ClientHost) -> None:
        try:
            with locked(client.app, MODELS[table], id, 3.0) as connection:
                connection.execute(text(f"UPDATE {table} SET requests = requests + 1 WHERE id = {id}"))
        except (LockTimeout, RowNotFound) as error:
            client.world.note(client.name, f"{type(error).__name__} {table} {id}")

    return act


def call(table: str, id: int) -> Call:
    """The same on an event loop, by one who may hang up."""

    async def calls(client: ClientHost) -> None:
        async with lock(client.app, MODELS[table], id, 3.0) as connection:
            await connection.execute(text(f"UPDATE {table} SET requests = requests + 1 WHERE id = {id}"))

    return calls


def ask(table: str, id: int) -> Act:
    """API code that takes no lock: a flag, then a hint."""

    def act(client: ClientHost) -> None:
        with client.app.database.engine.begin() as connection:
            connection.execute(text(f"UPDATE {table} SET requests = requests + 1 WHERE id = {id}"))
        client.app.hint(MODELS[table], id)

    return act


def ask_only(table: str, id: int) -> Act:
    return lambda client: client.app.hint(MODELS[table], id)


def _told(item: Item) -> tuple[str, int, int]:
    return item.target.table.name, item.id, item.token


def _chance() -> tuple[float, float]:
    """How lucky this visit is, and how long it takes."""
    rng = virtual.here().rng
    nemesis = virtual.here().nemesis
    if nemesis is not None and nemesis.calm:
        return 1.0, 0.1
    return rng.random(), rng.choice([0.0, 0.0, 0.1, 0.5, 2.0, 10.0])


def _reconcile(item: Item) -> Any:
    world = virtual.here()
    world.record("visit", *_told(item), item.recovered)
    luck, seconds = _chance()
    world.sleep(seconds)
    return _said(item, luck)


async def _reconcile_async(item: Item) -> Any:
    world = virtual.here()
    world.record("visit", *_told(item), item.recovered)
    luck, seconds = _chance()
    await asyncio.sleep(seconds)
    return _said(item, luck)


def _said(item: Item, luck: float) -> Any:
    world = virtual.here()
    if luck < 0.1:
        world.record("visit raised", *_told(item))
        raise Trouble
    if luck < 0.18:
        world.record("visit snoozed", *_told(item))
        return Snooze(1 + 20 * luck)
    for held in item.held:
        item.update(held.row, visits=held.row.visits + 1)
    if isinstance(item.row, Fleet):
        _resize(item, luck)
    world.record("visit done", *_told(item))
    return {"visits": item.row.visits + 1, "seen": item.row.requests}


def _resize(item: Item, luck: float) -> None:
    """Now and then a fleet grows or shrinks."""
    children = item.children
    if luck < 0.25 and len(children) < 4:
        id = virtual.here().rng.randrange(100, 1 << 40)
        item.insert(Instance(id=id, fleet_id=item.id, visits=0, requests=0, seen=0))
    elif luck < 0.3 and len(children) > 1:
        item.delete(children[-1])
